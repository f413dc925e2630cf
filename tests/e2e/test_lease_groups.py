"""Whole groups: forty members that start at once, all of a group restarted one after the other,
wall clocks that are off, and ids that are taken.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import time
import urllib.request

import pytest

from spillover.model.lease_times import LeaseTimes
from support.leases import members as lease_members
from support.leases import reckoning as lease_reckoning
from support.waiting import slack

now_s = lease_members.now_s

HOUR_S = 3600.0

CROWD, CROWD_PROCESSES = 40, 4
CROWD_TIMES = LeaseTimes(
    normal_lease_ms=3000,
    max_lease_ms=12_000,
    max_shutdown_ms=2000,
    min_grab_ms=500,
    held_delay_ms=5,
)


@pytest.fixture
def group(redis_server, tmp_path):
    """`group(name, ...)`: to be entered."""

    def make(name, **settings):
        return lease_members.Group(directory=tmp_path / name, url=redis_server.url, **settings)

    return make


async def restarted(group):
    """One after the other, by SIGTERM: no partition ever stands still for longer than a handler
    may take to stop, and nothing is lost."""
    nodes = "abcd"
    async with lease_reckoning.judged(group("restarted", partitions=10), *nodes) as members:
        from_s, stills = now_s(), []
        for node in nodes:
            began_s = now_s()
            members.terminate(node)
            assert await members.ended(node) == 0
            assert not members.held(node)
            members.spawn(node)
            await members.until_even()
            await members.until_served(since_s=now_s())
            stills.append(lease_reckoning.longest_change_s(members, began_s))
        told = [line for one in [*members.former] for line in one.told("lost", "fenced")]
        assert not told
        longest = ", ".join(f"{still_s:.2f}" for still_s in stills)
        print(f"  restarted in {now_s() - from_s:.1f} s; stood still for at most {longest} s")  # noqa: T201
        limit_s = members.times.max_shutdown_ms / 1000.0 + members.pace_s
        assert 0.0 < max(stills) <= limit_s * slack()


async def off_by_hours(group):
    """Wall clocks an hour fast and slow, then the other way round while they run: nothing is
    different. Epochs are of the clock of Redis, and whoever dies is replaced in time."""
    async with group("clocks", partitions=6) as members:
        before_ms = time.time() * 1000.0
        members.spawn("fast", clock_s=HOUR_S)
        members.spawn("slow", clock_s=-HOUR_S)
        members.spawn("right")
        await members.until_even()
        off_s = {
            n: members.members[n].lines[-1].given["at_s"] - time.time() for n in members.living
        }
        assert off_s["fast"] > HOUR_S - 60.0
        assert off_s["slow"] < 60.0 - HOUR_S
        held = {node: members.held(node) for node in members.members}
        members.set_clock("fast", -HOUR_S)
        members.set_clock("slow", HOUR_S)
        jumped_s = now_s()
        await asyncio.sleep(1.5 * members.times.max_lease_ms / 1000.0)
        await members.until_served(since_s=now_s())
        assert {node: members.held(node) for node in members.members} == held
        assert not any(
            one.told("fenced", "lost", since_s=jumped_s) for one in members.members.values()
        )
        killed_s = members.kill("fast")
        took_s = await members.until_served(held["fast"], since_s=killed_s)
        assert took_s <= lease_reckoning.taken_over_s(members.times)
        after_ms = time.time() * 1000.0
        epochs = [epoch for node in members.living for epoch in members.held(node).values()]
        assert all(before_ms - 1.0 <= epoch <= after_ms + 1.0 for epoch in epochs)
        await members.until_even()
        statuses = await asyncio.to_thread(members.close)
    assert (statuses["slow"], statuses["right"]) == (0, 0)
    # Under libfaketime time.sleep fails, with which subprocess waits for what it has ended.
    wrongs = [w for w in lease_reckoning.wrongs_of(members) if "time.sleep(delay)" not in w]
    assert not wrongs, wrongs[:10]


async def taken_id(group):
    """A second process of the same id waits where one can see it, and gives up with status 2 if
    the first still renews after a maximum lease, which notices nothing."""
    scene = group("taken", partitions=2, options=lease_members.SERVING)
    async with lease_reckoning.judged(scene, "a") as members:
        first, held = members.members["a"], members.held("a")
        began_s = now_s()
        (second,) = members.spawn("a")
        await members.until(lambda: second.url, 60.0, "service of the second")
        await members.until(lambda: "waiting" in state_of(second)["state"], 30.0, "a visible state")
        assert await members.ended("a") == 2
        assert now_s() - began_s >= members.times.max_lease_ms / 1000.0
        assert "another member with the id a is alive" in second.log.read_text()
        assert not second.told("acquired")
        await members.until_served(since_s=now_s())
        assert first.held == held
        assert not first.told("lost", "fenced", "releasing")
        members.members["a"] = first
        members.former = [second]


async def dead_id(group):
    """A second process of the same id takes over as soon as the first counts as dead."""
    async with lease_reckoning.judged(group("dead", partitions=2), "a") as members:
        killed_s = members.kill("a")
        members.spawn("a")
        took_s = await members.until_served(since_s=killed_s)
        print(f"  an id of one that died works again after {took_s:.2f} s")  # noqa: T201
        assert took_s <= lease_reckoning.taken_over_s(members.times)


def state_of(member):
    with urllib.request.urlopen(f"{member.url}/state", timeout=5) as answer:  # noqa: S310 - loopback
        return json.loads(answer.read())


def test_restarts_clocks_and_ids(group, require):
    """Each in a group of its own, all at once."""
    require(shutil.which("faketime"), "faketime (Debian: apt-get install faketime)")
    lease_reckoning.all_at_once(
        restarted(group), off_by_hours(group), taken_id(group), dead_id(group)
    )


def test_forty_members_at_once(group):
    """They join at one instant, ten from each process, serve everything, evenly, and all go."""
    partitions = CROWD + CROWD // 2

    async def main():
        members = group("crowd", partitions=partitions, times=CROWD_TIMES, pace_s=1.0)
        async with members:
            for first in range(0, CROWD, CROWD // CROWD_PROCESSES):
                nodes = range(first, first + CROWD // CROWD_PROCESSES)
                members.spawn_crowd(*(f"n{number}" for number in nodes))
            await members.let_in(CROWD_PROCESSES)
            even_s = await members.until_even(60.0)
            await members.until_served(since_s=now_s(), limit_s=60.0)
            moves = sum(len(one.told("acquired")) for one in members.members.values()) - partitions
            print(f"  all are even after {even_s:.1f} s, with {moves} moves")  # noqa: T201
            ending_s = now_s()
            statuses = await asyncio.to_thread(members.close, 30.0)
            print(f"  they end within {now_s() - ending_s:.1f} s")  # noqa: T201
        assert set(statuses.values()) == {0}
        wrongs = lease_reckoning.wrongs_of(members)
        assert not wrongs, wrongs[:10]

    asyncio.run(main())
