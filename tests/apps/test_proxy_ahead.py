"""What clients of a service's door send though nobody asked for it yet: it waits for its turn, and
there is never much of it; behind a refusal it is thrown away, for a while.
"""

import asyncio

import pytest

from spillover.live.http1 import server_connection
from support.federation import turn, until
from support.passed_requests import get, post
from support.proxy_doors import in_front

READ_BYTES_MAX = 1_048_576
"""More than a transport reads at a time."""

MANY = 300
PADDING = b"X-Padding: " + b"x" * 10_000


async def test_of_what_comes_behind_a_request_under_way_little_is_read():
    """And all of it is answered later, in its order."""
    async with in_front() as here:
        go = asyncio.Event()

        async def held(talk, head, _):
            await go.wait()
            target = head.split(b" ")[1]
            await talk.say(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(target) + target)
            return True

        here.service.answer = held
        client = await here.client()
        client.writer.write(get(target=b"/first"))
        await until(lambda: here.service.seen)
        (connection,) = here.doors["a"].connections
        for number in range(MANY):
            client.writer.write(get(PADDING, target=b"/%d" % number))
        last = -1

        async def stands_still():
            nonlocal last
            before, last = last, client.writer.transport.get_write_buffer_size()
            await turn(0.02)
            return last == before and len(connection._ahead) > server_connection.AHEAD_MAX_BYTES

        await until(stands_still)
        assert len(connection._ahead) <= server_connection.AHEAD_MAX_BYTES + READ_BYTES_MAX
        assert len(here.service.seen) == 1
        go.set()
        bodies = [(await client.answer()).body for _ in range(MANY + 1)]
        assert bodies == [b"/first", *(b"/%d" % number for number in range(MANY))]


REFUSED = post(b"Content-Length: five")


@pytest.mark.parametrize("raw", [REFUSED, post(b"Content-Length: 60000000")])
async def test_who_sends_on_behind_a_refusal_is_read_on_and_told(raw):
    """However much it is: a connection that closes meanwhile is reset, and the answer lost."""
    async with in_front() as here:
        client = await here.client()
        client.writer.write(raw)
        (connection,) = here.doors["a"].connections
        for _ in range(60):
            client.writer.write(b"x" * 1_000_000)
            await client.writer.drain()
        read = await client.answer()
        assert (read.status, read.is_whole) == (400 if raw is REFUSED else 413, True)
        assert await client.reader.read() == b""
        client.writer.write(b"x" * 1_000_000)
        await client.writer.drain()
        client.close()
        await until(lambda: connection not in here.doors["a"].connections)
        assert here.service.seen == []
