"""Clients of a service's door that are slow: each thing has its time and no less, and what the
service takes is none of it.
"""

import time

import pytest

from spillover.live.http1 import bounds
from spillover.live.http1.bounds import Bounds
from support.federation import until
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
async def test_what_has_begun_and_does_not_come_whole_is_408(bound, said, reason):
    """And the connection is closed; the service hears nothing of it."""
    async with in_front(bounds=Bounds(**{bound: SHORT_S})) as here:
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


@pytest.mark.parametrize("asked", [0, 1, 2])
async def test_a_connection_on_which_nothing_is_said_is_closed_without_a_word(asked):
    """Before the first request, and after any."""
    async with in_front() as here:
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
