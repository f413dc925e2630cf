"""Clients of a service's door that are slow: each thing has its time and no less, and what the
service takes is none of it.
"""

from __future__ import annotations

import asyncio
import time

import pytest

from spillover.live.http1 import bounds
from spillover.live.http1.bounds import Bounds
from support.federation import turn, until
from support.passed_requests import get, post
from support.proxy_doors import in_front, told

SHORT_S = 0.1

HALF_A_BODY = post(b"Content-Length: 10")


@pytest.fixture(autouse=True)
def _looked_at_often(monkeypatch):
    monkeypatch.setattr(bounds, "SWEEP_S", 0.02)


@pytest.mark.parametrize(
    ("bound", "said", "reason"),
    [
        ("head_s", b"G", "head_too_slow"),
        ("head_s", get()[:-2], "head_too_slow"),
        ("body_s", HALF_A_BODY, "body_too_slow"),
        ("body_s", post(b"Transfer-Encoding: chunked", body=b"5\r\nhel"), "body_too_slow"),
    ],
)
def test_what_has_begun_and_does_not_come_whole_is_408(bound, said, reason):
    """And the connection is closed; the service hears nothing of it."""

    async def check(here):
        client = await here.client()
        begun_s = time.monotonic()
        read = await client.ask(said)
        assert time.monotonic() - begun_s >= SHORT_S
        problem = told(read)
        assert (read.status, problem["status"], problem["reason"]) == (408, 408, reason)
        assert f"{SHORT_S:g} s" in problem["detail"]
        assert read.get(b"connection") == "close"
        assert await client.reader.read() == b""
        assert here.service.seen == []

    in_front(check, bounds=Bounds(**{bound: SHORT_S}))


@pytest.mark.parametrize("asked", [0, 1, 2])
def test_a_connection_on_which_nothing_is_said_is_closed_without_a_word(asked):
    """Before the first request, and after any."""

    async def check(here):
        client = await here.client()
        for _ in range(asked):
            assert (await client.ask(get())).body == b"ok"
        door = here.doors["a"]
        door.bounds.idle_s = SHORT_S
        (connection,) = await until(lambda: door.connections)
        begun_s = time.monotonic()
        connection.await_request()
        assert await client.reader.read() == b""
        assert time.monotonic() - begun_s >= SHORT_S
        await until(lambda: not door.connections)

    in_front(check)


def test_what_the_service_takes_is_no_time_of_its_client():
    """Nor is what a client takes that has all of its request answered before."""

    async def late(talk, *_):
        await turn(2 * SHORT_S)
        await talk.say(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        return True

    async def check(here):
        here.service.answer = late
        client = await here.client()
        for raw in (get(), post(b"Content-Length: 5")):
            read = await client.ask(raw)
            assert (read.status, read.body, read.is_whole) == (200, b"ok", True)

    in_front(check, bounds=Bounds(head_s=SHORT_S, body_s=SHORT_S, unread_s=SHORT_S))


@pytest.mark.parametrize("lines", [b"Content-Length: 10000", b"Transfer-Encoding: chunked"])
def test_a_body_may_take_its_time_as_long_as_it_comes(lines):
    """However long that is: beyond the deadline, too, which is not for uploads unless a client says
    so itself. One that trickles, or begins well and then stops, ends."""
    is_chunked = b"chunked" in lines

    async def upload(client, piece, count):
        answering = asyncio.ensure_future(client.answer())
        client.writer.write(post(lines, b"Expect: 100-continue", body=b""))
        assert (await answering).status == 100
        answering = asyncio.ensure_future(client.answer())
        for _ in range(count):
            client.writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if is_chunked else piece)
            await turn(SHORT_S / 4)
            if answering.done():
                break
        if is_chunked and not answering.done():
            client.writer.write(b"0\r\n\r\n")
        return await answering

    async def check(here):
        begun_s = time.monotonic()
        read = await upload(await here.client(), b"x" * 500, 20)
        assert (read.status, read.body) == (200, b"ok")
        assert time.monotonic() - begun_s >= 4 * SHORT_S
        ((_, body),) = here.service.seen
        assert body == b"x" * 10_000
        read = await upload(await here.client(), b"x", 100)
        assert (read.status, told(read)["reason"]) == (408, "body_too_slow")
        assert "500 bytes/s" in told(read)["detail"]
        stops = await here.client()
        stops.writer.write(post(b"Content-Length: 20000", body=b"x" * 10_000))
        assert (await stops.answer()).status == 408
        assert len(here.service.seen) == 1

    in_front(check, bounds=Bounds(body_s=SHORT_S), default_deadline_ms=2e3 * SHORT_S)
