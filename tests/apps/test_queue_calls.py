"""The calls of a producer, one by one: who waits, for what, and what is told of it."""

from __future__ import annotations

import json
import sqlite3
from concurrent import futures
from contextlib import closing
from pathlib import Path

import pytest

from spillover.apps.queue import calls, console_view
from support.queue_service import call, connected, producers, until

OFFER = b"POST /objects HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n"


def test_a_producer_whose_object_does_not_come_is_told_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was asked for the object, in time: the deadline that it told was for its place."""
    monkeypatch.setattr(calls, "BODY_S", 0.2)
    with producers(buffers=1) as (one,):
        with closing(connected(one.url)) as line:
            line.sendall(OFFER + b"\r\nhalf")
            head, _, body = line.makefile("rb").read().partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 408 ")
        assert json.loads(body)["reason"] == "body_too_slow"
        assert one.put(b"another").status == 201, "its place is free again"


def test_what_is_discarded_is_gone_for_good_when_that_is_said(tmp_path: Path) -> None:
    """Not a moment later: the producer may end by then."""
    with (
        producers(stores=tmp_path, deliveries_max=1) as (one,),
        futures.ThreadPoolExecutor() as pool,
    ):
        number = int(json.loads(one.put(b"x").body)["id"].rpartition("-")[2])
        one.tell(one.take().headers["spillover-grant"], "nack")
        until(lambda: one.state["dead"] == 1)
        busy = sqlite3.connect(tmp_path / "p1" / "queue.sqlite3", isolation_level=None)
        busy.execute("BEGIN IMMEDIATE")
        discarding = pool.submit(call, f"{one.url}/dead/{number}", "DELETE")
        until(lambda: one.state["dead"] == 0)
        assert not futures.wait([discarding], timeout=0.1).done
        busy.execute("ROLLBACK")
        assert discarding.result().status == 200
        assert busy.execute("SELECT count(*) FROM objects").fetchone() == (0,)
        busy.close()


def test_what_is_acknowledged_is_gone_for_good_when_that_is_said(tmp_path: Path) -> None:
    """Else the next start would give it to another consumer."""
    with producers(stores=tmp_path) as (one,), futures.ThreadPoolExecutor() as pool:
        one.put(b"x")
        grant = one.take().headers["spillover-grant"]
        busy = sqlite3.connect(tmp_path / "p1" / "queue.sqlite3", isolation_level=None)
        busy.execute("BEGIN IMMEDIATE")
        telling = pool.submit(one.tell, grant, "ack")
        until(lambda: one.state["acknowledged"] == 1)
        assert not futures.wait([telling], timeout=0.1).done
        busy.execute("ROLLBACK")
        assert telling.result().status == 204
        assert busy.execute("SELECT count(*) FROM objects").fetchone() == (0,)
        busy.close()


def test_a_grant_is_extended_by_a_day_at_most() -> None:
    with producers() as (one,):
        one.put(b"x")
        grant = one.take().headers["spillover-grant"]
        asked = [b'{"visibility_ms": 8640000%d}' % more for more in (0, 1)]
        assert [one.tell(grant, "extend", body).status for body in asked] == [204, 422]


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (None, {}),
        (b"no state", {}),
        (b"[1]", {}),
        (b"[" * 100_000, {}),
        (b'{"buffered": 3, "dead": "<b>", "takes": null, "more": 1}', {"buffered": 3}),
    ],
)
def test_of_what_a_peer_says_its_numbers_are_shown(said: bytes | None, shown: dict) -> None:
    assert console_view._counts(said) == shown
