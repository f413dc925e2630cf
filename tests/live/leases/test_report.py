"""What onlookers are told of a whole group: read once for all who ask, kept while Redis is away;
and why a member can serve nothing."""

import asyncio
from dataclasses import replace

import pytest

from spillover.core.leases import events as ev
from spillover.core.leases.machine import Phase
from spillover.core.leases.records import Allocation, Grab, Registration, Snapshot
from spillover.live.leases import report as report_module
from spillover.live.leases.completion import FailedMachine
from spillover.live.leases.group import LeaseGroup
from spillover.live.leases.renewal.clock import lease_now_s
from spillover.live.leases.report import (
    AllocationRow,
    GrabRow,
    GroupReport,
    GroupState,
    MemberRow,
    stored_of,
)
from spillover.model.lease_times import LeaseTimes
from support.loop import until
from support.scripted_redis import bulk, rows, scripted_redis

NOWHERE = "redis://127.0.0.1:1/0"
LIMIT_S = 20.0


def member_of(url=NOWHERE, group="g", **given):
    return LeaseGroup(url, group, node="n1", partitions=3, handler=lambda *_: None, **given)


def runs(main):
    async def limited():
        async with asyncio.timeout(LIMIT_S):
            await main()

    asyncio.run(limited())


@pytest.fixture
def patient(monkeypatch):
    """Onlookers wait as long for Redis as a busy machine takes, and share for a minute."""
    monkeypatch.setattr(report_module, "TIMEOUT_S", LIMIT_S)
    monkeypatch.setattr(report_module, "SHARED_S", 60.0)


# --- what Redis has ---------------------------------------------------------------------------


def test_a_row_says_what_is_left_at_the_instant_of_the_look():
    """A holder that stops has until the earlier of both; what has just ended is over."""
    held = {
        0: Allocation("n1", 7, 100, 1_500, 1_001),
        1: Allocation("n1", 8, 200, 1_250, 9_000),
        2: Allocation("n2", 9, 300, 1_000),
        3: Allocation("n2", 10, 400, 0, 1),
        4: Allocation("n2", 11, 500, 1_001),
    }
    shown = stored_of(Snapshot(1_000, "era", held, {}, {"n2": Registration(1_001, "i")}))
    assert shown.allocation == [
        AllocationRow(0, "n1", 7, 100, 1, stopping=True),
        AllocationRow(1, "n1", 8, 200, 250, stopping=True),
        AllocationRow(2, "n2", 9, 300, 0.0, stopping=False),
        AllocationRow(3, "n2", 10, 400, 0.0, stopping=False),
        AllocationRow(4, "n2", 11, 500, 1, stopping=False),
    ]
    assert shown.members == [MemberRow("n2", 1, 1)]
    assert stored_of(Snapshot(1_000, "era", {}, {0: Grab("n1", 1, 1_001)}, {})) == GroupState(
        1_000, grabs=[GrabRow(0, "n1", 1, 1)]
    )


async def test_what_the_blogs_rule_leaves_in_redis_is_shown(redis_server, redis_servers, patient):
    """Names alone: a member is whoever serves something."""
    group = redis_servers.new_name()
    client, tag = redis_server.client, f"{{spillover:{group}}}"
    client.hset(f"{tag}:allocation", mapping={"2": "n3", "0": "n2", "1": "n3"})
    client.hset(f"{tag}:grab", mapping={"2": "n1", "1": "n2"})

    report = GroupReport(member_of(redis_server.url, group, rule="blog"))
    seen = await report.look()
    assert seen.stored == GroupState(
        None,
        [MemberRow("n2", None, 1), MemberRow("n3", None, 2)],
        [
            AllocationRow(0, "n2", 0, None, None, stopping=False),
            AllocationRow(1, "n3", 0, None, None, stopping=False),
            AllocationRow(2, "n3", 0, None, None, stopping=False),
        ],
        [GrabRow(1, "n2", None, None), GrabRow(2, "n1", None, None)],
    )
    assert (seen.problem, 0.0 <= seen.as_of_s < LIMIT_S) == (None, True)
    clients = client.info("clients")["connected_clients"]
    await report.close()
    await until(lambda: client.info("clients")["connected_clients"] < clients)


def survey(now_ms):
    """As survey.lua answers: one partition, one member."""
    held, members = "0\nn1|7|0|9000|0", "n1\n5000|i"
    return rows(bulk(str(now_ms)), bulk("era"), bulk(held), bulk(""), bulk(members))


def shown(now_ms):
    row = AllocationRow(0, "n1", 7, 0, 9_000 - now_ms, stopping=False)
    return GroupState(now_ms, [MemberRow("n1", 5_000 - now_ms, 1)], [row])


@pytest.mark.usefixtures("patient")
async def test_all_who_look_within_the_same_moment_share_one_look():
    answers = iter([survey(1_000), survey(2_000)])

    with scripted_redis(lambda _: next(answers)) as server:
        report = GroupReport(member_of(server.url))
        seen = await asyncio.gather(*(report.look() for _ in range(5)))
        seen.append(await report.look())
        assert [one.stored for one in seen] == [shown(1_000)] * 6
        assert len(server.asked) == 1
        report._tried_s -= 60.0
        assert (await report.look()).stored == shown(2_000)
        assert len(server.asked) == 2
        await report.close()
        await until(lambda: server.open == 0)


