"""One link to a neighbor that speaks other versions of the protocol: what is said to it, and that
it may change with each life of the neighbor."""

import asyncio
import json
import time
from contextlib import asynccontextmanager
from random import Random
from types import SimpleNamespace

import pytest

from spillover.core.overflow import events as ev
from spillover.live.engine.timers import Timers
from spillover.live.overflow import peer_link, wire
from spillover.live.overflow.agreement import Agreement, Terms
from spillover.live.overflow.emulated_link import EmulatedLink
from spillover.live.overflow.identity import read_hello
from spillover.live.overflow.peer_clients import PeerClients
from spillover.live.overflow.peer_link import PeerLink
from spillover.live.overflow.protocol import SHARED, VERSION, VERSIONS
from spillover.model.request import Answer, Outcome, Request
from spillover.model.topology import Cluster, Topology

TOPOLOGY = Topology(name="test", clusters=(Cluster(id="a", servers=1),))

CALLER = wire.Caller("a", "b", "test")
ANSWER = wire.encode_answer(Answer(Outcome.DONE, ("a", "b")), wire.Stay(0.0, 0.0, 0.0))


class Neighbor:
    """The other end: what it is told in a version that it `speaks`, it takes; else it refuses."""

    def __init__(self, speaks):
        self.speaks = speaks
        self.holds = False
        """Whether it leaves forwards unanswered."""
        self.said = []
        """(call, version, hello)."""
        self.writers = []
        self.shares = asyncio.Event()
        """Whether it says by now that it shares no connections."""
        self.shares.set()
        self.remaining_ms = []
        """What it was told that forwards have left."""

    async def start(self):
        self.server = await asyncio.start_server(self.converse, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self.server.sockets[0].getsockname()[1]}"

    async def converse(self, reader, writer):
        self.writers.append(writer)
        try:
            while True:
                lines = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
                headers = dict(line.split(": ", 1) for line in lines[1:] if line)
                body = await reader.readexactly(int(headers.get("Content-Length", 0)))
                if SHARED in lines[0]:
                    await self.shares.wait()
                writer.write(self.answer(lines[0].split()[1], headers["spillover-peer"], body))
        except (asyncio.IncompleteReadError, ConnectionError):
            return

    def answer(self, path, hello, body):
        _, _, version, rest = path.split("/")
        if int(version[1:]) not in self.speaks or path == SHARED:
            return b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"
        call, _, _ = rest.partition("?")
        if call == "forward":
            self.remaining_ms.append(json.loads(body)["remaining_ms"])
        self.said.append((call, int(version[1:]), hello))
        if call == "reports":
            return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{}\n\r\n"
        if call == "forward" and self.holds:
            return b""
        answer = ANSWER if call == "forward" else b'{"found":true}'
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(answer), answer)

    def begin_anew(self, speaks):
        """A new life, with other versions."""
        self.speaks = speaks
        for writer in self.writers:
            writer.transport.abort()
        self.writers.clear()

    def of(self, call):
        return [one[1:] for one in self.said if one[0] == call]


@asynccontextmanager
async def linked(speaks):
    neighbor = Neighbor(speaks)
    await neighbor.start()
    timers = Timers(asyncio.get_running_loop())
    events = []
    link = PeerLink(
        neighbor=0,
        cluster="b",
        url=neighbor.url,
        emulated_link=EmulatedLink(timers, Random(1), 0.0),
        away_max=10,
        agreement=Agreement(CALLER, Terms(delay_ms=1.0)),
        clients=PeerClients(TOPOLOGY, None),
        timers=timers,
        random=Random(1),
        feed=events.append,
        on_forward=lambda _: None,
        on_refused=lambda _: None,
    )
    listening = asyncio.create_task(link.listen())
    try:
        yield neighbor, link, events
    finally:
        listening.cancel()
        await asyncio.wait([listening])
        await link.close()
        neighbor.begin_anew(())
        neighbor.server.close()
        timers.close()


def forward(link, ref):
    request = Request(f"r{ref}", keyed=True, work=wire.NOTHING, path=("a",))
    link.forward(ev.Forward(ref, 0, request, time.monotonic() + 10.0))


@pytest.mark.parametrize("speaks", [VERSIONS, VERSIONS[1:], (VERSION + 1, VERSION)])
async def test_the_newest_version_that_both_speak(nodes, speaks):
    """Everything is said in it. The connection tells who says so, by a header that is the same each
    time."""
    version = min(VERSION, max(speaks))

    async with linked(speaks) as (neighbor, link, events):
        await nodes.until(lambda: events)
        forward(link, 1)
        await nodes.until(lambda: len(events) == 2)
        assert isinstance(events[1], ev.ForwardAnswered)
        await link.ask_federation(b"{}", 5.0)
        neighbor.holds = True
        forward(link, 2)
        await nodes.until(lambda: len(neighbor.of("forward")) == 2)
        link.ask_cancel(2)
        await nodes.until(lambda: neighbor.of("cancel"))
        (hello,) = {hello for _, _, hello in neighbor.said}
        assert read_hello(hello.encode()) == (CALLER, VERSIONS)
        assert neighbor.said == [
            ("reports", version, hello),
            ("forward", version, hello),
            ("federation", version, hello),
            ("forward", version, hello),
            ("cancel", version, hello),
        ]


async def test_each_life_of_a_neighbor_has_its_own_version(nodes):
    """Upgraded, and back again: the link follows as soon as the neighbor reports. What leaves
    before that in a version that is not understood surely was not accepted."""
    async with linked(VERSIONS[1:]) as (neighbor, link, events):
        await nodes.until(lambda: events)
        for ref, speaks in enumerate((VERSIONS, VERSIONS[1:], VERSIONS), 1):
            neighbor.begin_anew(speaks)
            await nodes.until(lambda n=ref + 1: len(neighbor.of("reports")) == n)
            await nodes.until(lambda: isinstance(events[-1], ev.ReportReceived))
            forward(link, ref)
            await nodes.until(lambda: isinstance(events[-1], ev.ForwardAnswered))
            assert neighbor.of("forward")[-1][0] == max(speaks)
        neighbor.speaks = VERSIONS[1:]  # the stream goes on: nobody has said so yet
        forward(link, 4)
        await nodes.until(lambda: isinstance(events[-1], ev.ForwardRefused))


async def test_what_waits_for_a_connection_says_how_much_time_it_has_left_when_it_leaves(
    nodes, monkeypatch
):
    """Not when it began to wait."""
    clock = SimpleNamespace(ahead_s=0.0)
    clock.monotonic = lambda: time.monotonic() + clock.ahead_s

    async with linked(VERSIONS) as (neighbor, link, _):
        monkeypatch.setattr(peer_link, "time", clock)
        neighbor.shares.clear()
        forward(link, 1)
        clock.ahead_s = 3.0
        neighbor.shares.set()
        await nodes.until(lambda: neighbor.remaining_ms)
        assert 0.0 < neighbor.remaining_ms[0] <= 7_000.0
