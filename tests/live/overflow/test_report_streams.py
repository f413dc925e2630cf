"""Load reports between nodes: late, slow, ended, silent and restarted, on loopback."""

import asyncio
import time
from functools import partial
from random import Random
from types import SimpleNamespace

import pytest

from spillover.live.engine.timers import Timers
from spillover.live.http1.client import HttpClient
from spillover.live.overflow import report_streams
from spillover.live.overflow.configured import Configured
from spillover.live.overflow.emulated_link import EmulatedLink
from spillover.live.overflow.identity import HELLO
from spillover.live.overflow.report_lines import decode_line
from spillover.live.overflow.report_repeats import SAID_TIMES
from spillover.live.overflow.report_streams import ReportStreams
from spillover.model.load import LoadReport

BUFFER_LIMIT_BYTES = 128 * 1024
"""Of one connection: what uvloop takes before it asks for a pause, and some."""


def emulated_links(*delays_s):
    timers = Timers(asyncio.get_running_loop())
    return [EmulatedLink(timers, Random(1), delay_s) for delay_s in delays_s]


async def test_a_reader_that_does_not_read_costs_little_and_hears_the_newest(nodes):
    """What waits for it is bounded by the connection; once it reads, it hears what is new."""
    async with nodes.Federation(nodes.topology_of("a", "b")) as federation:
        streams = federation["b"].shell.neighborhood.streams
        host, port = federation["b"].url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=4096)
        writer.write(b"GET /peer/v2/reports HTTP/1.1\r\nhost: b\r\nspillover-peer: from=a\r\n\r\n")
        await nodes.until(lambda: len(streams._streams[0]) == 2)
        line = b"x" * 1023 + b"\n"
        buffered = BufferOf(streams._streams[0][-1].put.__self__.connection)
        for _ in range(12_000):
            streams.publish(line)
        await nodes.until(lambda: buffered.paused)
        assert buffered.size_bytes < BUFFER_LIMIT_BYTES
        heard = bytearray()
        async with asyncio.timeout(20):
            while b"newest" not in heard:
                heard = heard[-16:] + await reader.read(65536)
                if not buffered.paused:
                    streams.publish(b"newest\n")
        writer.close()


class BufferOf:
    """What waits in a node to be written to one connection."""

    def __init__(self, connection):
        self._connection = connection

    @property
    def paused(self):
        return self._connection.write_paused

    @property
    def size_bytes(self):
        return self._connection.transport.get_write_buffer_size()