@pytest.mark.usefixtures("patient")
async def test_what_was_seen_last_is_shown_with_its_age_and_what_is_the_matter():
    """A failed look is a look: others do not try again at once."""
    answers = iter([survey(1_000), b"-ERR out of order\r\n", survey(3_000)])

    with scripted_redis(lambda _: next(answers)) as server:
        report = GroupReport(member_of(server.url))
        assert (await report.look()).problem is None
        report._read_s -= 100.0
        report._tried_s -= 100.0
        for _ in range(2):
            seen = await report.look()
            assert seen.stored == shown(1_000)
            assert 100.0 <= seen.as_of_s < 100.0 + LIMIT_S
            assert seen.problem.endswith("refused: out of order")
        report._tried_s -= 100.0
        seen = await report.look()
        assert (seen.stored, seen.problem) == (shown(3_000), None)
        assert seen.as_of_s < LIMIT_S
        report.member.machine.handle(ev.RenewalFailed("away for renewals", 1.0), 1.0)
        assert (await report.look()).problem == "away for renewals"
        await report.close()


@pytest.mark.usefixtures("patient")
async def test_a_look_that_is_on_its_way_ends_with_whoever_looks():
    """Nobody waits for it at the end; who gives up looking spoils it for nobody."""
    with scripted_redis(lambda _: None) as server:
        report = GroupReport(member_of(server.url))
        first, second = (asyncio.create_task(report.look()) for _ in range(2))
        await until(lambda: server.asked)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert not report._reading.cancelled()
        await report.close()
        with pytest.raises(asyncio.CancelledError):
            await second
        await until(lambda: server.open == 0)


# --- whether it is ready ----------------------------------------------------------------------


def not_ready(member):
    answers = []

    async def main():
        report = GroupReport(member)
        answers.append(report.not_ready())
        await report.close()

    runs(main)
    return answers[0]


@pytest.mark.parametrize(
    ("state", "problem", "expected"),
    [
        (Phase.MEMBER, None, None),
        (Phase.MEMBER, "away", None),
        (Phase.WAITING, "away", ("id_taken", "member n1 waits for another one of its id")),
        (Phase.JOINING, "away", ("joining", "member n1 is joining: away")),
        (Phase.NEW, None, ("joining", "member n1 is joining: it has not been let in yet")),
        (Phase.LEAVING, None, ("draining", "member n1 is handing over")),
        (Phase.FINISHED, None, ("not_ready", "member n1 has left the group; its log says why")),
    ],
)
def test_a_member_is_ready_as_long_as_it_is_one(state, problem, expected):
    member = member_of()
    if problem is not None:
        member.machine.handle(ev.RenewalFailed(problem, 1.0), 1.0)
    member.machine.state = state
    assert not_ready(member) == expected


def test_a_member_that_was_told_to_leave_has_left_for_nobodys_fault():
    member = member_of()
    member.drain_soon()
    member.machine.state = Phase.FINISHED
    assert not_ready(member) == ("draining", "member n1 is handing over")


def test_a_member_that_failed_says_so_and_holds_nothing():
    member = member_of()
    failed = FailedMachine("LookupError: a bug")
    member._parts = replace(member._parts, machine=failed, held=lambda: {0: 7})
    assert not_ready(member) == ("not_ready", "member n1 has failed: LookupError: a bug")
    assert (member.held, member.state, member.draining) == ({}, "finished", True)


@pytest.mark.parametrize(("away_s", "is_ready"), [(0.0, True), (90.0, True), (400.0, False)])
def test_without_redis_for_longer_than_leases_last_nothing_is_served(away_s, is_ready):
    """Of 180 s: up to then it holds what it has."""
    member = member_of(times=LeaseTimes(max_lease_ms=200_000.0))
    member.machine.state = Phase.MEMBER
    member.events.happened(ev.Tell(ev.REDIS_DOWN), "no way")
    member.events.down_since_s = lease_now_s() - away_s
    if is_ready:
        assert not_ready(member) is None
        return
    reason, said = not_ready(member)
    assert reason == "redis_down"
    assert said.startswith("for 40")
    assert said.endswith(" s, longer than leases last: Redis is away")
    member.machine.handle(ev.RenewalFailed("no way", 1.0), 1.0)
    assert not_ready(member)[1].endswith("longer than leases last: no way")
    member.events.happened(ev.Tell(ev.REDIS_UP), None)
    assert not_ready(member) is None


def test_since_when_redis_is_away_is_known_from_the_machine():
    lines = []
    member = member_of(on_event=lines.append)
    assert member.events.down_since_s is None
    before_s = lease_now_s()
    member.events.happened(ev.Tell(ev.REDIS_DOWN), "no way")
    assert before_s <= member.events.down_since_s <= lease_now_s()
    member.events.happened(ev.Tell(ev.ACQUIRED, 2, 7), "no way")
    assert member.events.down_since_s is not None
    member.events.happened(ev.Tell(ev.REDIS_UP), None)
    assert member.events.down_since_s is None
    told = [
        (line["event"], line["partition"], line["epoch"], line.get("problem")) for line in lines
    ]
    assert told == [
        (ev.REDIS_DOWN, None, None, "no way"),
        (ev.ACQUIRED, 2, 7, None),
        (ev.REDIS_UP, None, None, None),
    ]
    assert all(round(line["at_s"], 3) == line["at_s"] for line in lines)


def test_on_event_that_raises_harms_nothing_and_is_told(caplog):
    def raises(_):
        raise ValueError("full disk")

    member = member_of(on_event=raises)
    for _ in range(3):
        member.events.happened(ev.Tell(ev.ACQUIRED, 2, 7), None)
    assert caplog.messages == ['on_event raised event=acquired reason="ValueError: full disk"']
