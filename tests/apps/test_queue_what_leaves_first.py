"""What a consumer waits for leaves a producer before other work that comes of the same call."""

from __future__ import annotations

import json
import select
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from socket import socket
from typing import Any

import pytest

from spillover.core.queue import events as ev
from support.queue_service import connected, producers, until


def ask(line: socket, **more: Any) -> None:
    body = json.dumps({"consumer": "c", "probe_id": "first", **more}).encode()
    line.sendall(b"POST /take HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


def noting(real: Callable[..., Any], line: socket, seen: list[bool]) -> Callable[..., Any]:
    """Does the same, and notes whether an answer was on its way to that consumer before."""

    def noted(*args: Any) -> Any:
        seen.append(bool(select.select([line], [], [], 0)[0]))
        return real(*args)

    return noted


def test_an_object_leaves_before_the_one_that_gets_its_place_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[bool] = []
    with producers(buffers=1) as (one,), ThreadPoolExecutor() as pool:
        assert one.shell is not None
        one.put(b"given")
        putting = pool.submit(one.put, b"waits for a place")
        until(lambda: one.state["waiting"] == 1)
        with closing(connected(one.url)) as line:
            noted = noting(one.shell.object_read, line, seen)
            monkeypatch.setattr(one.shell, "object_read", noted)
            ask(line)
            assert putting.result().status == 201
            assert line.recv(12) == b"HTTP/1.1 200"
    assert seen == [True]


def test_where_an_object_is_leaves_before_its_producer_hears_that_it_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[bool] = []
    with producers(2) as (first, second):
        assert second.shell is not None
        second.put(b"there")
        with closing(connected(first.url)) as line:
            shell, real = second.shell, second.shell.feed
            noted = noting(real, line, seen)

            def feed(event: ev.Event) -> None:
                (noted if isinstance(event, ev.OfferAnswered) else real)(event)

            monkeypatch.setattr(shell, "feed", feed)
            ask(line, access={"p2": 1.0}, max_hops=2)
            until(lambda: bool(seen))
            assert line.recv(12) == b"HTTP/1.1 303"
    assert seen == [True]
