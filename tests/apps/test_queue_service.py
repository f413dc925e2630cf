"""A producer's service over real sockets: each call, and each thing that clients get wrong."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from spillover.live.queue.store import FILE_BYTES_MIN
from support.queue_service import (
    OBJECT_LIMIT_BYTES,
    Producer,
    call,
    connected,
    fetched,
    producers,
    until,
)


@pytest.fixture
def producer() -> Iterator[Producer]:
    with producers(buffers=2, visibility_s=20.0, deliveries_max=2) as (one,):
        yield one


def reason(answer) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json"
    return answer.status, answer.told["reason"]


# --- the calls ----------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"one", os.urandom(FILE_BYTES_MIN + 1)])
@pytest.mark.parametrize("is_stored", [False, True])
def test_an_object_goes_through_untouched(content: bytes, is_stored: bool, tmp_path: Path) -> None:
    with producers(stores=tmp_path if is_stored else None) as (one,):
        answer = one.put(content, content_type="text/x-mine; a=b")
        assert one.shell is not None
        name = "p1-1" if is_stored else f"p1-{one.shell.epoch:x}-1"
        assert (answer.status, answer.told) == (201, {"id": name, "durable": is_stored})
        given = one.take()
        assert (given.status, given.body) == (200, content)
        assert given.headers["content-type"] == "text/x-mine; a=b"
        assert given.headers["spillover-producer"] == "p1"
        assert given.headers["spillover-probes"] == "1"
        assert given.headers["spillover-visibility-ms"] == "20000"
        assert one.tell(given.headers["spillover-grant"], "ack").status == 204
        state = one.state
        assert (state["produced"], state["acknowledged"], state["memory_bytes"]) == (1, 1, 0)
        assert not list((tmp_path / "p1" / "objects").glob("*"))


def test_an_object_elsewhere_is_pointed_to_and_fetched_once() -> None:
    with producers(2) as (first, second):
        assert second.put(b"there").status == 201
        pointed = first.take(access={"p2": 1.0}, max_hops=2)
        assert pointed.status == 303
        assert pointed.headers["spillover-producer"] == "p2"
        where = pointed.headers["location"]
        assert where == f"{second.url}/objects/{pointed.headers['spillover-grant']}"
        got = call(where)
        assert (got.status, got.body) == (200, b"there")
        assert reason(call(where)) == (404, "unknown_grant")
        grant = got.headers["spillover-grant"]
        assert reason(first.tell(grant, "ack")) == (404, "unknown_grant"), "of another producer"
        assert second.tell(grant, "ack").status == 204
        until(lambda: second.state["acknowledged"] == 1)


def test_a_grant_ends_with_the_visibility_time_and_is_extended() -> None:
    with producers(visibility_s=0.3) as (one,):
        one.put(b"x")
        first = one.take().headers["spillover-grant"]
        assert one.tell(first, "extend", b'{"visibility_ms": 60000}').status == 204
        assert 50_000.0 < one.state["open_grants"][0]["ends_in_ms"] <= 60_000.0
        assert one.take(deadline_ms=700).status == 204, "it is still the first one's"
        assert one.tell(first, "extend", b'{"visibility_ms": 1}').status == 204
        again = one.take()
        assert again.body == b"x"
        assert reason(one.tell(first, "ack")) == (404, "unknown_grant")
        assert one.tell(again.headers["spillover-grant"], "extend").status == 204
        assert one.tell(again.headers["spillover-grant"], "ack").status == 204


def test_what_comes_back_too_often_is_dead_readable_and_can_be_put_back(
    producer: Producer,
) -> None:
    producer.put(b"poison", content_type="text/plain")
    for _ in range(2):
        producer.tell(producer.take().headers["spillover-grant"], "nack")
    assert producer.take(deadline_ms=1).status == 204
    (dead,) = call(f"{producer.url}/dead").told
    assert dead == {"number": 1, "content_type": "text/plain", "size_bytes": 6, "deliveries": 2}
    shown = call(f"{producer.url}/dead/1")
    assert (shown.status, shown.body) == (200, b"poison")
    assert "text/plain" in shown.headers["content-type"]
    assert call(f"{producer.url}/dead/1/put-back", "POST").told["buffered"] == 1
    assert reason(call(f"{producer.url}/dead/1/put-back", "POST")) == (404, "not_found")
    assert reason(call(f"{producer.url}/dead/1")) == (404, "not_found")
    assert producer.take().body == b"poison"


def test_dead_objects_can_be_put_back_in_bulk() -> None:
    """All of them, or of a content type and a range of numbers."""
    with producers(deliveries_max=1, buffers=4) as (one,):
        for content_type in ("text/plain", "text/html", "text/plain", "text/plain"):
            one.put(b"poison", content_type=content_type)
        for _ in range(4):
            one.tell(one.take().headers["spillover-grant"], "nack")
        headers = {"Origin": "http://elsewhere"}
        bulk = f"{one.url}/dead/put-back"
        assert reason(call(bulk, "POST", None, headers)) == (403, "another_site")
        for query, told in (
            ("?content_type=text/plain&first=2", {"put_back": 2, "dead": 2}),
            ("?last=1", {"put_back": 1, "dead": 1}),
            ("", {"put_back": 1, "dead": 0}),
            ("", {"put_back": 0, "dead": 0}),
        ):
            assert call(bulk + query, "POST").told == told
        assert one.state["buffered"] == 4


@pytest.mark.parametrize("content", [b"poison", os.urandom(FILE_BYTES_MIN + 1)])
def test_what_is_dead_can_be_discarded(content: bytes, tmp_path: Path) -> None:
    limits = {"deliveries_max": 1, "held_limit_bytes": 10.0}
    with producers(stores=tmp_path, **limits) as (one,):
        one.put(content)
        assert reason(call(f"{one.url}/dead/1", "DELETE")) == (404, "not_found")
        one.tell(one.take().headers["spillover-grant"], "nack")
        headers = {"Origin": "http://evil.example"}
        assert reason(call(f"{one.url}/dead/1", "DELETE", None, headers)) == (403, "another_site")
        state = call(f"{one.url}/dead/1", "DELETE").told
        assert (state["dead"], state["discarded"], state["produced"]) == (0, 1, 1)
        assert reason(call(f"{one.url}/dead/1", "DELETE")) == (404, "not_found")
        assert reason(call(f"{one.url}/dead/1/put-back", "POST")) == (404, "not_found")
        told = call(f"{one.url}/explain/p1-1").told
        assert told["state"] == "discarded: it is gone"
        words = [record["words"] for record in told["story"]]
        assert words.count("discarded by an operator") == 1, "of three that asked, one did it"
        assert one.put(content, deadline_ms=2000).status == 201, "it takes no room any more"
    assert [path.name for path in (tmp_path / "p1" / "objects").glob("*")] in ([], ["2"])
    with producers(stores=tmp_path) as (one,):
        assert (one.state["dead"], one.state["produced"]) == (0, 1)


def test_deadlines(producer: Producer) -> None:
    nothing = producer.take(deadline_ms=30)
    assert (nothing.status, nothing.body) == (204, b"")
    assert nothing.headers["spillover-probes"] == "1"
    for _ in range(2):
        assert producer.put(b"x").status == 201
    full = producer.put(b"x", deadline_ms=30)
    assert reason(full) == (429, "queue_full")
    assert full.headers["retry-after"] == "1"


def test_drain_refuses_and_gives_away_and_resume_takes_again(producer: Producer) -> None:
    producer.put(b"x")
    assert call(f"{producer.url}/admin/drain", "POST").status == 202
    assert reason(call(f"{producer.url}/readyz")) == (503, "draining")
    assert reason(producer.put(b"y")) == (503, "draining")
    given = producer.take()
    assert given.body == b"x", "alone it gives what it has to whoever asks"
    assert reason(producer.take()) == (503, "draining")
    assert not producer.state["drained"]
    producer.tell(given.headers["spillover-grant"], "ack")
    assert producer.state["drained"]
    assert call(f"{producer.url}/admin/resume", "POST").status == 200
    assert producer.put(b"y").status == 201


# --- backpressure -------------------------------------------------------------------------------


def test_a_producer_that_waits_is_not_read_and_then_is(producer: Producer) -> None:
    for _ in range(2):
        producer.put(b"x")
    size = OBJECT_LIMIT_BYTES
    with closing(connected(producer.url)) as line:
        line.sendall(b"POST /objects HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % size)
        sent, part = 0, b"y" * 65_536
        until(lambda: producer.state["waiting"] == 1)
        line.settimeout(1.0)
        try:
            while sent < size:
                sent += line.send(part[: size - sent])
        except TimeoutError:
            pass
        assert producer.state["memory_bytes"] == 2
        line.settimeout(30.0)
        producer.tell(producer.take().headers["spillover-grant"], "ack")
        while sent < size:
            sent += line.send(part[: size - sent])
        assert line.recv(12) == b"HTTP/1.1 201"
        assert producer.state["memory_bytes"] == 1 + size


# --- what is wrong ------------------------------------------------------------------------------


def test_an_object_over_the_limit_is_refused_before_its_body(producer: Producer) -> None:
    with closing(connected(producer.url)) as line:
        length = OBJECT_LIMIT_BYTES + 1
        line.sendall(b"POST /objects HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % length)
        assert line.recv(12) == b"HTTP/1.1 413", "nothing of it was sent"
    chunks = iter([b"x" * 500_000] * 3)
    assert reason(call(f"{producer.url}/objects", "POST", chunks)) == (413, "too_large")
    assert producer.put(b"x" * OBJECT_LIMIT_BYTES).status == 201


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"access": {"p1": 0.5}}, "body.access: expected probabilities that sum to 1, got 0.5"),
        ({"access": {}}, "body.access: expected probabilities that sum to 1, got 0"),
        ({"access": {"p1": 1.5, "p2": -0.5}}, "$.access"),
        ({"access": {"p9": 1.0}}, "body.access: expected producers (p1), got 'p9'"),
        ({"access": [1.0]}, "$.access"),
        ({"max_hops": 0}, "$.max_hops"),
        ({"max_hops": 1.5}, "$.max_hops"),
        ({"max_hops": 2, "avoid_visited": True}, "body.max_hops: expected at most 1"),
        ({"consumer": ""}, "$.consumer"),
        ({"consumer": None}, "$.consumer"),
        ({"probe_id": "x" * 201}, "$.probe_id"),
        ({"more": 1}, "more"),
    ],
)
def test_a_wrong_take_names_its_field(producer: Producer, asked: dict, field: str) -> None:
    answer = producer.take(**asked)
    assert reason(answer) == (422, "invalid")
    assert field in answer.told["detail"]


def test_a_probe_id_that_is_under_way_is_refused(producer: Producer) -> None:
    with ThreadPoolExecutor() as pool:
        first = pool.submit(producer.take, probe_id="mine")
        until(lambda: producer.state["takes"] == 1)
        assert reason(producer.take(probe_id="mine")) == (409, "conflict")
        producer.put(b"x")
        assert first.result().status == 200


def test_pages_of_other_sites_cannot_use_it(producer: Producer) -> None:
    headers = {"Origin": "http://evil.example"}
    for path in ("/objects", "/take", "/grants/g/ack", "/dead/1/put-back", "/admin/drain"):
        answer = call(f"{producer.url}{path}", "POST", b"{}", headers)
        assert reason(answer) == (403, "another_site")


def test_probes_and_offers_of_no_peer_are_refused(producer: Producer) -> None:
    probe = {
        "id": "t",
        "first": "p9",
        "consumer": "c",
        "hop": 1,
        "max_hops": 1,
        "access": {"p1": 1.0},
        "left_ms": 1000,
    }
    offer = {"probe_id": "t", "producer": "p9", "grant": "g", "probes": 1}
    for what, told in (("probe", probe), ("offer", offer)):
        url = f"{producer.url}/peer/v1/queue/{what}"
        assert reason(call(url, "POST", json.dumps(told).encode())) == (403, "not_a_neighbor")
        assert reason(call(url, "POST", b"{}")) == (422, "invalid")


def test_another_life_without_a_store_confuses_nothing() -> None:
    with producers() as (one,):
        name = one.put(b"x").told["id"]
        given = one.take()
        assert given.headers["spillover-object"] == name
    grant = given.headers["spillover-grant"]
    with producers() as (again,):
        assert again.put(b"y").told["id"] != name
        assert again.take().status == 200
        for what in ("ack", "nack", "extend"):
            assert reason(again.tell(grant, what)) == (404, "unknown_grant")
        assert again.state["granted"] == 1
        assert reason(call(f"{again.url}/explain/{name}")) == (404, "not_found")


# --- what it shows ------------------------------------------------------------------------------


def test_explain_tells_an_object_and_a_probe_in_words() -> None:
    with producers(2) as (first, second):
        second.put(b"x")
        pointed = first.take(probe_id="mine", consumer="me", access={"p2": 1.0}, max_hops=2)
        _, _, grant = fetched(pointed)
        second.tell(grant, "nack")
        told = call(f"{first.url}/explain/mine").told
        assert (told["kind"], told["producer"]) == ("probe", "p1")
        assert [one["words"] for one in told["story"]] == [
            "consumer me asks here: up to 2 hops",
            "sent on to p2: hop 2",
            "p2 offers an object for it",
            "answered with an object of p2",
        ]
        told = call(f"{second.url}/explain/1").told
        assert told["state"] == "buffered: 0 before it, after 1 deliveries in vain"
        assert [one["words"] for one in told["story"]] == [
            "taken in and buffered: 201",
            "granted to probe mine, offered to p1, which holds the call",
            "the offer is taken",
            "fetched by its consumer",
            "sent",
            "given back by its consumer",
        ]
        assert reason(call(f"{first.url}/explain/nothing")) == (404, "not_found")


@pytest.mark.slow
def test_many_at_once_get_each_object_once() -> None:
    with producers(3, buffers=3) as running, ThreadPoolExecutor(24) as pool:
        got: list[bytes] = []
        lock = threading.Lock()

        def consume(k: int) -> None:
            while True:
                answer = running[k % 3].take(max_hops=2, deadline_ms=1500)
                if answer.status == 204:
                    return
                body, base, grant = fetched(answer)
                owner = Producer(base or running[k % 3].url)
                assert owner.tell(grant, "ack").status == 204
                with lock:
                    got.append(body)

        eaters = [pool.submit(consume, k) for k in range(8)]
        puts = [pool.submit(running[k % 3].put, b"%d" % k) for k in range(200)]
        assert {put.result().status for put in puts} == {201}
        for one in eaters:
            one.result()
        assert sorted(map(int, got)) == list(range(200))
        for one in running:
            state = one.state
            assert state["produced"] == state["acknowledged"]


@pytest.mark.parametrize("what", ["ack", "nack"])
def test_a_malformed_call_settles_nothing(what: str) -> None:
    """A head that says all, and a body that is none: 400, and the grant is still open."""
    with producers(visibility_s=20.0) as (one,):
        one.put(b"x")
        grant = one.take().headers["spillover-grant"]
        with closing(connected(one.url)) as line:
            head = f"POST /grants/{grant}/{what} HTTP/1.1\r\nHost: a\r\n"
            line.sendall(head.encode() + b"Transfer-Encoding: chunked\r\n\r\nno size\r\n")
            assert line.recv(12) == b"HTTP/1.1 400"
        assert len(one.state["open_grants"]) == 1
        assert one.tell(grant, "ack").status == 204
