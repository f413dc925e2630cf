"""Requests that a thread sends by itself, over a socket that blocks: what becomes of connections,
and who ends what is under way."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager

import msgspec
import pytest

from spillover.client import Cancelled, OutcomeUnknown, Refused, Retries, Spillover
from spillover.live.http1 import blocking
from support.waiting import until


def answer(result=None, status="200 OK", lines=""):
    """What a node says."""
    fields = {
        "id": "x", "result": result, "cluster": "a", "path": ["a"], "hops": 0, "timing_ms": {},
    }  # fmt: skip
    return said(fields, status, lines)


def said(fields, status, lines=""):
    body = msgspec.json.encode(fields)
    return f"HTTP/1.1 {status}\r\n{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body


@contextmanager
def server(*connections):
    """Its url, and what it was sent: connection by connection a list of answers, one for each
    request; after the last one it closes."""
    requests = []

    def serve():
        for answers in connections:
            opened, _ = listening.accept()
            with opened:
                for one in answers:
                    request = b""
                    while b"}" not in request:
                        if not (piece := opened.recv(65536)):
                            break
                        request += piece
                    requests.append(request)
                    opened.sendall(one)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", requests
        thread.join(10.0)
        assert not thread.is_alive()


def test_a_connection_carries_one_request_after_another():
    with server([answer(n) for n in range(5)]) as (url, requests), Spillover(url) as spillover:
        assert [spillover.run(None).result for _ in range(5)] == list(range(5))
        assert len(requests) == 5


def test_a_connection_that_the_node_has_closed_meanwhile_is_not_used():
    """Not even once: a request without a name would be lost."""
    with server([answer(1)], [answer(2)]) as (url, _), Spillover(url) as spillover:
        assert spillover.run(None, at_most_once=True).result == 1
        client = next(iter(spillover._client._calls._blocking.values()))
        until(lambda: not client._lines[client._idle[0]].is_quiet())
        assert spillover.run(None, at_most_once=True).result == 2
        assert spillover.stats.retries == 0


def test_what_may_have_run_is_sent_again_under_the_same_name():
    broken = answer("half")[:-10]
    with server([broken], [answer(1)]) as (url, requests), Spillover(url) as spillover:
        assert spillover.run(None).result == 1
        assert spillover.stats.retries == 1
        names = [line for one in requests for line in one.split(b"\r\n") if b"idempotency" in line]
        assert len(names) == 2
        assert names[0] == names[1]


def test_what_may_have_run_at_most_once_is_unknown():
    with server([b""]) as (url, _), Spillover(url) as spillover:
        with pytest.raises(OutcomeUnknown):
            spillover.run(None, at_most_once=True)
        assert spillover.stats.failed == 1


def test_a_refusal_is_tried_again_after_a_wait_and_costs_a_token():
    full = said({"reason": "queue_full"}, "429 Too Many", "Retry-After: 0\r\n")
    with server([full], [answer(1)]) as (url, _), Spillover(url) as spillover:
        assert spillover.run(None).result == 1
        assert spillover.stats.retries == 1


def test_who_asks_once_is_told_of_the_refusal():
    full = said({"reason": "queue_full"}, "429 Too Many")
    with server([full]) as (url, _), Spillover(url, retries=Retries(rounds=1)) as spillover:
        with pytest.raises(Refused):
            spillover.run(None)
        assert spillover.stats.failed == 1


def test_no_more_than_allowed_are_under_way(bed):
    with Spillover(bed.url, connections_max=2) as spillover, ThreadPoolExecutor(6) as pool:
        runs = [pool.submit(spillover.run, {"service_ms": 30}) for _ in range(12)]
        seen = []
        while not all(run.done() for run in runs):
            seen.append(bed.home["running"])
            wait(runs, timeout=0.001)
        assert max(seen) <= 2
        assert all(run.result().result == {"service_ms": 30.0} for run in runs)


@pytest.mark.parametrize("at_most_once", [False, True])
def test_a_client_that_is_closed_ends_what_threads_wait_for(bed, at_most_once, monkeypatch):
    """At once, and not when they look at the clock the next time."""
    monkeypatch.setattr(blocking, "LOOK_S", 15.0)
    spillover = Spillover(bed.url)
    with ThreadPoolExecutor(3) as pool:
        long = {"service_ms": 60_000}
        runs = [pool.submit(spillover.run, long, at_most_once=at_most_once) for _ in range(3)]
        until(lambda: bed.home["running"] == 3)
        spillover.close()
        assert {type(run.exception(5.0)) for run in runs} == {Cancelled}
    until(lambda: bed.home["running"] == 0)
