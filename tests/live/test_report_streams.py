"""Load reports between nodes: late, slow, ended, silent and restarted, on loopback."""

from __future__ import annotations

import asyncio
import time
from random import Random

from spillover.live.http1 import HttpClient
from spillover.live.outbox import Outbox
from spillover.live.report_streams import (
    LINES_WAITING_MAX,
    STREAMS_PER_NEIGHBOR_MAX,
    ReportStreams,
)
from spillover.live.timers import Timers


def outboxes(*delays_s):
    timers = Timers(asyncio.get_running_loop())
    return [Outbox(timers, Random(1), delay_s) for delay_s in delays_s]


async def next_chunk(stream):
    async with asyncio.timeout(5):
        return await anext(stream.chunks())


def test_a_slow_reader_loses_the_oldest(nodes):
    """Only the newest reports matter; what waits is bounded."""

    async def main():
        streams = ReportStreams(outboxes(0.0))
        streams.publish(b"nobody hears this\n")
        stream = streams.open(0)
        for number in range(LINES_WAITING_MAX + 10):
            streams.publish(b"%d\n" % number)
        lines = (await next_chunk(stream)).split()
        assert lines == [b"%d" % n for n in range(10, LINES_WAITING_MAX + 10)]

    nodes.run(main)


def test_reports_leave_the_links_delay_late(nodes):
    """Each link has its own, and nothing leaves before."""

    async def main():
        streams = ReportStreams(outboxes(0.0, 0.04))
        near, far = streams.open(0), streams.open(1)
        published_s = time.monotonic()
        streams.publish(b"report\n")
        assert await next_chunk(near) == b"report\n"
        assert await next_chunk(far) == b"report\n"
        assert time.monotonic() >= published_s + 0.04

    nodes.run(main)


def test_links_that_are_as_late_take_one_wake(nodes):
    """All reports of one instant leave together, and links on which nobody listens cost nothing."""

    async def main():
        made = outboxes(0.02, 0.02, 0.02, 0.02)
        streams = ReportStreams(made)
        opened = [streams.open(y) for y in (0, 1, 2)]
        streams.publish(b"report\n")
        assert len({parcel.due_s for outbox in made[:3] for parcel in outbox._line}) == 1
        assert len(made[3]) == 0
        assert [await next_chunk(stream) for stream in opened] == [b"report\n"] * 3

    nodes.run(main)


def test_reports_of_a_cut_link_are_not_made_up_for(nodes):
    """What falls due while it is cut is gone; the next one after the healing is heard."""

    async def main():
        near, far = made = outboxes(0.0, 0.0)
        streams = ReportStreams(made)
        cut, whole = streams.open(0), streams.open(1)
        near.set_faults(cut=True)
        far.set_faults(loss=1.0)
        for number in range(3):
            streams.publish(b"%d\n" % number)
        assert len(near) == len(far) == 0
        near.set_faults(cut=False)
        far.set_faults(loss=0.0)
        streams.publish(b"3\n")
        assert await next_chunk(cut) == await next_chunk(whole) == b"3\n"

    nodes.run(main)


def test_a_node_behind_a_cut_link_is_unknown_and_known_again_when_healed(nodes):
    """One way: the other direction goes on, and tells whom it hears."""

    async def main():
        async with nodes.Federation(nodes.topology_of("a", "b", delay_ms=5.0)) as federation:
            a, b = federation["a"], federation["b"]
            b.shell.set_link(0, cut=True)
            await nodes.until(lambda: not a.knows("b"), limit_s=3.0)
            assert b.knows("a")
            await nodes.until(lambda: b.machine.neighbors._report[0].hears == ())
            b.shell.set_link(0, cut=False)
            await nodes.until(lambda: a.knows("b"))
            await nodes.until(lambda: b.machine.neighbors._report[0].hears == ("b",))

    nodes.run(main)


def test_the_newest_streams_of_a_neighbor_stay(nodes):
    """One that comes back again and again is not kept out by its own dead connections."""

    async def main():
        streams = ReportStreams(outboxes(0.0))
        opened = [streams.open(0) for _ in range(STREAMS_PER_NEIGHBOR_MAX + 1)]
        assert [stream.ended for stream in opened] == [True] + [False] * STREAMS_PER_NEIGHBOR_MAX
        streams.drop(0, opened[0])
        streams.drop(0, opened[1])
        streams.close()
        assert all(stream.ended for stream in opened[2:])
        assert streams.open(0) is None

    nodes.run(main)


def test_a_neighbor_that_ends_is_unknown_and_known_again_with_its_next_life(nodes):
    """The end of its stream tells at once; a restart has a later epoch and is heard."""

    async def main():
        async with nodes.Federation(nodes.topology_of("a", "b")) as federation:
            a = federation["a"]
            epoch = federation["b"].shell.epoch
            await federation.stop("b")
            await nodes.until(lambda: not a.knows("b"), limit_s=1.0)
            await nodes.until(lambda: time.time_ns() // 1_000_000 > epoch)
            await federation.start("b")
            await nodes.until(lambda: a.knows("b"))
            await nodes.until(lambda: a.machine.neighbors._report[0].epoch > epoch)

    nodes.run(main)


def test_a_silent_neighbor_is_unknown_within_a_second(nodes):
    """Its connection stands, but nothing comes: unknown, and known again when it speaks."""

    async def main():
        async with nodes.Federation(nodes.topology_of("a", "b", delay_ms=5.0)) as federation:
            a, b = federation["a"], federation["b"]
            publish = b.shell.streams.publish
            b.shell.streams.publish = lambda _: None
            started_s = time.monotonic()
            await nodes.until(lambda: not a.knows("b"), limit_s=3.0)
            assert time.monotonic() - started_s < 1.1
            b.shell.streams.publish = publish
            await nodes.until(lambda: a.knows("b"))

    nodes.run(main)


def test_a_reader_that_leaves_is_forgotten(nodes):
    """Its stream is dropped, and the node ends without waiting for any."""

    async def main():
        async with nodes.Federation(nodes.topology_of("a", "b")) as federation:
            b = federation["b"]
            client = HttpClient(b.url)
            lines = []
            reading = asyncio.ensure_future(
                client.stream_lines("/peer/v1/reports?from=a", lines.append, silence_s=None)
            )
            await nodes.until(lambda: len(lines) > 2)
            assert len(b.shell.streams._streams[0]) == 2
            reading.cancel()
            await client.close()
            await nodes.until(lambda: len(b.shell.streams._streams[0]) == 1)

    nodes.run(main)
