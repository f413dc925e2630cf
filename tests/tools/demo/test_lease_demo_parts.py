"""What the lease demo has to do with Redis: filling streams, watching them, and late writes."""

from __future__ import annotations

import asyncio
import multiprocessing
import os

import pytest

from spillover.live.leases.redis_values import GroupKeys
from spillover.live.leases.streams import example
from spillover.live.leases.streams.keys import StreamKeys
from spillover.live.leases.streams.reader import StreamReader
from spillover.live.leases.streams.writer import StreamWriter
from spillover.model.errors import RunError, StoreUnreachable
from spillover.tools.demo.leases import filling
from spillover.tools.demo.leases.filling import Portion, writer_count
from spillover.tools.demo.leases.late_writes import Ghost, LateWrites
from spillover.tools.demo.leases.watching import Look, Watch

STREAMS = 3


@pytest.fixture
def group(redis_servers):
    pytest.importorskip("redis")
    return redis_servers.new_name()


def wrote(portion):
    """What is told while a portion is written, by what its process does."""
    ours, theirs = multiprocessing.Pipe()
    ours.send(None)
    filling._run(portion, theirs)
    theirs.close()
    told = []
    while ours.poll(5.0):
        try:
            told.append(ours.recv())
        except EOFError:
            break
    ours.close()
    return told


def values(client, group):
    keys = StreamKeys.of(group)
    return {
        stream: [
            int(fields.get("value", fields.get(b"value")))
            for _, fields in client.xrange(keys.stream(stream))
        ]
        for stream in range(STREAMS)
    }


def test_streams_hold_the_numbers_one_after_the_other(redis_server, group):
    """11 records at once by two writers, then 6 over a while."""
    url = redis_server.url
    first = wrote(Portion(url, group, STREAMS, 0, 11, 0, 2))
    assert first[-2:] == [7, None], "streams 0 and 2"
    assert wrote(Portion(url, group, STREAMS, 0, 11, 1, 2))[-2:] == [4, None]
    fed = wrote(Portion(url, group, STREAMS, 11, 17, over_s=0.15))
    assert fed[-2:] == [6, None]
    counts = fed[:-1]
    assert counts == sorted(counts)
    assert len(set(counts)) > 1, "not all at once"
    assert values(redis_server.client, group) == {
        0: [0, 1, 2, 3, 4, 5], 1: [0, 1, 2, 3, 4, 5], 2: [0, 1, 2, 3, 4],
    }  # fmt: skip


def test_what_is_told_to_be_written_is_there(redis_server, group):
    """So that records come in evenly, and not a thousand at once."""
    keys, seen = StreamKeys.of(group), []

    class Looking:
        def recv(self):
            return None

        def send(self, told):
            lengths = (redis_server.client.xlen(keys.stream(stream)) for stream in range(STREAMS))
            seen.append((told, sum(lengths)))

    filling._run(Portion(redis_server.url, group, STREAMS, 0, 6, over_s=0.15), Looking())
    assert seen.pop() == (None, 6)
    assert all(told == there for told, there in seen)
    assert seen[-1] == (6, 6)


def test_one_core_is_for_redis_and_no_writer_has_no_stream(monkeypatch):
    for cores, streams, writers in ((8, 1, 1), (8, 3, 3), (8, 99, 4), (2, 99, 2), (None, 99, 1)):
        monkeypatch.setattr(os, "cpu_count", lambda cores=cores: cores)
        assert writer_count(streams) == writers


def consume(url, group, stream, epoch):
    with StreamReader(url, group, stream, epoch) as reader:
        reader.consume(example.Counting(stream), to_end=True)


def fill(url, group, *, to=9, since=0):
    with StreamWriter(url, group, STREAMS) as writer:
        for record in range(since, to):
            writer.append(b"%d" % (record // STREAMS), partition=record % STREAMS)


def test_a_watch_sees_what_is_written_and_applied(redis_server, group):
    url = redis_server.url
    redis_server.client.hset(GroupKeys.of(group).members, mapping={"m1": "x", "m2": "x"})

    async def story():
        watch = Watch(url, group, STREAMS)
        assert (watch.applied_total, watch.written_total, watch.rate_per_s) == (0, 0, 0.0)
        await watch.look()
        fill(url, group)
        consume(url, group, 1, 1)
        await watch.look()
        await watch.look()
        fill(url, group, since=9, to=12)
        consume(url, group, 1, 1)
        consume(url, group, 2, 1)
        looked = []

        def enough():
            looked.append(watch.applied_total)
            if len(looked) == 2:
                raise RunError("seen")

        with pytest.raises(RunError, match="seen"):
            await watch.look_forever(enough)
        await watch.close()
        return watch, looked

    watch, looked = asyncio.run(story())
    assert [(look.written, look.applied) for look in watch.looks] == [
        (0, 0), (9, 3), (9, 3), (12, 8), (12, 8),
    ]  # fmt: skip
    assert looked == [8, 8]
    assert (watch.written_total, watch.applied_total) == (12, 8)
    assert watch.members == {"m1", "m2"}
    assert {p: [count for _, count in seen] for p, seen in watch.applied.items()} == {
        0: [], 1: [3, 4], 2: [4],
    }  # fmt: skip
    instants = [look.at_s for look in watch.looks]
    assert [at_s for at_s, _ in watch.applied[1]] == [instants[1], instants[3]]
    assert instants[4] - instants[3] >= 0.1


def test_a_redis_that_is_busy_is_looked_at_again_later(group):
    async def story():
        watch = Watch("redis://127.0.0.1:1/0", group, STREAMS)
        await watch.look()
        await watch.close()
        return watch.looks

    assert asyncio.run(story()) == []


def test_rates_are_means_over_the_last_second(group):
    """Over all there is, if that is less; of one look nothing is known."""
    watch = Watch("redis://127.0.0.1:1/0", group, STREAMS)
    rates = []
    for at_s, applied in ((10.0, 100), (10.5, 150), (11.0, 300), (11.5, 350), (11.75, 400)):
        watch.looks.append(Look(at_s, 999, applied))
        rates.append(watch.rate_per_s)
    assert rates == [0.0, 100.0, 200.0, 200.0, 200.0]


def test_late_writes_are_refused_where_others_have_taken_over(redis_server, group):
    """And taken where nobody has: that would be a bug, and is counted. Where nothing was to come,
    nothing is late."""
    url, counts = redis_server.url, LateWrites()
    with StreamWriter(url, group, STREAMS) as writer:
        for number in range(4):
            writer.append(b"%d" % number, partition=0)
            writer.append(b"%d" % number, partition=1)

    async def story():
        ghost = Ghost(url, group, {0: 1, 1: 1, 2: 1})
        await ghost.prepare(0.05)
        consume(url, group, 0, 2)
        await ghost.deliver(counts)
        await ghost.deliver(counts)  # there is nothing more
        overtaken = Ghost(url, group, {0: 1})
        await overtaken.prepare(0.05)
        await overtaken.deliver(counts)

    asyncio.run(story())
    assert counts == LateWrites(tried=2, refused=1, accepted=1)
    sink = redis_server.client.hgetall(StreamKeys.of(group).sink(example.counts_name(1)))
    assert {str(k).strip("b'"): int(v) for k, v in sink.items()} == {"applied": 4, "sum": 6}


def test_late_writes_that_cannot_be_read_are_no_end_of_the_others(group):
    async def story():
        ghost = Ghost("redis://127.0.0.1:1/0", group, {0: 1})
        with pytest.raises(StoreUnreachable):
            await ghost.prepare(0.05)
        await ghost.close()

    asyncio.run(story())
