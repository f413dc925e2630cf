"""A run of the lease demo by steps: what it waits for, what it does to members, what it tells."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from types import SimpleNamespace

import pytest

from spillover.model.errors import InputError, RunError
from spillover.testbed.redis import RedisPlace
from spillover.testbed.watchdog import Watchdog
from spillover.tools.demo.leases import run as demo
from spillover.tools.demo.leases.checking import StreamCheck
from spillover.tools.demo.leases.members import Member, Members
from spillover.tools.demo.leases.ownership import Mark
from spillover.tools.demo.leases.plan import (
    FROZEN,
    JOINED,
    KILLED,
    RESUMED,
    Disturbance,
    LeasePlan,
)
from spillover.tools.demo.leases.watching import Look
from support.declared import read
from support.loop import turn, until
from support.shown_leases import Shown

NOBODY = "redis://127.0.0.1:1/0"


def plan(**changes):
    given = {
        "records": 100, "streams": 4, "members": 3, "max_lease_ms": 3_000.0, "seed": 5,
        "redis": None, "keep": False, "limit_s": 60.0,
    }  # fmt: skip
    return LeasePlan(**{**given, **changes})


class Shells(Members):
    """Members that are shells, and do what `scripts` says of them."""

    scripts = {}  # noqa: RUF012 - each test has its own

    def _command(self, node):
        return ["sh", "-c", self.scripts.get(node, STAYS)]


@pytest.fixture
def run(tmp_path):
    """`run(**changes)`: one with a plan that has these, before anything is started."""

    def make(**changes):
        place = RedisPlace(NOBODY, "7.2.4", is_own=False)
        made = demo._Run(plan(**changes), place, "g", tmp_path, Watchdog(), Shown())
        made._began_s = time.time()
        made._limit_s = time.monotonic() + 60.0
        return made

    return make


def member(run, node, *held, ended=None, frozen=False, joined=True):
    """One that serves these streams."""
    one = Member(node, SimpleNamespace(returncode=ended), run._members._directory / node)
    one.held, one.frozen = dict.fromkeys(held, 1), frozen
    run._members.all[node] = one
    if joined:
        run._watch.members.add(node)


def test_streams_are_shared_out_when_counts_differ_by_one_at_most(run):
    one = run()
    member(one, "m1", 0, 1)
    member(one, "m2", 2)
    assert not one._is_served()
    assert not one._is_even()
    member(one, "m3", 3)
    assert one._is_served()
    assert one._is_even()
    member(one, "m4", joined=False)
    assert one._is_served()
    assert not one._is_even(), "the fourth has not joined"
    one._watch.members.add("m4")
    assert not one._is_even(), "2, 1, 1, 0"
    member(one, "m1", 0)
    member(one, "m4", 1)
    assert one._is_even()


def test_who_stands_still_or_has_ended_serves_nothing(run):
    one = run()
    member(one, "m1", 0, 1)
    member(one, "m2", 2, 3)
    assert one._is_even()
    member(one, "m2", 2, 3, frozen=True)
    assert not one._is_served()
    member(one, "m2", 2, 3, ended=0)
    assert not one._is_served()


def test_records_come_in_when_there_are_more_than_lay_there(run):
    one = run()  # 50 lie there
    assert not one._is_fed()
    one._watch.looks.append(Look(1.0, 50, 0))
    assert not one._is_fed()
    one._watch.looks.append(Look(1.1, 51, 0))
    assert one._is_fed()
    assert run(records=4)._is_fed(), "nothing more comes"


def test_all_records_are_waited_for_until_the_limit(run):
    one = run()
    one._watch.looks.append(Look(1.0, 100, 100))
    asyncio.run(one._finish())
    one._watch.looks.append(Look(1.1, 100, 99))
    one._limit_s = time.monotonic() - 1.0
    with pytest.raises(RunError) as error:
        asyncio.run(one._finish())
    assert str(error.value) == (
        "not within the limit of 60 s: all 100 records are applied (99 of 100 records applied); "
        "see --limit-s"
    )


def test_what_takes_time_is_summed_by_its_name_also_where_it_fails(run):
    one = run()

    async def fail():
        await turn()
        raise RunError("no")

    with pytest.raises(RunError):
        asyncio.run(one._timed("fill", fail()))
    assert 0.0 <= one._phases_s["fill"] < 30.0
    one.phase("fill", 100.0)
    one.phase("fill", 1.0)
    assert one._phases_s["fill"] == pytest.approx(101.0, abs=30.0)
    assert one._phases_s["fill"] >= 101.0


def test_what_is_seen_is_shown(run):
    one = run()
    member(one, "m1", 0, 2)
    member(one, "m2", 3, frozen=True)
    one._watch.looks += [Look(1.0, 40, 10), Look(3.0, 60, 50)]
    one._looked()
    (view,) = one._display.views
    assert (view.written, view.applied, view.rate_per_s) == (60, 50, 20.0)
    assert view.members == [("m1", "running", 2), ("m2", "frozen", 1)]
    assert view.owners == ["m1", None, "m1", None]
    assert 0.0 <= view.at_s < 30.0
    member(one, "m3", 1, ended=3)
    with pytest.raises(RunError, match=r"member m3 ended by itself \(3\): it said nothing"):
        one._looked()


def lines(*told):
    return [
        {"at_s": at_s, "node": node, "event": event, "partition": partition, "epoch": epoch}
        for at_s, node, event, partition, epoch in told
    ]


def test_the_result_is_what_was_seen(run):
    one = run(streams=2)
    one._watch.lines += lines(
        (1.0, "m1", "acquired", 0, 1), (1.0, "m2", "acquired", 1, 1), (8.0, "m2", "acquired", 0, 2)
    )
    one._watch.applied[0] += [(2.0, 10), (9.0, 40)]
    one._watch.applied[1] += [(3.0, 50), (7.0, 60)]
    for node, held in (("m1", ()), ("m2", (0, 1)), ("m3", ())):
        member(one, node, *held)
    one._members.all["m2"].late_renewals, one._members.all["m2"].fenced = 3, 2
    one._marks += [
        Mark(5.0, KILLED, "m1"), Mark(5.5, FROZEN, "m3"), Mark(6.0, RESUMED, "m3"),
        Mark(10.0, "ended", ""),
    ]  # fmt: skip
    one._began_s, one._settled_s = 0.5, 1.5
    checks = [StreamCheck(p, 50, 1225, 50, 1225, 50, 0, 0, 0, 3) for p in range(2)]
    found = one._result(checks)
    assert (found.began_s, found.settled_s, found.ended_s, found.applied_s) == (0.5, 1.5, 10.0, 9.0)
    assert [mark.kind for mark in found.marks] == [KILLED, FROZEN, RESUMED]
    assert (found.group, found.redis_version, found.checks) == ("g", "7.2.4", checks)
    (standstill,) = found.story.standstills
    assert (standstill.length_s, standstill.applied_gap_s) == (3.0, 7.0)
    told = [
        (m.node, m.fate, m.acquired, m.held_max, m.late_renewals, m.fenced) for m in found.members
    ]
    assert told == [
        ("m1", KILLED, 1, 1, 0, 0), ("m2", "stayed", 2, 2, 3, 2), ("m3", FROZEN, 0, 0, 0, 0),
    ]  # fmt: skip


def test_a_redis_that_cannot_read_on_from_an_id_is_refused():
    for version in ("6.2.14", "7.0.0", "8.2", "10.1", "unknown"):
        demo._check_version(RedisPlace(NOBODY, version, is_own=False))
    with pytest.raises(InputError, match=r"expected Redis 6.2 or later, got 6.0.16: it cannot"):
        demo._check_version(RedisPlace(NOBODY, "6.0.16", is_own=False))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_it_is_ended_as_by_ctrl_c(number):
    """And has time to put things away."""
    told = []

    async def main():
        os.kill(os.getpid(), number)
        try:
            await asyncio.Event().wait()
        finally:
            told.append("put away")

    with pytest.raises(KeyboardInterrupt):
        demo._interruptibly(main())
    assert told == ["put away"]


def test_tasks_are_ended_that_overhear_a_cancellation(monkeypatch):
    """What came after the first problem is told to nobody."""
    monkeypatch.setattr(demo, "CANCEL_AGAIN_S", 0.01)
    heard = []

    async def deaf():
        for _ in range(2):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                heard.append("cancelled")
        raise RunError("late")

    async def main():
        tasks = {asyncio.create_task(deaf()), asyncio.create_task(asyncio.Event().wait())}
        await turn()
        await demo._end(tasks)
        assert all(task.done() for task in tasks)

    asyncio.run(asyncio.wait_for(main(), 20.0))
    assert heard == ["cancelled", "cancelled"]


# --- members, as shells ---------------------------------------------------------------------------


SAYS = """
echo '{"at_s": 1.0, "node": "m1", "event": "acquired", "partition": 2, "epoch": 4}'
echo 'cut {'
echo '[1]'
echo '{"event": "without an instant"}'
echo '{"at_s": 1.5, "node": "m1", "event": "renewed_late"}'
echo '{"at_s": 2.0, "node": "m1", "event": "acquired", "partition": 3, "epoch": 1}'
echo '{"at_s": 2.5, "node": "m1", "event": "fenced", "partition": 2, "epoch": 3}'
echo '{"at_s": 2.6, "node": "m1", "event": "released", "partition": 3, "epoch": 1}'
exec sleep 60
"""
STAYS = "exec sleep 60"
LEAVES = "trap 'exit 0' TERM; echo ready >&2; sleep 60 >&2 & wait"
DEAF = "trap '' TERM; echo ready >&2; sleep 60 >&2"


@pytest.fixture
def shells(tmp_path):
    """`shells(story, m1=script, ...)` runs the story with such members, started in their order."""

    def play(story, run=None, **scripts):
        told = []

        async def main(watchdog):
            members = Shells(plan(), NOBODY, "g", tmp_path, watchdog, told.append)
            members.scripts = scripts
            if run is not None:
                run._members = members
            try:
                for node in scripts:
                    await members.start(node)
                await asyncio.wait_for(story(members, told), 20.0)
            finally:
                await members.end()
            assert all(not one.is_alive for one in members.all.values())

        with Watchdog() as watchdog:
            asyncio.run(main(watchdog))

    return play


@pytest.mark.processes
def test_lines_of_members_are_kept_and_counted(shells):
    """Not what is cut off; late news of an earlier epoch ends nothing of the next."""

    async def story(members, told):
        await until(lambda: len(told) == 5)
        one = members.all["m1"]
        assert [line["event"] for line in told] == [
            "acquired", "renewed_late", "acquired", "fenced", "released",
        ]  # fmt: skip
        assert (one.held, one.fenced, one.late_renewals, one.state) == ({2: 4}, 1, 1, "running")
        one.heard(lines((3.0, "m1", "lost", 2, 4))[0])
        assert (one.held, one.fenced) == ({}, 2)

    shells(story, m1=SAYS)


@pytest.mark.processes
def test_members_are_frozen_resumed_killed_and_leave(shells):
    """Who is frozen is let alone by an orderly end; nothing is left of anybody."""

    async def story(members, told):
        one, two, three = members.all.values()
        for each in (one, two):
            each.held[0] = 1
        before_s = time.time()
        assert before_s <= members.freeze("m1") <= time.time()
        assert (one.state, one.held, one.is_alive) == ("frozen", {}, True)
        assert members.running == [two, three]
        assert members.resume("m1") >= before_s
        assert one.state == "running"
        assert members.running == [one, two, three]
        assert members.kill("m2") >= before_s
        assert (two.state, two.held) == ("killed", {})
        await two.process.wait()
        members.check()
        members.freeze("m1")
        await until(lambda: "ready" in three.log.read_text())
        await members.drain(10.0)
        assert three.process.returncode == 0
        assert three.state == "ended"
        assert one.is_alive

    shells(story, m1=STAYS, m2=STAYS, m3=LEAVES)


@pytest.mark.processes
def test_members_that_do_not_leave_in_good_order_are_told(shells):
    async def story(members, told):
        one = members.all["m1"]
        await until(lambda: "ready" in one.log.read_text())
        with pytest.raises(RunError, match=r"1 members were not gone 0.05 s after SIGTERM"):
            await members.drain(0.05)
        one.process.kill()
        await one.process.wait()
        with pytest.raises(RunError, match="member m1 ended with status -9: ready"):
            members.check_statuses([one])

    shells(story, m1=DEAF)


@pytest.mark.processes
def test_what_is_done_to_members_is_marked_and_told(shells, run):
    """A kill is over once others serve what the victim had; so is a freeze, and then it goes on."""
    one = run()

    async def story(members, told):
        one._watch.members |= {"m1", "m2", "m3"}
        member_of = members.all
        member_of["m2"].held.update({0: 1, 1: 1, 2: 1, 3: 1})
        await one._do(Disturbance(0.0, KILLED, "m1"))
        assert (member_of["m1"].state, one._ghosts["m1"]._held) == ("killed", {})
        member_of["m3"].held.update({0: 1, 1: 1})
        for number in (0, 1):
            del member_of["m2"].held[number]
        await one._do(Disturbance(0.0, JOINED, "m4"))
        one._watch.members.add("m4")
        member_of["m4"].held.update({0: 2, 1: 2})
        member_of["m3"].held.clear()
        await one._do(Disturbance(0.0, FROZEN, "m3"))
        assert member_of["m3"].state == "frozen"
        resuming = asyncio.create_task(one._do(Disturbance(0.0, RESUMED, "m3")))
        await until(lambda: member_of["m3"].state == "running")
        assert not resuming.done(), "it has nothing again yet"
        member_of["m3"].held[3] = 2
        del member_of["m2"].held[3]
        await resuming

    shells(story, run=one, m1=STAYS, m2=STAYS, m3=STAYS)
    assert [(mark.kind, mark.node) for mark in one._marks] == [
        (KILLED, "m1"), (JOINED, "m4"), (FROZEN, "m3"), (RESUMED, "m3"),
    ]  # fmt: skip
    assert [mark.at_s for mark in one._marks] == sorted(mark.at_s for mark in one._marks)
    assert one._display.told == [
        "m1 killed", "others serve what m1 had", "m4 joined", "m3 frozen",
        "others serve what m3 had", "m3 resumed", "m3 has its share again",
    ]  # fmt: skip


def test_members_are_started_as_the_plan_says(tmp_path):
    """By a command that exists, with its options."""
    members = Members(plan(), NOBODY, "g-1", tmp_path, Watchdog(), lambda _: None)
    command = members._command("m2")
    assert command[1:3] == ["-m", "spillover"]
    options = read(command[3:])
    assert (options["group"], options["node"], options["partitions"]) == ("g-1", "m2", 4)
    assert (options["seed"], options["handler"]) == (
        5, "python:spillover.live.leases.streams.example:consume",
    )  # fmt: skip
    times = {name: options[name] for name in options if name.endswith("_ms")}
    assert times["max_lease_ms"] == 3_000.0
    assert (times["normal_lease_ms"], times["max_shutdown_ms"]) == (1_000.0, 1_000.0)
    assert (times["min_grab_ms"], times["held_delay_ms"]) == (500.0, 20.0)
