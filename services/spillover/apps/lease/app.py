"""The FastAPI app of a lease member: routes that show what `live.leases.report` knows."""

from __future__ import annotations

from fastapi import FastAPI, Request

from spillover.apps.http.cold import complete, new_app, without_pydantic_1
from spillover.apps.http.openapi import describe, problems
from spillover.apps.http.problems import Problem
from spillover.apps.http.sites import WebSite
from spillover.apps.lease.console_view import lease_console
from spillover.apps.lease.doors import TABLE
from spillover.apps.lease.views import LeaseState, MemberState, lease_state, member_state
from spillover.live.leases.metrics import LeaseMetrics
from spillover.live.leases.report import GroupReport

SITE = WebSite()
"""A member has no name in its configuration."""


@without_pydantic_1()
def create_app(report: GroupReport, metrics: LeaseMetrics, *, has_tokens: bool = False) -> FastAPI:
    """Returns the whole service of one member, but for the doors that it is behind where it
    `has_tokens`."""
    app = new_app(f"Spillover lease member {report.member.node}", metrics.registry)

    @app.get("/state")
    async def state() -> LeaseState:
        """Returns the whole group. While Redis is away: what the member knows, and the last that
        was read, with its age.
        """
        return lease_state(report, await report.look())

    @app.post("/admin/drain", status_code=202, responses=problems("another_site"))
    async def drain(request: Request) -> MemberState:
        """Hand everything over and leave; then the process ends with status 0."""
        reason = SITE.why_not_operate(request.headers)
        if reason is not None:
            raise Problem("another_site", reason)
        report.member.drain_soon()
        return member_state(report)

    not_ready = problems("joining", "id_taken", "draining", "redis_down", "not_ready")

    @app.get("/readyz", responses=not_ready)
    async def readyz() -> dict[str, str]:
        """200 while the member takes part."""
        found = report.not_ready()
        if found is not None:
            raise Problem(*found)
        return {"status": "ready"}

    complete(app, lease_console(report, has_tokens=has_tokens))
    describe(app, TABLE.tell if has_tokens else None)
    return app
