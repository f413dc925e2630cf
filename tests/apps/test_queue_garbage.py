"""A producer of the queue under what is no proper call: wrong bodies, wrong framing, and 1 500
requests of `support.malformed`, 100 000 with SPILLOVER_SOAK_S."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
import uvloop

from support.malformed import BATCH, IS_SOAK, Dialect, Sender
from support.queue_service import Producer, call, connected, producers, until

COUNT = 100_000 if IS_SOAK else 1_500
FILES_MORE = 64
"""Connections that the two producers keep to each other, both ends of each in this process."""
RSS_GROWTH_BYTES = 32 * 2**20
"""From a quarter of all that is sent to the end of it: what ended is remembered for a while."""

SOON = b"Spillover-Deadline-Ms: 5\r\n"
"""Nobody waits longer for a place, or for an object."""
PROBE = (
    *(b"id", b"first", b"consumer", b"hop", b"max_hops", b"access", b"left_ms"),
    *(b"avoid_visited", b"visited"),
)
FIELDS = {
    b"/objects": (),
    b"/take": (b"consumer", b"probe_id", b"max_hops", b"access", b"avoid_visited"),
    b"/peer/v1/queue/probe": PROBE,
    b"/peer/v1/queue/offer": (b"probe_id", b"producer", b"grant", b"probes"),
    b"/grants/g/extend": (b"visibility_ms",),
    b"/grants/g/ack": (),
}
GOOD = {
    b"consumer": b'"c"', b"probe_id": b'"p"', b"max_hops": b"2", b"access": b'{"p1":0.5,"p2":0.5}',
    b"avoid_visited": b"false", b"id": b'"p"', b"first": b'"p2"', b"hop": b"1", b"left_ms": b"9",
    b"visited": b'["p2"]', b"producer": b'"p2"', b"grant": b'"g"', b"probes": b"1",
    b"visibility_ms": b"10",
}  # fmt: skip
ODD_PATHS = [
    b"/objects/%00", b"/objects/%0d%0aSet-Cookie:%20a", b"/objects/" + b"x" * 9000, b"/objects//",
    b"/grants/g", b"/grants/%ff/ack", b"/grants/g/nack", b"/grants//ack", b"/grants/../../ack",
    b"/peer/", b"/peer/v2/queue/probe", b"/peer/v1/queue/", b"/peer/v2/forward", b"/dead",
    b"/dead/-1", b"/dead/1e9", b"/dead/" + b"9" * 5000, b"/dead/1/put-back", b"/dead/x/put-back",
    b"/explain/%0a", b"/explain/p", b"/explain/", b"//", b"/%", b"/../etc/passwd", b"*", b"/take?x",
    b"/state?" + b"a=b&" * 999, b"/metrics?a[]", b"/admin", b"/admin/policy", b"/openapi.json/..",
]  # fmt: skip
SEEDS = [
    b"POST /objects HTTP/1.1\r\nHost: a\r\n" + SOON + b"Content-Length: 9\r\n\r\nan object",
    (
        b"POST /objects HTTP/1.1\r\nHost: a\r\nContent-Type: text/plain\r\n" + SOON
        + b"Transfer-Encoding: chunked\r\n\r\n9\r\nan object\r\n0\r\n\r\n"
    ),
    (
        b"POST /take HTTP/1.1\r\nHost: a\r\n" + SOON + b"Content-Length: 33\r\n\r\n"
        b'{"consumer": "c","probe_id": "p"}'
    ),
    (
        b"POST /take HTTP/1.1\r\nHost: a\r\nContent-Length: 31\r\n\r\n"
        b'{"consumer":"c","probe_id":"q"}'
    ),
    b"POST /grants/g/ack HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
    b"GET /objects/g HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /state HTTP/1.1\r\nHost: a\r\n\r\nGET /dead HTTP/1.1\r\nHost: a\r\n\r\n",
    (
        b"POST /peer/v1/queue/probe HTTP/1.1\r\nHost: a\r\nContent-Length: 88\r\n\r\n"
        b'{"id":"p","first":"p2","consumer":"c","hop":1,"max_hops":2,"access":{"p2":1},"left_ms":9}'
    ),
    (
        b"POST /peer/v1/queue/offer HTTP/1.1\r\nHost: a\r\nContent-Length: 55\r\n\r\n"
        b'{"probe_id":"p","producer":"p2","grant":"g","probes":1}'
    ),
    b"DELETE /dead/1 HTTP/1.1\r\nHost: a\r\n\r\nPOST /dead/1/put-back HTTP/1.1\r\nHost: a\r\n\r\n",
]  # fmt: skip

DIALECT = Dialect(
    fields=FIELDS,
    good=GOOD,
    odd_paths=ODD_PATHS,
    seeds=SEEDS,
    headers={b"/objects": [SOON], b"/take": [SOON]},
)


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


@pytest.mark.slow
def test_a_producer_survives_all_that_is_no_call(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Every answer is a proper one, none is a 500; afterwards nothing of it is left."""
    changed = {"visibility_s": 0.05, "deliveries_max": 3}
    with producers(2, stores=tmp_path, object_limit_bytes=65_536, **changed) as (one, _):
        parts = urlsplit(one.url)
        assert parts.hostname is not None
        assert parts.port is not None
        sender = Sender(parts.hostname, parts.port, DIALECT)
        process, rss_bytes, jobs = psutil.Process(), [], COUNT // BATCH
        assert one.put(b"x").status == 201
        files = process.num_fds()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            for quarter in range(4):
                runner.run(sender.run(range(quarter * jobs // 4, (quarter + 1) * jobs // 4)))
                assert call(f"{one.url}/healthz").status == 200
                rss_bytes.append(process.memory_info().rss)
        assert sender.answers.sent == COUNT
        assert {200, 201, 400, 404, 405, 422} <= set(sender.answers.by_status)
        names = ("granted", "takes", "waiting", "parked")
        until(lambda: not any(one.state[name] for name in names))
        until(lambda: process.num_fds() <= files + FILES_MORE)
        assert rss_bytes[-1] - rss_bytes[0] < RSS_GROWTH_BYTES
        state = one.state
        kept = state["acknowledged"] + state["buffered"] + state["dead"] + state["discarded"]
        assert state["produced"] == kept
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
