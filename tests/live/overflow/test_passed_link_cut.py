"""What comes of an answer that passes through, at the end of a link where it is read: a neighbor
that dies at every byte of it, and neighbors that say something else."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from contextlib import asynccontextmanager, suppress
from random import Random

import pytest

from spillover.core.overflow import events as ev
from spillover.core.overflow.events import SoFar
from spillover.live.engine.timers import Timers
from spillover.live.overflow.agreement import Agreement, Terms
from spillover.live.overflow.emulated_link import EmulatedLink
from spillover.live.overflow.passed_link import PassedLink
from spillover.live.overflow.passed_wire import (
    decode_pass,
    encode_end,
    encode_head,
    encode_whole,
    piece_head,
)
from spillover.live.overflow.peer_clients import PeerClients
from spillover.live.overflow.protocol import STREAM
from spillover.live.overflow.relay import Relays
from spillover.live.overflow.waiters import Waiters
from spillover.live.overflow.wire import Caller, Stay, encode_answer
from spillover.model.load import LoadNow
from spillover.model.passed import PassedHead, PassedRequest
from spillover.model.request import DONE, FAILED, Answer, Request
from spillover.model.topology import Cluster, Topology
from support.loop import until
from support.waiting import LIMIT_S

TOPOLOGY = Topology(name="test", clusters=(Cluster(id="a", servers=1),))
STAY = Stay(0.0, 0.0, 0.0)
HTTP = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ntransfer-encoding: chunked\r\n\r\n" % STREAM
FRAMES = (
    encode_head(PassedHead(200, b"OK", ()), SoFar(("a", "b"), 0.0, 0.0, 0.0), STAY),
    piece_head(4) + b"some",
    piece_head(4) + b"more",
    encode_end((), Answer(DONE, ("a", "b")), STAY),
)
CHUNKS = tuple(b"%x\r\n%b\r\n" % (len(frame), frame) for frame in FRAMES)
WHOLE = HTTP + b"".join(CHUNKS) + b"0\r\n\r\n"
AT_ONCE = 50

END_AT = len(HTTP + b"".join(CHUNKS)) - len(b"\r\n")
"""From here on the frame with the end is there."""


class Home:
    """The home's side of one link: `begun` and `ends` have the events by which its machine would
    hear of each forward, `became` what is counted of them."""

    def __init__(self, port):
        loop = asyncio.get_running_loop()
        self.timers = Timers(loop)
        self.ends, self.begun, self.became = defaultdict(list), {}, []
        self.relays = Relays(self._feed, Waiters(), self.timers)
        self.link = PassedLink(
            neighbor=0,
            cluster="b",
            url=f"http://127.0.0.1:{port}",
            emulated_link=EmulatedLink(self.timers, Random(1)),
            away_max=1000,
            agreement=Agreement(Caller("a", "b"), Terms()),
            timers=self.timers,
            clients=PeerClients(TOPOLOGY, None),
            random=Random(1),
            feed=self._feed,
            on_forward=self.became.append,
            on_refused=lambda _: None,
            relays=self.relays,
        )

    def _feed(self, event):
        if isinstance(event, ev.ResponseBegan):
            self.begun[event.ref] = event
            self.relays.began(ev.Began(event.ref, ev.HOME, event.so_far))
        else:
            self.ends[event.ref].append(event)

    def hand_over(self, ref, sink, deadline_s=1e12, **told):
        self.relays.open(ref, sink)
        work = PassedRequest("GET", b"/", (), b"").encode()
        request = Request(f"r{ref}", False, work, ("a",))
        self.link.forward(ev.Forward(ref, 0, request, deadline_s, **told))
        return request

    async def close(self):
        await self.link.close()
        self.timers.close()


class Got:
    """A sink that only counts."""

    def __init__(self):
        self.has_begun, self.body = False, b""

    def begin(self, *_):
        self.has_begun = True

    def piece(self, data):
        self.body += data


def test_an_answer_cut_off_anywhere_is_lost_and_never_answered(run):
    async def main():
        async def answer(reader, writer):
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].split(b"\r")[0])
            body = await reader.readexactly(length)
            place = int(body.partition(b'"id":"r')[2].partition(b'"')[0])
            writer.write(WHOLE[:place])
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        home = Home(server.sockets[0].getsockname()[1])
        try:
            sinks = {place: Got() for place in range(1, len(WHOLE) + 1)}
            for place, sink in sinks.items():
                home.hand_over(place, sink)
                if place % AT_ONCE == 0 or place == len(WHOLE):
                    await until(lambda upto=place: all(home.ends[k + 1] for k in range(upto)))
            for place, sink in sinks.items():
                is_whole = place >= END_AT
                expected = ev.ForwardAnswered if is_whole else ev.ForwardLost
                assert [type(one) for one in home.ends[place]] == [expected], place
                assert b"somemore".startswith(sink.body)
                assert sink.has_begun or not sink.body
        finally:
            await home.close()
            server.close()

    run(main())


@asynccontextmanager
async def answering(*answers):
    """A neighbor that answers so, one request after the other, and a home that asks it; then it
    says nothing more. `left` is set once its connection has been closed at the other end, `asked`
    has the bodies of what it was asked."""
    left, asked = asyncio.Event(), []

    async def answer(reader, writer):
        for bytes_ in answers:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].split(b"\r")[0])
            asked.append(await reader.readexactly(length))
            writer.write(bytes_)
        with suppress(ConnectionError):
            await reader.read()
        left.set()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    home = Home(server.sockets[0].getsockname()[1])
    home.left, home.asked = left, asked
    try:
        yield home
    finally:
        await home.close()
        server.close()


def http(body, status=200, kind=STREAM):
    """An answer whose length is known."""
    head = b"HTTP/1.1 %d X\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n"
    return head % (status, kind, len(body)) + body


def streamed(*frames, status=200, kind=STREAM):
    """One that comes in parts."""
    head = b"HTTP/1.1 %d X\r\ncontent-type: %b\r\ntransfer-encoding: chunked\r\n\r\n"
    chunks = [b"%x\r\n%b\r\n" % (len(frame), frame) for frame in frames]
    return b"".join([head % (status, kind), *chunks, b"0\r\n\r\n"])


FAR = Stay(0.0, 2.0, 4.0)
"""Some seconds that its body was awaited there, and more that its answer was held back."""
SO_FAR = SoFar(("a", "b"), 0.5, 0.25, 0.125)
DONE_THERE = Answer(DONE, ("a", "b"), None, None, 0.5, 0.25, 0.125)
PASSED_HEAD = PassedHead(200, b"OK", ())
IN_FRAMES = streamed(
    encode_head(PASSED_HEAD, SO_FAR, FAR), piece_head(4) + b"some", encode_end((), DONE_THERE, FAR)
)
AT_ONCE_ANSWER = http(encode_whole(PASSED_HEAD, b"some", (), DONE_THERE, FAR))


@pytest.mark.parametrize("answer", [IN_FRAMES, AT_ONCE_ANSWER], ids=["frames", "whole"])
def test_how_long_both_ways_took_is_told_with_the_answer(answer):
    """By what the neighbor says of its stay; opening the connection is a part of the way there."""

    async def main():
        async with answering(answer, answer) as home:
            for ref in (1, 2):
                sink = Got()
                home.hand_over(ref, sink)
                await until(lambda ref=ref: home.ends[ref])
                began, (answered,) = home.begun[ref], home.ends[ref]
                assert began.so_far == SO_FAR
                assert answered.answer == DONE_THERE
                assert began.leg_s == answered.leg_s
                assert 2.0 < began.leg_s < 4.0 < answered.return_leg_s < 6.0
                assert 0.0 < answered.opening_s < 2.0
                assert sink.body == b"some"
                assert home.became == ["answered"] * ref

    asyncio.run(main())


def test_a_request_is_handed_over_with_what_is_left_of_its_deadline():
    """And with the load here, and whether the neighbor has asked for it."""
    load = LoadNow(1, 2, 3, 0.5, True)

    async def main():
        async with answering(AT_ONCE_ANSWER, AT_ONCE_ANSWER) as home:
            for ref, told in ((1, {"load": load, "pulled": True}), (2, {})):
                home.hand_over(ref, Got(), time.monotonic() + 100.0, **told)
                await until(lambda ref=ref: home.ends[ref])
            first, second = map(decode_pass, home.asked)
            assert 90.0 < first.remaining_s <= 100.0
            assert (first.load, first.pulled) == (load, True)
            assert (second.load, second.pulled) == (None, False)
            assert PassedRequest.decode(first.request.work).method == "GET"

    asyncio.run(main())


def test_what_was_handed_over_is_let_go_once_its_answer_has_begun():
    """It is needed until then, to be handed over again."""

    async def main():
        async with answering(HTTP + CHUNKS[0]) as home:
            request = home.hand_over(1, Got())
            assert request.work is not None
            await until(lambda: 1 in home.begun)
            assert request.work is None

    asyncio.run(main())


SAYS_DONE = encode_answer(DONE_THERE, STAY)
SAYS_FAILED = encode_answer(Answer(FAILED, ("a", "b"), None, "why"), STAY)
JSON = b"application/json"


@pytest.mark.parametrize(
    ("answer", "expected", "says"),
    [
        (streamed(*FRAMES, kind=JSON), ev.ForwardLost, "not understood"),
        (streamed(*FRAMES, status=500), ev.ForwardLost, "not understood"),
        (http(b"".join(FRAMES)), ev.ForwardLost, "not understood"),
        (http(SAYS_DONE, kind=JSON), ev.ForwardLost, ""),
        (http(SAYS_FAILED, kind=JSON), ev.ForwardAnswered, ""),
        (http(SAYS_FAILED, status=500, kind=JSON), ev.ForwardLost, ""),
        (http(b"{}", status=429, kind=JSON), ev.ForwardRefused, ""),
        (http(b"nothing of it"), ev.ForwardLost, "not understood"),
    ],
)
def test_only_what_comes_as_such_is_an_answer(answer, expected, says, caplog):
    """Nothing else begins; what is done comes in no other way, what has failed may."""

    async def main():
        async with answering(answer) as home:
            sink = Got()
            home.hand_over(1, sink)
            await until(lambda: home.ends[1])
            assert [type(one) for one in home.ends[1]] == [expected]
            assert (home.begun, sink.has_begun) == ({}, False)

    asyncio.run(main())
    assert says in caplog.text


def test_a_source_that_is_closed_is_lost_and_its_connection_is_closed():
    """As where nothing more of an answer comes for too long."""

    async def main():
        async with answering(HTTP + CHUNKS[0]) as home:
            home.hand_over(1, Got())
            await until(lambda: 1 in home.begun)
            relay = home.relays._open[1]
            relay.source.close("nothing more came")
            assert [type(one) for one in home.ends[1]] == [ev.ForwardLost]
            assert home.became == ["lost"]
            await asyncio.wait_for(home.left.wait(), LIMIT_S)

    asyncio.run(main())


def test_an_answer_that_nobody_waits_for_any_more_is_not_told_of():
    async def main():
        async with answering(HTTP + CHUNKS[0]) as home:
            home.hand_over(1, Got())
            await until(lambda: 1 in home.begun)
            home.link.recall(1)
            await asyncio.wait_for(home.left.wait(), LIMIT_S)
            assert (home.ends[1], home.became) == ([], ["recalled"])

    asyncio.run(main())
