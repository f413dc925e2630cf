"""Members that die and freeze, whole or in part, each fault in a group of its own, all at once.

What must hold whatever happens is in `support.leases.reckoning`; here is how soon partitions run
again, and that who comes back too late is told so by the first thing it asks.
"""

import asyncio
import os
import signal
from dataclasses import replace

import pytest

from support.leases import members as lease_members
from support.leases import reckoning as lease_reckoning
from support.waiting import slack

LEASE_S = lease_members.TIMES.max_lease_ms / 1000.0
PERIOD_S = lease_members.TIMES.normal_lease_ms / 1000.0

KEPT = replace(
    lease_members.TIMES, max_lease_ms=lease_members.TIMES.max_lease_ms * 2.0 * min(2.0, slack())
)
"""Where nothing may be lost, though renewals are late, on a busy machine, too."""
KEPT_S = KEPT.max_lease_ms / 1000.0


@pytest.fixture
def pair(redis_server, tmp_path):
    """Groups of two members, a and b, with three partitions each."""

    def pair_of(name, **settings):
        settings = {"partitions": 6} | settings
        group = lease_members.Group(directory=tmp_path / name, url=redis_server.url, **settings)
        return lease_reckoning.judged(group, "a", "b")

    return pair_of


def kept_all(group, node, before, since_s):
    """Nothing of it was lost or moved."""
    assert group.held(node) == before
    assert not group.members[node].told("lost", "fenced", "releasing", since_s=since_s)


async def killed(pair):
    async with pair("killed") as group:
        lost = group.held("a")
        at_s = group.kill("a")
        took_s = await group.until_served(lost, since_s=at_s)
        print(f"  killed: its partitions run again after {took_s:.2f} s")  # noqa: T201 - for -s
        assert took_s <= lease_reckoning.taken_over_s(group.times)


async def frozen_briefly(pair):
    """For half a lease: it goes on as if nothing had been."""
    async with pair("frozen-briefly", times=KEPT) as group:
        before = group.held("a")
        at_s = group.freeze("a")
        await asyncio.sleep(0.5 * KEPT_S)
        thawed_s = group.thaw("a")
        await group.until_served_by("a", before, since_s=thawed_s)
        await asyncio.sleep(2.0 * PERIOD_S)
        kept_all(group, "a", before, at_s)


async def frozen(pair, leases, *parts, handler):
    """Its partitions run elsewhere; when it comes back, it is told at once that they are lost."""
    name = f"frozen-{leases}-{handler}"
    async with pair(name, handler=handler) as group:
        before, member = group.held("a"), group.members["a"]
        at_s = group.freeze("a", *parts)
        took_s = await group.until_served(before, since_s=at_s)
        print(f"  {name}: its partitions run elsewhere after {took_s:.2f} s")  # noqa: T201
        assert took_s <= lease_reckoning.taken_over_s(group.times)
        await asyncio.sleep(max(0.0, at_s + leases * LEASE_S - lease_members.now_s()))
        thawed_s = group.thaw("a")

        def is_told():
            return {line.partition for line in member.told("fenced", "lost", since_s=thawed_s)}

        await group.until(lambda: is_told() >= before.keys(), 10.0, "end of what it held")
        await group.until_even()
        await group.until_served(since_s=lease_members.now_s())
    first = lease_reckoning.refusals(group, "a", thawed_s, before)
    assert all(notes and notes[0].what != "act" for notes in first.values()), first
    refused = [note for notes in first.values() for note in notes if note.what == "refused"]
    assert refused or handler == "work_async", first  # where a coroutine is cancelled at once


async def stopped_in_between(pair, handler):
    """After its lease let it, and before the sink heard of it: only the sink can refuse that."""
    async with pair(f"in-between-{handler}", handler=handler) as group:
        before, pid = group.held("a"), group.members["a"].process.pid
        partition = min(before)
        group.order_stop("a", partition)
        await group.until(lambda: lease_members.is_stopped(pid), 10.0, "a stop")
        at_s = group.freeze("a")
        await group.until_served(before, since_s=at_s)
        group.thaw("a")
        await group.until(lambda: of_its(group, "refused"), 10.0, "a refusal")
    assert [note.by for note in of_its(group, "refused") if note.partition == partition] == ["sink"]


def of_its(group, what):
    """Notes of node a."""
    return [note for note in group.read() if note.node == "a" and note.what == what]


async def renewer_frozen(pair):
    """Only the process that renews: it is replaced before a lease is over."""
    async with pair("renewer-frozen", times=KEPT) as group:
        before, pid = group.held("a"), group.renewer("a")
        at_s = group.freeze("a", lease_members.RENEWER)
        await group.until(lambda: group.renewer("a") not in {None, pid}, KEPT_S, "another renewer")
        await asyncio.sleep(1.5 * KEPT_S)
        kept_all(group, "a", before, at_s)
        group.thaw("a")


async def renewer_killed(pair):
    """Again and again."""
    async with pair("renewer-killed", times=KEPT) as group:
        before, at_s = group.held("a"), lease_members.now_s()
        for _ in range(3):
            os.kill(group.renewer("a"), signal.SIGKILL)
            await asyncio.sleep(0.5 * KEPT_S)
        kept_all(group, "a", before, at_s)


def test_processes_that_die_and_freeze(pair):
    """Killed; frozen for half a lease, one and a half, and five; only their renewals."""
    both = (lease_members.MEMBER, lease_members.RENEWER)
    lease_reckoning.all_at_once(
        killed(pair),
        frozen_briefly(pair),
        frozen(pair, 1.5, handler="work"),
        frozen(pair, 5.0, *both, handler="work_async"),
        stopped_in_between(pair, "work"),
        renewer_frozen(pair),
        renewer_killed(pair),
    )
