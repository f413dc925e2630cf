"""What comes of an answer that passes through, at the end of a link where it is read: a neighbor
that dies at every byte of it, and neighbors that say something else."""

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
from spillover.live.overflow.frames import frame
from spillover.live.overflow.frames.callee import Callee
from spillover.live.overflow.passed_link import PassedLink
from spillover.live.overflow.passed_wire import (
    FRAME,
    decode_pass,
    encode_end,
    encode_head,
    encode_whole,
    piece_head,
)
from spillover.live.overflow.peer_clients import PeerClients
from spillover.live.overflow.protocol import STREAM, UPGRADE
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
CHUNKS = tuple(b"%x\r\n%b\r\n" % (len(one), one) for one in FRAMES)


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
        self.link.shared.is_shared = False  # as with a neighbor of version 2

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
    chunks = [b"%x\r\n%b\r\n" % (len(one), one) for one in frames]
    return b"".join([head % (status, kind), *chunks, b"0\r\n\r\n"])


FAR = Stay(0.0, 2.0, 4.0)
"""Some seconds that its body was awaited there, and more that its answer was held back."""
DONE_THERE = Answer(DONE, ("a", "b"), None, None, 0.5, 0.25, 0.125)
PASSED_HEAD = PassedHead(200, b"OK", ())
AT_ONCE_ANSWER = http(encode_whole(PASSED_HEAD, b"some", (), DONE_THERE, FAR))


async def test_a_request_is_handed_over_with_what_is_left_of_its_deadline():
    """And with the load here, and whether the neighbor has asked for it."""
    load = LoadNow(1, 2, 3, 0.5, True)

    async with answering(AT_ONCE_ANSWER, AT_ONCE_ANSWER) as home:
        for ref, told in ((1, {"load": load, "pulled": True}), (2, {})):
            home.hand_over(ref, Got(), time.monotonic() + 100.0, **told)
            await until(lambda ref=ref: home.ends[ref])
        first, second = map(decode_pass, home.asked)
        assert 90.0 < first.remaining_s <= 100.0
        assert (first.load, first.pulled) == (load, True)
        assert (second.load, second.pulled) == (None, False)
        assert PassedRequest.decode(first.request.work).method == "GET"


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
async def test_only_what_comes_as_such_is_an_answer(answer, expected, says, caplog):
    """Nothing else begins; what is done comes in no other way, what has failed may."""
    async with answering(answer) as home:
        sink = Got()
        home.hand_over(1, sink)
        await until(lambda: home.ends[1])
        assert [type(one) for one in home.ends[1]] == [expected]
        assert (home.begun, sink.has_begun) == ({}, False)
    assert says in caplog.text


async def test_an_answer_that_nobody_waits_for_any_more_is_not_told_of():
    async with answering(HTTP + CHUNKS[0]) as home:
        home.hand_over(1, Got())
        await until(lambda: 1 in home.begun)
        home.link.recall(1)
        await asyncio.wait_for(home.left.wait(), LIMIT_S)
        assert (home.ends[1], home.became) == ([], ["recalled"])


# --- over a shared connection -----------------------------------------------------------------

SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: %b\r\n\r\n"


@asynccontextmanager
async def sharing(*answers):
    """A neighbor that shares connections: on each it reads one request, writes the next of these
    bytes and closes it. And a home that asks it."""
    answers = list(answers)

    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(SWITCHED % UPGRADE)
        length, _, _ = frame.FRAME.unpack(await reader.readexactly(frame.FRAME.size))
        await reader.readexactly(length)
        writer.write(answers.pop(0))
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    home = Home(server.sockets[0].getsockname()[1])
    home.link.shared.is_shared = True
    try:
        yield home
    finally:
        await home.close()
        server.close()


def told(make):
    """What an end writes of the first request on a connection: `make(callee)` answers it."""
    callee = Callee({frame.PASS: 100})
    callee.receive(frame.MESSAGE.pack(4, 1, frame.PASS, 0), 0.0)
    make(callee)
    return b"".join(callee.out.due(10**6))


def pieces(callee):
    callee.begin(1, FRAMES[0][FRAME.size :], lambda _: None)
    for piece in (b"some", b"more"):
        callee.piece(1, piece)
    callee.end(1, FRAMES[-1][FRAME.size :])


PIECES = told(pieces)
WHOLE = told(
    lambda callee: callee.answer(
        1, frame.WHOLE, (encode_whole(PASSED_HEAD, b"somemore", (), DONE_THERE, FAR),)
    )
)


@pytest.mark.parametrize("answer", [PIECES, WHOLE], ids=["pieces", "whole"])
async def test_a_shared_connection_that_is_closed_at_any_byte_loses_the_rest(answer):
    """Each request ends once: answered where all has come, else lost."""
    cuts = sorted({*range(0, len(answer), 7), *range(len(answer) - 3, len(answer) + 1)})
    async with sharing(*(answer[:cut] for cut in cuts)) as home:
        for ref in cuts:
            sink = Got()
            sink.end = lambda *_: None
            home.hand_over(ref, sink)
            await until(lambda ref=ref: home.ends[ref])
            is_whole = ref == len(answer)
            expected = ev.ForwardAnswered if is_whole else ev.ForwardLost
            assert [type(one) for one in home.ends[ref]] == [expected], ref
            assert b"somemore".startswith(sink.body)
            if is_whole and answer is PIECES:
                assert sink.body == b"somemore"
            await until(lambda: not home.link.shared.lines)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda callee: callee.begin(1, b"no head", lambda _: None),
        lambda callee: callee.answer(1, frame.WHOLE, (b"nothing",)),
        lambda callee: callee.answer(1, frame.ANSWER, (SAYS_DONE,)),
        lambda callee: (
            callee.begin(1, FRAMES[0][FRAME.size :], lambda _: None),
            callee.end(1, b"no end"),
        ),
    ],
)
async def test_a_shared_answer_that_is_none_is_lost(spoil):
    async with sharing(told(spoil)) as home:
        home.hand_over(1, Got())
        await until(lambda: home.ends[1])
        assert [type(one) for one in home.ends[1]] == [ev.ForwardLost]
