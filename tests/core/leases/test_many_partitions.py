"""A group of very many partitions: what a member asks of the store at once is bounded."""

from __future__ import annotations

from random import Random

import pytest

from spillover.core.leases import events as ev
from spillover.core.leases.machine import LeaseMember
from spillover.core.leases.records import PARTITIONS_MAX, Joined, Standing, Survey
from spillover.core.leases.settings import MemberSettings
from spillover.model.errors import InputError

AT_ONCE = 50
"""Of 10 000; see GRAB_WORK_MAX."""


def test_a_group_has_so_many_partitions_at_most():
    MemberSettings(node="a", partitions=PARTITIONS_MAX)
    with pytest.raises(InputError, match="partitions: expected at most 10000, got 10001"):
        MemberSettings(node="a", partitions=PARTITIONS_MAX + 1)


def test_grabs_go_out_a_few_at_a_time_and_the_rest_follows_soon():
    """All free, one member: it neither floods the store nor waits a period for the rest. Messages
    of others do not make it ask for more."""
    machine = LeaseMember(MemberSettings(node="a", partitions=PARTITIONS_MAX), Random(1))
    now_s = 0.0
    (join,) = machine.handle(ev.Started(), now_s)
    given = machine.handle(ev.Answered(join, Joined(ok=True, other_alive_ms=0.0, era="e")), now_s)
    won: set[int] = set()
    asked: list[ev.AskGrab] = []
    surveys = 0
    while surveys < 20:
        event = ev.TimerFired()
        for ask in given:
            if isinstance(ask, ev.AskSurvey):
                surveys += 1
                free = [p for p in range(PARTITIONS_MAX) if p not in won]
                standing = Standing({"a": len(won)}, {"a": 0}, 0)
                event = ev.Answered(ask, Survey("e", standing, free=free))
            elif isinstance(ask, ev.AskGrab):
                asked.append(ask)
        if isinstance(event, ev.TimerFired) and len(asked) == AT_ONCE:
            for partition in range(PARTITIONS_MAX - 100, PARTITIONS_MAX):
                given = machine.handle(ev.Challenged(partition), now_s)
                assert not any(isinstance(one, ev.AskGrab) for one in given)
            won |= {ask.partition for ask in asked}
            for ask in asked:
                machine.handle(ev.Answered(ask, answer=True), now_s)
            asked.clear()
        if isinstance(event, ev.TimerFired):
            now_s = max(now_s, machine.next_deadline())
        given = machine.handle(event, now_s)
        machine.check()
        assert len(asked) <= AT_ONCE
    assert len(won) >= 18 * AT_ONCE
    assert now_s < 120.0, "the next survey comes soon: a few seconds, not a minute"
