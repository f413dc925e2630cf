"""One link with faults, over real sockets: forwards that are held back, lost or withdrawn, and
cancels that somebody waits for."""

import asyncio
import json
import time
from contextlib import asynccontextmanager
from random import Random

import pytest

from spillover.core.overflow import events as ev
from spillover.core.overflow import link
from spillover.live.engine.timers import Timers
from spillover.live.overflow import peer_link, wire
from spillover.live.overflow.agreement import Agreement, Terms
from spillover.live.overflow.emulated_link import EmulatedLink
from spillover.live.overflow.peer_clients import PeerClients
from spillover.live.overflow.peer_link import PeerLink
from spillover.live.overflow.protocol import SPOKEN
from spillover.model.errors import NotDelivered
from spillover.model.request import Answer, Outcome, Request
from spillover.model.topology import Cluster, Topology

TOPOLOGY = Topology(name="test", clusters=(Cluster(id="a", servers=1),))

ANSWER = wire.encode_answer(Answer(Outcome.CANCELLED, ("b",)), wire.Stay(0.0, 0.0, 0.0))


class Neighbor:
    """The other end: holds forwards open until `release`, and answers each cancel with the next
    of `told`, the last one again and again; None breaks it off."""

    def __init__(self):
        self.told = [b'{"found":true}']
        self.answers = ANSWER
        self.forwards = []
        self.cancels = []
        self.release = asyncio.Event()
        self.writers = []

    async def start(self):
        self.server = await asyncio.start_server(self.converse, "127.0.0.1", 0, backlog=1024)
        self.url = f"http://127.0.0.1:{self.server.sockets[0].getsockname()[1]}"

    async def converse(self, reader, writer):
        self.writers.append(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                length = int(head.partition("content-length: ")[2].partition("\r\n")[0] or 0)
                await self.answer(
                    head, json.loads(await reader.readexactly(length) or b"0"), writer
                )
        except (asyncio.IncompleteReadError, ConnectionError):
            return

    async def answer(self, head, body, writer):
        answer = self.answers
        if SPOKEN[0].forward in head:
            self.forwards.append(body["id"])
            self.remaining_ms = body["remaining_ms"]
            await self.release.wait()
        elif SPOKEN[0].cancel in head:
            self.cancels.append(body)
            answer = self.told.pop(0) if len(self.told) > 1 else self.told[0]
        if answer is None:
            writer.transport.abort()
        else:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(answer), answer))

    async def close(self):
        self.server.close()
        for writer in self.writers:
            writer.transport.abort()


class Ends:
    """A link from a to its neighbor b, and what came of it."""

    def __init__(self, neighbor, delay_s, given_up_after_s):
        self.timers = timers = Timers(asyncio.get_running_loop())
        self.neighbor = neighbor
        self.emulated_link = EmulatedLink(
            timers, Random(1), delay_s, given_up_after_s=given_up_after_s
        )
        self.events = []
        self.outcomes = []
        self.link = PeerLink(
            neighbor=0,
            cluster="b",
            url=neighbor.url,
            emulated_link=self.emulated_link,
            away_max=1000,
            agreement=Agreement(wire.Caller("a", "b"), Terms()),
            clients=PeerClients(TOPOLOGY, None),
            timers=timers,
            random=Random(1),
            feed=self.events.append,
            on_forward=self.outcomes.append,
            on_refused=lambda _: None,
        )
        self.link.shared.is_shared = False  # as with a neighbor of version 2

    def forward(self, ref=1):
        request = Request(f"r{ref}", keyed=True, work=wire.NOTHING, path=("a",))
        self.link.forward(ev.Forward(ref, 0, request, time.monotonic() + 10.0))

    def nothing_is_to_come(self):
        return not self.link._cancels_asked and not len(self.timers)


@asynccontextmanager
async def linked(delay_s=0.0, given_up_after_s=5.0):
    neighbor = Neighbor()
    await neighbor.start()
    ends = Ends(neighbor, delay_s, given_up_after_s)
    try:
        yield ends
    finally:
        await ends.link.close()
        await neighbor.close()


async def test_a_forward_waits_for_a_cut_link_to_heal(nodes):
    """It leaves late, is answered, and the leg tells how long it took."""
    async with linked() as ends:
        ends.emulated_link.set_faults(cut=True)
        ends.neighbor.release.set()
        before_s = time.monotonic()
        ends.forward()
        decided_s = time.monotonic()
        await nodes.turn()
        assert not ends.neighbor.forwards
        healed_s = time.monotonic()
        ends.emulated_link.set_faults(cut=False)
        await nodes.until(lambda: ends.events)
        (answered,) = ends.events
        assert isinstance(answered, ev.ForwardAnswered)
        assert healed_s - decided_s <= answered.leg_s < time.monotonic() - before_s
        assert ends.outcomes == ["answered"]


