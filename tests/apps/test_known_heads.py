"""Requests whose head has come before are read without the parser; nothing else about them differs.

The first of each goes by the parser, those after it are known, whatever their length.
"""

import msgspec

from spillover.live.overflow import wire
from spillover.live.overflow.identity import HELLO, hello_of
from spillover.live.overflow.protocol import SPOKEN
from spillover.model.request import Request
from support.federation import alone, answer_of

ONE = b'{"payload": {"service_ms": 0}}'
CLIENTS = "POST /requests HTTP/1.1\r\nhost: a\r\n{}content-length: {}\r\n\r\n"


def heads_of(node):
    return node.server._service.known.meanings


def client_says(body=ONE, lines=""):
    return CLIENTS.format(lines, len(body)).encode() + body


def neighbor_says(number, lines=b""):
    request = Request(f"r{number}", keyed=True, work=msgspec.Raw(b'{"service_ms": 0}'), path=("a",))
    body = b"".join(wire.encode_forward(request, 5.0))
    hello = hello_of(wire.Caller("a", "b", "test"))
    told = (SPOKEN[0].forward.encode(), HELLO, hello, lines, len(body))
    return b"POST %b HTTP/1.1\r\nhost: b\r\n%b: %b\r\n%bcontent-length: %d\r\n\r\n" % told + body


class Line:
    """A connection, on which answers come whole."""

    def __init__(self, reader, writer):
        self._reader, self._writer = reader, writer

    @classmethod
    async def to(cls, node):
        return cls(*await node.connect())

    async def say(self, *parts):
        for part in parts:
            self._writer.write(part)
            await self._writer.drain()
        return await answer_of(self._reader)

    def close(self):
        self._writer.close()


async def test_a_client_that_says_the_same_is_answered_the_same():
    async with alone() as node:
        other = b'{"payload": {"service_ms": 0, "more": "of it"}}'
        for _ in range(2):
            line = await Line.to(node)
            for said in (client_says(), client_says(other), client_says()):
                assert (await line.say(said))[0] == 200
                assert len(heads_of(node)) == 1
            assert (await line.say(client_says(), b""))[0] == 200
            assert (await line.say(client_says(b'{"payload": 1, "x": 2}')))[0] == 422
            assert (await line.say(client_says(b"{")))[0] == 422
            assert (await line.say(client_says()))[0] == 200
            line.close()


async def test_what_is_secret_or_another_each_time_is_not_remembered():
    lines = (
        "authorization: Bearer secret\r\n",
        "proxy-authorization: Bearer secret\r\n",
        "idempotency-key: k\r\nidempotency-key: k\r\n",
        "idempotency-key: k\t\r\n",
        "cookie: a=b\r\n",
        "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n",
        "origin: http://elsewhere\r\n",
        "content-length: 30\r\n",
        "connection: close\r\n",
    )
    async with alone() as node:
        for one in lines:
            line = await Line.to(node)
            await line.say(client_says(lines=one))
            assert not heads_of(node), one
            line.close()


async def test_a_key_is_another_one_each_time():
    """Each names its own request, and an empty one none, whatever was known before."""
    async with alone() as node:
        line = await Line.to(node)
        ids = []
        for key in ("k1", "k2", "k1", "k-3"):
            status, answer = await line.say(client_says(lines=f"Idempotency-Key: {key}\r\n"))
            assert (status, answer["id"]) == (200, key)
            ids.append(answer["id"])
            assert [known.is_keyed for known in heads_of(node).values()] == [True]
        assert (await line.say(client_says(lines="Idempotency-Key: \r\n")))[0] == 422
        status, answer = await line.say(client_says())
        assert (status, answer["id"] in ids) == (200, False)
        assert node.ledger.home["accepted"] == 4
        line.close()


async def test_a_neighbor_says_who_it_is_on_each_connection():
    """A head that is known from one connection proves nothing on another."""
    async with alone("b", "a", clusters={"b": {"servers": 4}}) as node:
        for first in (0, 10):
            line = await Line.to(node)
            for number in range(first, first + 4):
                status, answer = await line.say(neighbor_says(number))
                assert (status, answer["outcome"]) == (200, "done")
            assert len(heads_of(node)) == 1
            assert all(known.of_peers for known in heads_of(node).values())
            line.close()
