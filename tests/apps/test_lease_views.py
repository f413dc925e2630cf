"""`/state` of a lease member field by field, from what was read of its group: no Redis is needed,
and none is asked.
"""

import asyncio

from spillover.apps.lease.views import lease_state
from spillover.live.leases.group import LeaseGroup
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
