"""`/state` of a lease member field by field, from what was read of its group: no Redis is needed,
and none is asked.
"""

from __future__ import annotations

import asyncio

import pytest

from spillover.apps.lease.app import create_app
from spillover.apps.lease.views import lease_state
from spillover.live.leases.group import LeaseGroup
from spillover.live.leases.metrics import LeaseMetrics
from spillover.live.leases.report import (
    AllocationRow,
    GrabRow,
    GroupReport,
    GroupState,
    MemberRow,
    Seen,
)

STORED = GroupState(
    now_ms=1000.5,
    members=[MemberRow("a", 900.5, 2), MemberRow("b", None, 1)],
    allocation=[
        AllocationRow(0, "a", 7, 10.5, 800.5, stopping=False, load=1.5),
        AllocationRow(1, "b", 8, None, None, stopping=True),
    ],
    grabs=[GrabRow(1, "b", 20.5, 30.5), GrabRow(2, "a", None, None)],
)


def with_report(look):
    """What `look(report)` gives of a member that has not begun."""

    async def main():
        member = LeaseGroup(
            "redis://127.0.0.1:1", "things", node="a", partitions=3, handler=lambda *_: None
        )
        report = GroupReport(member)
        try:
            return look(report)
        finally:
            await report.close()

    return asyncio.run(main())


def told(seen, look=lease_state):
    return with_report(lambda report: look(report, *seen).model_dump())


def test_while_redis_is_away_it_says_so_and_shows_the_last_that_was_read():
    state = told([Seen(STORED, 9.0, "no answer")])
    assert state["redis"] == {"up": False, "problem": "no answer"}
    assert (state["as_of_s"], len(state["members"])) == (9.0, 2)
    never = told([Seen(GroupState(), None, "no answer")])
    assert (never["as_of_s"], never["redis_now_ms"], never["members"]) == (None, None, [])


NOT_READY = {"joining", "id_taken", "draining", "redis_down", "not_ready"}

CALLS = {
    "GET /state": ("200 application/json", set(), "read"),
    "GET /metrics": ("200 text/plain", set(), "read"),
    "GET /healthz": ("200 application/json", set(), None),
    "GET /readyz": ("200 application/json", NOT_READY, None),
    "GET /console": ("200 text/html", set(), None),
    "POST /admin/drain": ("202 application/json", {"another_site"}, "operate"),
}
"""What each gives, why it may refuse, and the role that it wants where there are API tokens."""


@pytest.mark.parametrize("has_tokens", [False, True])
def test_its_description_says_what_each_call_gives_and_who_may(has_tokens):
    def described(report):
        app = create_app(report, LeaseMetrics(report.member), has_tokens=has_tokens)
        return app.openapi()

    found = with_report(described)
    assert found["info"]["title"] == "Spillover lease member a"
    assert ("securitySchemes" in found["components"]) == has_tokens
    calls = {
        f"{m.upper()} {path}": one for path, ms in found["paths"].items() for m, one in ms.items()
    }
    assert set(calls) == set(CALLS)
    for name, (gives, reasons, role) in CALLS.items():
        responses, refused = calls[name]["responses"], set()
        given = []
        for status, response in responses.items():
            if "application/problem+json" in response.get("content", ()):
                refused |= set(response["description"].split(" or "))
            else:
                given += [f"{status} {kind}" for kind in response["content"]]
        wants = role if has_tokens else None
        assert given == [gives]
        assert refused == reasons | ({"unauthenticated", "forbidden"} if wants else set()), name
        assert ("security" in calls[name]) == (wants is not None)
        if wants:
            assert f"the role {wants}." in calls[name]["description"]
