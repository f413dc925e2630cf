"""The door of a service in chains with nginx and HAProxy, before it and behind it: all read the
same requests and the same answers, or one of them refuses. There are never two readings.

The service tells what it has read. So what a client hears of it is what the service saw, request by
request, and a request that some relay read otherwise would be answered to somebody else, or to
nobody. `make soak` goes through no, one and two hops, else it is one of them.
"""

import asyncio
import os
from contextlib import asynccontextmanager
from functools import partial

import pytest

from spillover.core.overflow.events import ServersDown
from support import relays
from support.passed_requests import REFUSED, SEEN, get
from support.proxy_doors import Client, doors

pytestmark = pytest.mark.processes

EACH_WAY = "SPILLOVER_SOAK_S" in os.environ

BEHIND = get(b"Connection: close", target=b"/behind")
"""Sent right behind each request: who sees another end of that one sees something else of this."""

PATIENCE_S = 3.0
"""For a connection that should be closed: more than the relays give a request to come."""


def read_as(head, body):
    """The start and the body of a request, as the service tells them."""
    return head.partition(b" HTTP/")[0] + b"\n" + body


async def tell(talk, head, body):
    told = read_as(head, body)
    await talk.say(b"HTTP/1.1 200 OK\r\nX-Told: 1\r\nContent-Length: %d\r\n\r\n" % len(told), told)
    return True


async def hear(port, raw):
    """All answers to what is sent on a connection of its own, up to its end."""
    client = Client(*await asyncio.open_connection("127.0.0.1", port))
    answers = []
    try:
        client.writer.write(raw)
        async with asyncio.timeout(PATIENCE_S):
            while True:
                answers.append(await client.answer())
    except (TimeoutError, ConnectionError, asyncio.IncompleteReadError, ValueError):
        return answers
    finally:
        client.close()


class Chain:
    """A way of requests to a service that tells what it reads."""

    def __init__(self, port, service):
        self.port = port
        self.service = service
        service.answer = tell

    async def carry(self, name, raw):
        """Returns what the service read of it, and all answers. Whatever it was, others are not
        touched."""
        self.service.seen.clear()
        answers = await hear(self.port, raw + BEHIND)
        seen = [read_as(*one) for one in self.service.seen]
        assert [one.body for one in answers if one.get(b"x-told")] == seen, name
        self.service.seen.clear()
        (read,) = await hear(self.port, get(b"Connection: close", target=b"/after"))
        assert read.body == b"GET /after\n", name
        assert [read_as(*one) for one in self.service.seen] == [b"GET /after\n"], name
        return seen, answers

    async def bring(self, said):
        """Returns what comes of an answer of the service."""

        async def say(talk, *_):
            await talk.say(said)
            return False

        self.service.answer = say
        return await hear(self.port, get(b"Connection: close"))


@asynccontextmanager
async def chain(kind, place, hops):
    """A door, hops, and a service, with a relay before the door or the service."""
    between = partial(relays.relay, kind) if place == "behind" else None
    ids = "abc"[: hops + 1]
    async with doors(*ids, occupied=ids[1:-1], between=between) as here:
        if hops:
            here["a"].shell.feed(ServersDown())
        if place == "behind":
            yield Chain(here.ports["a"], here.service)
        else:
            async with relays.relay(kind, f"127.0.0.1:{here.ports['a']}") as port:
                yield Chain(port, here.service)


@pytest.fixture(params=["nginx", "haproxy"])
def kind(request, require):
    require(relays.find(request.param), f"{request.param} is not installed")
    return request.param


READINGS = {b"POST /\nhello", b"GET /\n", b"GET /behind\n"}
"""Those of requests that a door refuses, where a relay before it has made sense of them, and of
what comes behind them."""

REFUSED_BY = {
    "nginx": {
        *("a method in lower case", "a path as it is", "OPTIONS of all"),
        "a host in the target alone",
    },
    "haproxy": {
        *("a path that is not ASCII", "absolute with a query alone"),
        *("another host in the target", "a host in the target alone"),
        "websocket beside h2c is not asked for",  # HAProxy wants the key of a handshake
    },
}
"""Requests that a door passes on."""


@pytest.mark.parametrize("hops", [0, 1, 2] if EACH_WAY else [1])
@pytest.mark.parametrize("place", ["before", "behind"])
async def test_everybody_reads_the_same_requests(kind, place, hops):
    async with chain(kind, place, hops) as way:
        for name, (_, raw) in REFUSED.items():
            seen, _ = await way.carry(name, raw)
            passed = READINGS if place == "before" else {b"GET /behind\n"}
            assert set(seen) <= passed, name
        for name, (raw, start, _, body) in SEEN.items():
            seen, answers = await way.carry(name, raw)
            if seen[:1] != [read_as(start, body)]:
                assert (name in REFUSED_BY[kind], answers[0].status) == (True, 400), name


OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
ANSWERS = {
    "by length": (OK + b"Content-Length: 3\r\n\r\nabc", 200, b"abc"),
    "in chunks": (CHUNKED + b"2\r\nab\r\n1;x=y\r\nc\r\n0\r\nA: b\r\n\r\n", 200, b"abc"),
    "to the end": (OK + b"Connection: close\r\n\r\nabc", 200, b"abc"),
    "coded": (
        OK + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n\x1f\x8b",
        200,
        b"\x1f\x8b",
    ),
    "a part": (
        b"HTTP/1.1 206 Part\r\nContent-Range: bytes 0-1/9\r\nContent-Length: 2\r\n\r\nab",
        206,
        b"ab",
    ),
    "nothing": (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
    "not modified": (b'HTTP/1.1 304 Not Modified\r\nETag: "a"\r\n\r\n', 304, b""),
    "an early hint": (
        b"HTTP/1.1 103 Early\r\n\r\n" + OK + b"Content-Length: 1\r\n\r\na",
        200,
        b"a",
    ),
    "not found": (b"HTTP/1.1 404 Not Found\r\nContent-Length: 1\r\n\r\na", 404, b"a"),
}
"""What the service says, and the status and the body of it."""

CUT = {
    "by length": OK + b"Content-Length: 9\r\n\r\nabc",
    "in chunks": CHUNKED + b"3\r\nabc\r\n",
    "in a chunk": CHUNKED + b"9\r\nabc",
    "behind a chunk of another length": CHUNKED + b"3\r\nabcd\r\n0\r\n\r\n",
    "before the last line": CHUNKED + b"3\r\nabc\r\n0\r\n",
}
"""Answers that do not come whole."""


@pytest.mark.parametrize("hops", [0, 1, 2] if EACH_WAY else [0])
@pytest.mark.parametrize("place", ["before", "behind"])
async def test_everybody_reads_the_same_answers(kind, place, hops):
    async with chain(kind, place, hops) as way:
        for name, (said, status, body) in ANSWERS.items():
            read = await way.bring(said)
            assert (read[-1].status, read[-1].body) == (status, body), name
            assert read[-1].is_whole, name
        for name, said in CUT.items():
            read = await way.bring(said)
            assert not [one for one in read if one.status == 200 and one.is_whole], name
