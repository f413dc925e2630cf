"""Answers with large bodies, which are read right to where they stay: on both kinds of loops, and
whatever comes before, behind and instead of them."""

from __future__ import annotations

import asyncio
import os
import tracemalloc
from contextlib import asynccontextmanager, suppress

import pytest
import uvloop

from spillover.live.http1.client import HttpClient
from spillover.live.http1.large_bodies import LARGE_BYTES
from spillover.model.errors import OutcomeUnknown
from support.loop import turn, until

LIMIT_S = 20.0
CONTENT = os.urandom(8 * LARGE_BYTES)
LOOPS = pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def head(size_bytes, *lines):
    told = [b"HTTP/1.1 200 OK", b"Content-Length: %d" % size_bytes, *lines]
    return b"\r\n".join(told) + b"\r\n\r\n"


@asynccontextmanager
async def serving(*answers, **options):
    """A client of a server that gives these answers, one for each request, each in parts with a
    pause between them; None closes. And the connections that were made."""
    left = list(answers)
    ends = []
    serves = []

    async def serve(reader, writer):
        ends.append(writer)
        while await reader.readuntil(b"\r\n\r\n"):
            for part in left.pop(0):
                if part is None:
                    return
                writer.write(part)
                await writer.drain()
                await turn(0.01)

    async def guarded(reader, writer):
        serves.append(asyncio.current_task())
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await serve(reader, writer)
        with suppress(ConnectionError):
            writer.close()
            await writer.wait_closed()

    server = await asyncio.start_server(guarded, "127.0.0.1", 0)
    client = HttpClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", **options)
    try:
        yield client, ends
    finally:
        await client.close()
        server.close()
        await asyncio.gather(*serves)


@pytest.mark.parametrize("first", [0, 1, 70_000, len(CONTENT) - LARGE_BYTES, len(CONTENT) - 1])
@LOOPS
async def test_a_large_body_comes_whole_and_its_connection_goes_on(loop, first) -> None:
    whole = head(len(CONTENT)) + CONTENT[:first], CONTENT[first:]

    async with serving(whole, [OK], whole) as (client, ends):
        for body in (CONTENT, b"ok", CONTENT):
            answer = await client.request("GET", "/", timeout_s=LIMIT_S)
            assert (answer.status, answer.body) == (200, body)
            assert type(answer.body) is bytes
        assert len(ends) == 1


def test_it_costs_its_own_memory_once() -> None:
    size = 16 << 20
    content = bytes(size)

    async def main():
        async with serving([head(size), content]) as (client, _):
            tracemalloc.start()
            try:
                before, _ = tracemalloc.get_traced_memory()
                answer = await client.request("GET", "/", timeout_s=LIMIT_S)
                assert len(answer.body) == size
                assert tracemalloc.get_traced_memory()[1] - before < 1.5 * size
            finally:
                tracemalloc.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(main(), LIMIT_S))


@LOOPS
async def test_one_that_ends_early_is_no_answer(loop) -> None:
    broken = [head(len(CONTENT)), CONTENT[:-1], None]
    async with serving(broken, [OK]) as (client, ends):
        with pytest.raises(OutcomeUnknown, match="before the answer was whole"):
            await client.request("GET", "/", timeout_s=LIMIT_S)
        assert (await client.request("GET", "/", timeout_s=LIMIT_S)).body == b"ok"
        assert len(ends) == 2


@LOOPS
async def test_what_comes_behind_it_is_no_answer_to_the_next(loop) -> None:
    behind = [head(len(CONTENT)), CONTENT + b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad"]
    async with serving(behind, [OK]) as (client, _):
        assert (await client.request("GET", "/", timeout_s=LIMIT_S)).body == CONTENT
        await until(lambda: not client.idle)  # it is closed for what nobody asked for
        assert (await client.request("GET", "/", timeout_s=LIMIT_S)).body == b"ok"


@LOOPS
async def test_excerpts_are_read_as_ever(loop) -> None:
    refused = head(len(CONTENT)).replace(b"200 OK", b"500 No")
    async with serving([refused, CONTENT], excerpt_bytes=10) as (client, _):
        answer = await client.request("GET", "/", timeout_s=LIMIT_S)
        assert (answer.status, answer.body) == (500, CONTENT[:10])
        assert client.idle == 0, "the rest of it would be taken for the next answer"
