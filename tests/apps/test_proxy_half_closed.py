"""Clients of a service's door that close their half of the connection behind their request: what
they wait for is the answer that they would have got, to the byte, however it comes.
"""

from __future__ import annotations

import pytest

from support.federation import turn, until
from support.passed_requests import get, post
from support.proxy_doors import in_front

PIECES = (b"abc", b"defg", b"", b"h")

WAITS_S = 0.02


def framed(how, piece):
    return b"%x\r\n%b\r\n" % (len(piece), piece) if how == "chunked" and piece else piece


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("how", ["length", "chunked", "to the end"])
def test_an_answer_that_comes_in_pieces_arrives_as_it_is(how, begun):
    """To who closes its half before it begins, and to who does so in its midst."""
    lines = {"length": b"Content-Length: 8\r\n", "chunked": b"Transfer-Encoding: chunked\r\n"}

    async def slow(talk, *_):
        await turn(WAITS_S)
        await talk.say(b"HTTP/1.1 200 OK\r\n" + lines.get(how, b"Connection: close\r\n") + b"\r\n")
        for piece in PIECES:
            await turn(WAITS_S)
            await talk.say(framed(how, piece))
        await talk.say(b"0\r\n\r\n" if how == "chunked" else b"")
        return how != "to the end"

    async def check(here):
        here.service.answer = slow
        for raw in (get(), post(b"Content-Length: 5")):
            client = await here.client()
            client.writer.write(raw)
            if begun:
                (connection,) = await until(lambda: here.doors["a"].connections)
                await until(lambda one=connection: one._answer and one._answer.has_begun)
            client.writer.write_eof()
            read = await client.answer()
            assert (read.status, read.body, read.is_whole) == (200, b"abcdefgh", True)
            assert await client.reader.read() == b"", "nothing comes behind it"
            client.close()
            await until(lambda: not here.doors["a"].connections)

    in_front(check)
