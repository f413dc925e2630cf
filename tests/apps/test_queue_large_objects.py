"""Objects that are large: read right to where they stay, whatever comes before and behind them."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest

from spillover.live.http1.large_bodies import LARGE_BYTES
from support.queue_service import Producer, connected, producers, until

LIMIT_S = 30.0
CONTENT = os.urandom(8 * LARGE_BYTES + 1)


@pytest.fixture
def producer() -> Iterator[Producer]:
    with producers(buffers=3, object_limit_bytes=64 << 20) as (one,):
        yield one


def head(size_bytes: int, *lines: bytes) -> bytes:
    told = [b"POST /objects HTTP/1.1", b"Host: a", b"Content-Length: %d" % size_bytes, *lines]
    return b"\r\n".join(told) + b"\r\n\r\n"


def admitted(producer: Producer) -> int:
    """How many objects have a place and are not here whole."""
    assert producer.shell is not None
    return producer.shell.machine.room.admitted


@pytest.mark.parametrize("first", [0, 1, 100_000, len(CONTENT) - LARGE_BYTES, len(CONTENT) - 1])
def test_one_after_another_on_one_connection(producer: Producer, first: int) -> None:
    with closing(connected(producer.url)) as line:
        for _ in range(3):
            line.sendall(head(len(CONTENT)) + CONTENT[:first])
            until(lambda: admitted(producer) == 1)
            line.sendall(CONTENT[first:])
            assert line.recv(65_536).startswith(b"HTTP/1.1 201")
    for _ in range(3):
        assert producer.take().body == CONTENT


def test_a_request_right_behind_one_is_answered_in_its_turn(producer: Producer) -> None:
    with closing(connected(producer.url)) as line:
        line.sendall(head(len(CONTENT)) + CONTENT + head(3) + b"two" + b"GET /nowhere HTTP/1.1\r\n")
        line.sendall(b"Host: a\r\nConnection: close\r\n\r\n")
        told = b""
        while part := line.recv(65_536):
            told += part
    statuses = [one[:3] for one in told.split(b"HTTP/1.1 ")[1:]]
    assert statuses == [b"201", b"201", b"404"]
    assert [producer.take().body for _ in range(2)] == [CONTENT, b"two"]


def test_whoever_asks_first_whether_to_send_it_may(producer: Producer) -> None:
    with closing(connected(producer.url)) as line:
        line.sendall(head(len(CONTENT), b"Expect: 100-continue"))
        assert line.recv(12) == b"HTTP/1.1 100"
        line.sendall(CONTENT)
        told = b""
        while b"HTTP/1.1 201" not in told:
            told += line.recv(65_536)
    assert producer.take().body == CONTENT


def test_one_that_breaks_off_leaves_nothing(producer: Producer) -> None:
    for _ in range(3):
        with closing(connected(producer.url)) as line:
            line.sendall(head(len(CONTENT)) + CONTENT[: len(CONTENT) // 2])
            until(lambda: admitted(producer) == 1)
        until(lambda: admitted(producer) == 0)
    assert producer.state["produced"] == 0
    assert producer.put(CONTENT).status == 201


def test_one_takes_its_own_memory_once(producer: Producer) -> None:
    content = bytes(16 << 20)
    parts = urlsplit(producer.url)
    connection = HTTPConnection(parts.netloc, timeout=LIMIT_S)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        connection.request("POST", "/objects", content)
        assert connection.getresponse().status == 201
        assert tracemalloc.get_traced_memory()[1] - before < 1.5 * len(content)
    finally:
        tracemalloc.stop()
        connection.close()