async def test_a_neighbor_that_ends_is_unknown_and_known_again_with_its_next_life(
    nodes, monkeypatch
):
    """The end of its stream tells, silence need not; a restart has a later epoch and is heard."""
    monkeypatch.setattr("spillover.core.overflow.neighbor.SILENCE_S_MAX", 3600.0)
    monkeypatch.setattr("spillover.core.overflow.link.STREAM_SILENCE_S", 3600.0)

    async with nodes.Federation(nodes.topology_of("a", "b")) as federation:
        a = federation["a"]
        epoch = federation["b"].shell.epoch
        await federation.stop("b")
        await nodes.until(lambda: not a.knows("b"))
        await nodes.until(lambda: time.time_ns() // 1_000_000 > epoch)
        await federation.start("b")
        await nodes.until(lambda: a.knows("b"))
        await nodes.until(lambda: a.machine.neighbors.by_handle[0].report.epoch > epoch)


async def test_a_reader_that_leaves_is_forgotten(nodes):
    """Its stream is dropped, and the node ends without waiting for any."""
    async with nodes.Federation(nodes.topology_of("a", "b")) as federation:
        b = federation["b"]
        client = HttpClient(b.url, headers=[(HELLO, b"from=a")])
        lines = []
        reading = asyncio.ensure_future(
            client.stream_lines("/peer/v2/reports", lines.append, silence_s=None)
        )
        await nodes.until(lambda: len(lines) > 2)
        assert len(b.shell.neighborhood.streams._streams[0]) == 2
        reading.cancel()
        await client.close()
        await nodes.until(lambda: len(b.shell.neighborhood.streams._streams[0]) == 1)


REPORT = LoadReport(1, 1, 1.0, 0.5, 3, 2, True, ("b",), ahead=0)


class Told:
    """Streams to two neighbors at one instant, and what either has heard."""

    def __init__(self, *, per_neighbor_max=4):
        self.links = dict(enumerate(emulated_links(0.0, 0.0)))
        self.configured = Configured()
        self.streams = ReportStreams(self.links, 0.05, self.configured, per_neighbor_max)
        self.heard = ([], [])
        self.opened = [self.open(neighbor) for neighbor in self.links]

    def open(self, neighbor):
        return self.streams.open(neighbor, self.heard[neighbor].append)

    def often(self):
        """Say the same until it need not be said: the lines of the first one."""
        for _ in range(SAID_TIMES + 3):
            self.streams.tell(REPORT)
        return self.lines()[0]

    def lines(self):
        """What has been heard since this was last asked."""
        lines = [[decode_line(line.strip()) for line in heard] for heard in self.heard]
        for heard in self.heard:
            heard.clear()
        return lines


@pytest.fixture
def still(monkeypatch):
    """The clock stands still."""
    monkeypatch.setattr(report_streams, "time", SimpleNamespace(monotonic=lambda: 1000.0))


@pytest.mark.parametrize(
    "start_over",
    [
        lambda told: told.open(1),
        lambda told: told.links[1].set_faults(loss=1.0),
        lambda told: told.links[1].set_faults(cut=True),
        lambda told: told.streams.tell_clients(0),
        lambda told: told.streams.start_over(),
    ],
    ids=["listener", "loss", "cut", "clients", "asked"],
)
async def test_what_all_have_heard_is_said_again_once_anybody_may_not_have_it(still, start_over):
    told = Told()
    assert told.often() == [REPORT] * SAID_TIMES
    assert told.often() == []
    start_over(told)
    told.streams.tell(REPORT)
    assert len(told.lines()[0]) == 1


async def test_nothing_is_left_out_while_a_link_loses_what_leaves_and_for_a_while_after(still):
    told = Told()
    told.links[1].set_faults(loss=1.0)
    assert told.often() == [REPORT] * (SAID_TIMES + 3)
    told.links[1].set_faults(loss=0.0)
    assert told.often() == [REPORT] * (SAID_TIMES - 1), "the last one was the first of these"
    assert told.often() == []


async def test_whoever_has_left_or_has_another_stream_hears_nothing_more():
    """What is said to one neighbor is not heard by another."""
    told = Told(per_neighbor_max=1)
    newer = told.open(0)
    assert (told.opened[0].ended, newer.ended) == (True, False)
    told.streams.drop(0, told.opened[0])
    told.streams.drop(7, newer)
    told.streams.say(0, b"for b\n")
    told.streams.say(7, b"for nobody\n")
    assert told.heard == ([b"for b\n"], [])
    told.streams.end(1)
    assert told.opened[1].ended
    told.streams.end(1)
    told.streams.publish(b"for all\n")
    assert told.heard == ([b"for b\n", b"for all\n"], [])
    newer.end()
    told.streams.publish(b"for all\n")
    assert len(told.heard[0]) == 2
    await asyncio.wait_for(newer.until_ended(), 5.0)


async def test_a_question_is_heard_by_each_node_of_a_neighbor_in_its_turn():
    """They are nodes of one cluster, or processes behind one address: one is to answer. What other
    neighbors are asked changes no turn."""
    told, heard = Told(), {(of, node): [] for of in (0, 1) for node in (1, 2)}
    for (neighbor, node), lines in heard.items():
        told.streams.open(neighbor, partial(_take, lines), node)
    for number in range(4):
        for neighbor in (0, 1, 7):
            told.streams.ask(neighbor, b"question %d\n" % number)
    assert [len(lines) for lines in heard.values()] == [2, 2, 2, 2]
    assert {*heard[0, 1], *heard[0, 2]} == {b"question %d\n" % number for number in range(4)}


async def test_a_question_is_not_lost_in_a_stream_that_nobody_reads_any_more():
    """The newest one of each node is asked, and another node where that has no room."""
    told, dead, heard = Told(), [], []
    told.streams.open(0, partial(_take, dead), 1)
    told.streams.open(0, lambda _: False, 1)
    told.streams.open(0, partial(_take, dead), 2)
    told.streams.open(0, partial(_take, heard), 2)
    for _ in range(4):
        told.streams.ask(0, b"question\n")
    assert (len(heard), dead) == (4, [])


def _take(lines, line):
    lines.append(line)
    return True


async def test_a_line_for_one_neighbor_leaves_over_its_link():
    """As late as all else, and not at all if the link is cut."""
    told = Told()
    told.links[0].set_faults(delay_s=60.0)
    told.links[1].set_faults(cut=True)
    for neighbor in told.links:
        told.streams.say(neighbor, b"line\n")
    assert told.heard == ([], [])
    assert [len(link) for link in told.links.values()] == [1, 0]


async def test_a_stream_too_many_of_a_neighbor_ends_its_oldest():
    """Those of others go on."""
    told = Told()
    other = told.streams.open(1, partial(_take, []))
    opened = [
        told.streams.open(0, partial(_take, [])) for _ in range(told.streams.per_neighbor_max + 1)
    ]
    assert [stream.ended for stream in (other, *opened[:3])] == [False, True, False, False]
