"""A producer of the queue under what is no proper call: wrong bodies, wrong framing."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from support.queue_service import Producer, call, connected, producers


@pytest.fixture
def producer() -> Iterator[Producer]:
    with producers() as (one,):
        yield one


BODIES = [
    *(b"", b"null", b"[]", b"{", b"\xff\xfe{}", b"[" * 50_000, b'{"consumer":' * 5_000),
    *(b'{"consumer":"\\ud800","probe_id":"p"}', b'{"consumer":1e999,"probe_id":{}}'),
    *(b'{"consumer":"c","probe_id":"p","access":{"p1":1e-400}}', b'"' + b"x" * 300_000 + b'"'),
]
FRAMINGS = [
    b"Content-Length: -1", b"Content-Length: 5\r\nContent-Length: 6", b"Transfer-Encoding: x",
    b"Transfer-Encoding: chunked\r\nContent-Length: 3", b"Expect: 100-continue",
    b"Spillover-Deadline-Ms: 1\r\nSpillover-Deadline-Ms: x", b"Content-Type: \x80\xff",
]  # fmt: skip


def test_whatever_comes_is_answered_with_a_4xx_or_not_at_all(producer: Producer) -> None:
    paths = ["/take", "/peer/v1/queue/probe", "/peer/v1/queue/offer", "/grants/%00/ack"]
    paths += ["/grants/g%0d%0aA:b/extend", "/grants/g/extend", "/objects/" + "x" * 300]
    for path in paths:
        for body in BODIES:
            answer = call(f"{producer.url}{path}", "POST", body)
            assert 400 <= answer.status < 500, (path, body[:40], answer)
    for path in ("/objects", "/take"):
        for framing in FRAMINGS:
            with closing(connected(producer.url)) as line:
                head = b"POST %b HTTP/1.1\r\nHost: a\r\n%b\r\n\r\n" % (path.encode(), framing)
                line.sendall(head + b"0\r\n\r\n")
                line.shutdown(socket.SHUT_WR)
                said = line.recv(12)
                assert not said.startswith(b"HTTP/1.1 5"), (path, framing)
    state = producer.state
    assert state["granted"] == state["takes"] == state["waiting"] == state["parked"] == 0