async def test_the_time_that_a_forward_waits_is_taken_off_its_deadline(nodes):
    """What the neighbor hears is what is left as it leaves: ten seconds less the delay."""
    async with linked(delay_s=0.1) as ends:
        ends.neighbor.release.set()
        ends.forward()
        await nodes.until(lambda: ends.events)
        assert 0 < ends.neighbor.remaining_ms <= 9_901


@pytest.mark.parametrize("delay_s", [0.0, 0.03])
async def test_a_forward_that_is_lost_never_leaves(nodes, delay_s):
    """It is found lost when it would have left."""
    async with linked(delay_s) as ends:
        ends.emulated_link.set_faults(loss=1.0)
        sent_s = time.monotonic()
        ends.forward()
        assert bool(ends.events) == (not delay_s)
        await nodes.until(lambda: ends.events)
        assert time.monotonic() >= sent_s + delay_s
        assert (ends.events, ends.outcomes) == ([ev.ForwardLost(1)], ["lost"])
        ends.emulated_link.set_faults(loss=0.0)
        ends.forward(2)
        await nodes.until(lambda: ends.neighbor.forwards)
        assert ends.neighbor.forwards == ["r2"]


@pytest.mark.parametrize("faults", [{"cut": True}, {"delay_s": 0.03}])
@pytest.mark.parametrize("wanted", [True, False])
async def test_a_forward_that_is_cancelled_before_it_leaves_never_does(nodes, faults, wanted):
    """If somebody waits for what comes of it, it comes back as refused: it surely did not run."""
    async with linked() as ends:
        ends.emulated_link.set_faults(**faults)
        ends.forward()
        if wanted:
            ends.link.ask_cancel(1)
        else:
            ends.link.recall(1)
        assert ends.events == ([ev.ForwardRefused(1)] if wanted else [])
        assert ends.outcomes == ["recalled"]
        ends.link.ask_cancel(1)
        ends.link.recall(1)
        ends.emulated_link.set_faults(cut=False)
        ends.forward(2)
        await nodes.until(lambda: ends.neighbor.forwards)
        assert ends.neighbor.forwards == ["r2"]
        assert not ends.neighbor.cancels


async def test_a_cancel_is_asked_for_and_told_by_the_answer(nodes):
    """One call, however often it is wanted; its own answer ends nothing."""
    async with linked() as ends:
        ends.forward()
        await nodes.until(lambda: ends.neighbor.forwards)
        ends.link.ask_cancel(1)
        ends.link.ask_cancel(1)
        await nodes.until(lambda: ends.neighbor.cancels and not ends.link._cancels_asked)
        assert ends.neighbor.cancels == [{"id": "r1"}]
        assert not ends.events
        ends.neighbor.release.set()
        await nodes.until(lambda: ends.events)
        assert ends.events[0].answer.outcome is Outcome.CANCELLED
        assert ends.outcomes == ["answered"]


async def test_a_cancel_that_finds_nothing_is_tried_again(nodes, monkeypatch):
    """It may have overtaken its forward, or not have got through; once found it is done."""
    monkeypatch.setattr(link, "CANCEL_AGAIN_S", 0.002)

    async with linked() as ends:
        ends.neighbor.told = [b'{"found":false}', b"garbage", None, b'{"found":true}']
        ends.forward()
        ends.link.ask_cancel(1)
        await nodes.until(ends.nothing_is_to_come)
        assert len(ends.neighbor.cancels) == 4
        assert not ends.events


async def test_a_cancel_that_waits_for_nothing_keeps_no_other_waiting(nodes, monkeypatch):
    """Its forward has ended meanwhile: the next one has its turn at once."""
    monkeypatch.setattr(peer_link, "CANCELS_AT_ONCE_MAX", 1)

    async with linked() as ends:
        for ref in (1, 2, 3):
            ends.forward(ref)
        await nodes.until(lambda: len(ends.neighbor.forwards) == 3)
        for ref in (1, 2, 3):
            ends.link.ask_cancel(ref)
        ends.link.recall(2)
        await nodes.until(lambda: len(ends.neighbor.cancels) == 2)
        assert [cancel["id"] for cancel in ends.neighbor.cancels] == ["r1", "r3"]
        await nodes.until(lambda: not ends.link._cancels_asked)
        assert not ends.link._cancels_waiting


async def test_questions_do_not_pass_a_cut_link(nodes):
    """They fail at once, as where nobody listens; a link that is only slow does not delay them."""
    async with linked(delay_s=5.0) as ends:
        ends.neighbor.release.set()
        response = await ends.link.ask_federation(b"{}", 5.0)
        assert response.status == 200
        ends.emulated_link.set_faults(cut=True)
        with pytest.raises(NotDelivered, match="cut"):
            await ends.link.ask_federation(b"{}", 5.0)
        ends.emulated_link.set_faults(cut=False)
        assert (await ends.link.ask_federation(b"{}", 5.0)).status == 200
