"""Handlers that are busy and handlers that hang, each in a group of its own, all at once: the busy
ones keep their leases, however long they keep everything else waiting; the others lose theirs.
"""

from __future__ import annotations

import asyncio

import pytest

from support.leases import members as lease_members
from support.leases import reckoning as lease_reckoning

pytestmark = pytest.mark.threes

LEASE_S = lease_members.TIMES.max_lease_ms / 1000.0
BUSY_S = 3.0 * LEASE_S
PROGRESS_S = 0.8
LIMIT = ("--max-progress-ms", f"{PROGRESS_S * 1000:g}")


@pytest.fixture
def pair(redis_server, tmp_path):
    """Groups of two members, a and b, with two partitions each."""

    def pair_of(name, **settings):
        settings = {"partitions": 4} | settings
        group = lease_members.Group(directory=tmp_path / name, url=redis_server.url, **settings)
        return lease_reckoning.judged(group, "a", "b")

    return pair_of


def busy_times(group, partition):
    """From when to when its handler was busy, by its own notes."""
    notes = [note for note in group.read() if note.partition == partition]
    return [note.at_s for note in notes if note.what in {"busy", "free"}]


async def busy(pair, handler, what, **settings):
    """For three leases, and all other handlers of that member with it, where it lets no other run.
    None of them loses anything."""
    async with pair(f"{what}-{handler}", handler=handler, **settings) as group:
        before = group.held("a")
        partition = min(before)
        at_s = lease_members.now_s()
        group.order("a", partition, what, for_s=BUSY_S)
        await group.until(lambda: len(busy_times(group, partition)) == 2, 10 * BUSY_S, "its end")
        from_s, to_s = busy_times(group, partition)
        assert to_s - from_s >= 2.5 * LEASE_S
        await group.until_served_by("a", before, since_s=to_s)
        await asyncio.sleep(LEASE_S)
        assert group.held("a") == before
        assert not group.members["a"].told("lost", "fenced", "releasing", since_s=at_s)
        others = group.standstill_s(max(before), from_s, to_s)
        print(f"  {what} in {handler}: {to_s - from_s:.1f} s; another one waited {others:.1f} s")  # noqa: T201


async def hung(pair):
    """It had told of progress, then is silent: it loses its partition, and its neighbor on the
    same member does not. When it goes on, it is refused."""
    async with pair("hung", progress=True, options=LIMIT) as group:
        before = group.held("a")
        partition, other = min(before), max(before)
        group.order("a", partition, "hang")
        await group.until(lambda: busy_times(group, partition), 10.0, "begin")
        (from_s,) = busy_times(group, partition)
        took_s = await group.until_served([partition], since_s=from_s)
        print(f"  hung: its partition runs elsewhere after {took_s:.2f} s")  # noqa: T201
        assert took_s <= PROGRESS_S + lease_reckoning.taken_over_s(group.times)
        assert other not in {line.partition for line in group.members["a"].told("lost", "fenced")}
        assert group.standstill_s(other, from_s, from_s + took_s) < LEASE_S
        let_go_s = lease_members.now_s()
        group.let_go()
        ended = [(partition, before[partition])]
        await group.until(
            lambda: ended[0] in {(n.partition, n.epoch) for n in group.read() if n.what == "end"},
            10.0, "its end",
        )  # fmt: skip
    notes = lease_reckoning.refusals(group, "a", let_go_s, {partition: before[partition]})
    assert [note.what for note in notes[partition]] == ["free", "refused", "end"]


def test_busy_handlers_keep_what_hung_ones_lose(pair):
    """A blocked event loop, an interpreter held by one long call, and one that is just silent."""
    lease_reckoning.all_at_once(
        busy(pair, "work_async", "sleep"),
        busy(pair, "work", "hold", progress=True, options=LIMIT),
        hung(pair),
    )
