"""The console of a lease member shows `/state`, and lets operators drain it."""

from __future__ import annotations

from spillover import __version__
from spillover.apps.http.console.console import Console
from spillover.apps.http.console.operators import Operators
from spillover.apps.lease.views import lease_state
from spillover.live.leases.report import GroupReport

PERIOD_S = 0.5
"""Leases last seconds."""


def lease_console(report: GroupReport, *, has_tokens: bool = False) -> Console:
    """Returns the console of one member, to be mounted on its app."""

    async def look() -> bytes:
        return lease_state(report, await report.look()).model_dump_json().encode()

    member = report.member
    return Console(
        "lease",
        {"name": member.node, "group": member.group, "version": __version__, "testbed": False},
        look,
        period_s=PERIOD_S,
        actions={"drain": member.drain_soon},
        operators=Operators(has_tokens=has_tokens),
    )
