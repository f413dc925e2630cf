"""Requests whose sender is called back: once, whatever becomes of them; never after a cancel. And
connections that are open before they are asked for."""

import asyncio
import contextlib
import selectors
import socket
import time
from functools import partial

import pytest

from spillover.live.http1 import client as http_client
from spillover.live.http1 import kept
from spillover.live.http1.client import HttpClient, Response
from spillover.model.errors import NotDelivered
from support import loop

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@contextlib.asynccontextmanager
async def serving(answer, **options):
    """A client of a server that gives each request this answer, or none; and the heads it got."""
    heads = []

    async def serve(reader, writer):
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                heads.append(await reader.readuntil(b"\r\n\r\n"))
                if answer is None:
                    break
                writer.write(answer)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        client = HttpClient(f"http://127.0.0.1:{port}", **options)
        try:
            yield client, heads
        finally:
            await client.close()


turn = partial(loop.turn, 0.0)
until = partial(loop.until, every_s=0.0)
"""One turn of the loop, and no more: what is not there yet is what these tests are about."""


def sent(client, **options):
    """The exchange, and the list of all that its sender is told."""
    told = []
    return client.send("GET", "/", told.append, timeout_s=None, **options), told


async def test_an_answer_is_told_once():
    """And its connection is free again before: who is told may send the next request on it."""
    async with serving(OK) as (client, heads):
        told, idle = [], []

        def next_one(came_to):
            told.append(came_to)
            idle.append(client.idle)
            if len(told) < 3:
                client.send("GET", "/", next_one, timeout_s=None)

        client.send("GET", "/", next_one, timeout_s=None)
        await until(lambda: len(told) == 3)
        assert [type(came_to) for came_to in told] == [Response] * 3
        assert (idle, len(heads), client.idle, client.busy) == ([1, 1, 1], 3, 1, 0)


async def test_nothing_is_told_after_a_cancel():
    """Before it is sent, and while its answer is awaited: then the connection closes."""
    async with serving(OK) as (client, heads):
        unsent, told = sent(client)
        unsent.cancel()
        await client.warm(1)
        away, told_too = sent(client)
        away.cancel()
        await until(lambda: (client.idle, client.busy) == (0, 0))
        assert (told, told_too, len(heads)) == ([], [], 0)


async def test_what_is_cancelled_while_its_connection_is_made_is_never_sent():
    """Also in the very turn in which the connection is there."""
    for _ in range(4):
        async with serving(OK) as (client, heads):
            asked = client.request("GET", "/", timeout_s=None)
            await until(asked.exchange.opening.done)
            asked.cancel()
            await client.warm(1)
            await client.request("GET", "/after", timeout_s=None)
            assert [head.split()[1] for head in heads] == [b"/after"]


async def test_a_client_that_closes_tells_who_still_waits_for_a_connection():
    """Also where the connection has just been made."""
    async with serving(OK) as (client, heads):
        exchange, told = sent(client)
        await until(exchange.opening.done)
        await client.close()
        assert ([type(came_to) for came_to in told], heads) == ([NotDelivered], [])
        assert (client.idle, client.busy) == (0, 0)


# --- connections that nobody has asked for yet ----------------------------------------------------


async def test_the_next_sweep_is_when_the_next_one_is_too_old():
    """Some seconds after the first is idle; and where all are gone there is none."""
    now_s = asyncio.get_running_loop().time
    async with serving(OK) as (client, _):
        assert client._kept.sweep is None
        began_s = now_s()
        await client.warm(3)
        assert began_s + 3.0 < client._kept.sweep.when() < now_s() + 4.1
        began_s = now_s()
        for connection, age_s in zip(client._kept.idle, (4.5, 2.5, 1.5), strict=True):
            connection.idle_since_s = time.monotonic() - age_s
        client._kept.sweep.cancel()
        client._kept.close_expired()
        assert client.idle == 2
        assert began_s + 0.5 < client._kept.sweep.when() <= now_s() + 1.6
        for connection in client._kept.idle:
            connection.idle_since_s -= 30.0
        client._kept.sweep.cancel()
        client._kept.close_expired()
        assert (client.idle, client._kept.sweep) == (0, None)
        await client.warm(1)
        assert client._kept.sweep is not None


async def test_a_sweep_closes_so_many_at_once_and_the_rest_soon(monkeypatch):
    """It must not hold up the loop."""
    monkeypatch.setattr(kept, "SWEEP_AT_ONCE", 2)

    async with serving(OK) as (client, _):
        await client.warm(5)
        for connection in client._kept.idle:
            connection.idle_since_s -= 31.0
        client._kept.sweep.cancel()
        left = []
        while client.idle:
            client._kept.close_expired()
            left.append(client.idle)
            if client._kept.sweep is not None:
                assert client._kept.sweep.when() - asyncio.get_running_loop().time() < 1.0
                client._kept.sweep.cancel()
        assert left == [3, 1, 0]


async def test_of_many_connections_a_few_are_opened_at_a_time(monkeypatch):
    """Fewer than may wait at a server's door."""
    monkeypatch.setattr(http_client, "WARM_AT_ONCE", 2)

    async with serving(OK) as (client, _):
        most, warming = 0, asyncio.ensure_future(client.warm(5))
        while not warming.done():
            await turn()
            most = max(most, len(client._connecting))
        assert (most, client.idle, client.busy) == (2, 5, 0)
        await client.warm(4)
        assert client.idle == 5


@pytest.mark.parametrize("told_s", [12.0, None])
async def test_the_system_watches_over_connections_that_are_to_be_watched(told_s):
    async with serving(OK, user_timeout_s=told_s) as (client, _):
        await client.warm(1)
        opened = next(iter(client._kept.idle))._transport.get_extra_info("socket")
        is_watched = opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) != 0
        assert is_watched is (told_s is not None)


class Counting(selectors.DefaultSelector):
    """It counts how often a loop asks for events."""

    looks = 0

    def select(self, timeout=None):
        self.looks += 1
        return super().select(timeout)


def test_a_request_without_a_body_leaves_the_loop_at_rest():
    """Asyncio never gets rid of an empty part that it is given to write, and tries without end."""
    selector = Counting()

    async def main():
        asked, answers = asyncio.Event(), asyncio.Event()

        async def serve(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            asked.set()
            await answers.wait()
            writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
            writer.close()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            client = HttpClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
            answer = client.request("GET", "/", timeout_s=20.0)
            await asked.wait()
            before = selector.looks
            asyncio.get_running_loop().call_later(0.1, answers.set)
            assert (await answer).status == 204
            assert selector.looks - before < 50
            await client.close()

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        runner.run(asyncio.wait_for(main(), 20.0))
