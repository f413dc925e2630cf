"""One consumer of the load on a queue, and what is counted of it: against servers that say what a
test has them say.
"""

from __future__ import annotations

import asyncio
import json
import math
import socket
import time
from contextlib import asynccontextmanager
from random import Random

import pytest

from spillover.live.http.client import HttpClient
from spillover_loadgen import queue_consumer
from spillover_loadgen.queue_consumer import Consumer, Object
from spillover_loadgen.queue_record import (
    OBJECT_BYTES_MIN,
    Put,
    QueueRecord,
    Took,
    decode_object,
    encode_object,
)
from support.loop import until
from support.scripted_server import RESET, answer, problem, scripted

RUN = b"12345678"
NOTHING = answer(204)


def object_of(body, **changed):
    told = {"grant": "g1", "object": "p1-7", "deliveries": 2, "probes": 4, "visibility_ms": 1500.0}
    headers = {f"spillover_{name}": str(value) for name, value in (told | changed).items()}
    return answer(200, body, **headers)


@asynccontextmanager
async def consumer_of(*servers, **changed):
    """A consumer of producers p1, p2, ... there, and its record."""
    clients = {f"p{k + 1}": HttpClient(one.url) for k, one in enumerate(servers)}
    record = QueueRecord()
    settings = {"start_s": 0.0, "consume_s": 0.0, "max_hops": 5, "random": Random(1)} | changed
    try:
        yield Consumer(3, clients, record, RUN, **settings), record
    finally:
        for client in clients.values():
            await client.close()


@asynccontextmanager
async def consuming(consumer):
    """While it goes on and on."""
    task = asyncio.create_task(consumer.consume())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_an_object_is_asked_for_and_read():
    """With a name for each probe, and all producers alike."""

    async def main():
        async with scripted(object_of(b"content")) as server, consumer_of(server) as (one, _):
            took, found = await one._take()
            await one._take()
            return took, found, server.seen, [json.loads(body) for body in server.bodies]

    took, found, seen, asked = asyncio.run(main())
    assert took is Took.OBJECT
    assert (found.grant, found.id, found.deliveries, found.probes) == ("g1", "p1-7", 2, 4)
    assert (found.visibility_s, found.body) == (1.5, b"content")
    assert [first for first, _ in seen] == ["POST /take"] * 2
    assert seen[0][1]["spillover-deadline-ms"] == "10000"
    name = f"loadgen-{RUN.hex()}-3"
    assert [one["probe_id"] for one in asked] == [f"{name}-1", f"{name}-2"]
    for one in asked:
        assert (one["consumer"], one["max_hops"], one["access"]) == (name, 5, {"p1": 1.0})


def moved_to(name, grant, probes):
    headers = {"probes": str(probes), "producer": name, "grant": grant}
    return answer(303, **{f"spillover_{header}": value for header, value in headers.items()})


FIRST = next(seed for seed in range(99) if Random(seed).choice(["p1", "p2"]) == "p1")
"""With this seed the first take is of the first of two."""


def test_an_object_is_fetched_where_it_is():
    """The probe that found it is the one that counts, and it is acknowledged there."""

    async def main():
        async with (
            scripted(moved_to("p2", "g2", 6)) as first,
            scripted(object_of(b"content", grant="g3"), answer(204)) as second,
            consumer_of(first, second, random=Random(FIRST)) as (one, record),
        ):
            took, found = await one._take()
            is_known = await one._tell(found, "ack")
            return took, found, is_known, first, second, record

    took, found, is_known, first, second, record = asyncio.run(main())
    assert (took, is_known, dict(record.reasons)) == (Took.OBJECT, True, {})
    assert (found.probes, found.grant, found.body) == (6, "g3", b"content")
    assert [asked for asked, _ in first.seen] == ["POST /take"]
    assert [asked for asked, _ in second.seen] == ["GET /objects/g2", "POST /grants/g3/ack"]
    assert json.loads(first.bodies[0])["access"] == {"p1": 0.5, "p2": 0.5}


@pytest.mark.parametrize(
    ("said", "took", "reasons"),
    [
        (answer(404), Took.NOTHING, {}),
        (problem(503, "no"), Took.REFUSED, {"take: status 503": 1}),
        (RESET, Took.FAILED, {"OutcomeUnknown": 1}),
    ],
)
def test_an_object_may_be_gone_where_it_was(said, took, reasons):
    async def main():
        async with (
            scripted(moved_to("p2", "g2", 6)) as first,
            scripted(said) as second,
            consumer_of(first, second, random=Random(FIRST)) as (one, record),
        ):
            return await one._take(), dict(record.reasons)

    assert asyncio.run(main()) == ((took, None), reasons)


def test_whoever_takes_nothing_asks_again_at_once(monkeypatch):
    """Since the producer lets it wait; after a failure it is the consumer that waits."""
    monkeypatch.setattr(queue_consumer, "PAUSE_S", 3600.0)

    async def main():
        async with scripted(NOTHING) as server, consumer_of(server) as (one, record):
            async with consuming(one):
                await until(lambda: record.takes[Took.NOTHING] > 5)
                server.answers(problem(500, "why"))
                await until(lambda: record.takes[Took.FAILED])
                count = len(server.seen)
                server.answers(NOTHING)
                await one._take()  # by another one, so that there was time
                assert len(server.seen) == count + 1
            return record

    record = asyncio.run(main())
    assert record.takes[Took.FAILED] == 1
    assert record.reasons == {"take: status 500": 1}


def test_after_a_failure_it_goes_on(monkeypatch):
    monkeypatch.setattr(queue_consumer, "PAUSE_S", 0.001)

    async def main():
        async with (
            scripted(problem(500, "why")) as server,
            consumer_of(server) as (one, record),
            consuming(one),
        ):
            await until(lambda: record.takes[Took.FAILED] > 2)

    asyncio.run(main())


@pytest.mark.parametrize(("known", "acknowledged"), [(204, 1), (404, 0)])
def test_what_is_taken_is_acknowledged_and_counted(known, acknowledged):
    """If its grant is still known; how long it was waited for is in ms, when it was done in s of
    the run."""

    async def main():
        content = encode_object(RUN, 2, 9, 30)
        async with (
            scripted(object_of(content, deliveries=1), answer(known), NOTHING) as server,
            consumer_of(server, start_s=time.monotonic() - 50.0) as (one, record),
        ):
            async with consuming(one):
                await until(lambda: record.takes[Took.NOTHING])
            return record, [asked for asked, _ in server.seen[:3]]

    record, asked = asyncio.run(main())
    assert asked == ["POST /take", "POST /grants/g1/ack", "POST /take"]
    assert record.takes[Took.OBJECT] == len(record.wait_ms) == 1
    assert 0.0 < record.wait_ms[0] < 10_000
    assert (record.probes, record.strangers, record.redelivered) == ([4], 0, 0)
    assert record._newest == {(3, "p1"): 7}
    assert dict(record.acknowledged) == ({(2, 9): 1} if acknowledged else {})
    assert len(record.acknowledged_s) == acknowledged
    assert all(50.0 <= at_s < 100.0 for at_s in record.acknowledged_s)


def test_how_long_an_object_was_waited_for_is_in_ms():
    """Of a producer that answers after 0.3 s."""

    async def main():
        async with scripted(object_of(encode_object(RUN, 2, 9, 30)), NOTHING) as server:
            with socket.create_server(("127.0.0.1", 0)) as busy:
                server.url = f"http://127.0.0.1:{busy.getsockname()[1]}"
                began_s = time.monotonic()
                async with consumer_of(server) as (one, record), consuming(one):
                    await until(lambda: time.monotonic() > began_s + 0.3)
                    late = await asyncio.start_server(server.talk, sock=busy)
                    await until(lambda: record.wait_ms)
                    took_ms = (time.monotonic() - began_s) * 1e3
                late.close()
                return record.wait_ms[0], took_ms

    waited_ms, took_ms = asyncio.run(main())
    assert 200.0 <= waited_ms <= took_ms


def test_whoever_is_busy_with_an_object_neither_acknowledges_it_nor_takes_another():
    async def main():
        content = encode_object(RUN, 2, 9, 30)
        async with (
            scripted(object_of(content, visibility_ms=1e9), answer(204)) as server,
            consumer_of(server, consume_s=1e6) as (one, record),
            consuming(one),
        ):
            await until(lambda: record.wait_ms)
            await one._tell(Object(one._clients["p1"], "g", "p1-1", 1, 1, 1.0, b""), "nack")
            return [asked for asked, _ in server.seen]

    assert asyncio.run(main()) == ["POST /take", "POST /grants/g/nack"], "by another one"


def test_a_strangers_object_is_given_back():
    async def main():
        content = encode_object(b"another_", 2, 9, 30)
        async with (
            scripted(object_of(content), answer(204), NOTHING) as server,
            consumer_of(server) as (one, record),
        ):
            async with consuming(one):
                await until(lambda: record.takes[Took.NOTHING])
            return record, [asked for asked, _ in server.seen[:3]]

    record, asked = asyncio.run(main())
    assert asked == ["POST /take", "POST /grants/g1/nack", "POST /take"]
    assert (record.strangers, record.wait_ms, record.redelivered) == (1, [], 0)
    assert not record.acknowledged


@pytest.mark.parametrize(
    ("said", "is_known", "calls", "reasons"),
    [
        ([answer(204)], True, 1, {}),
        ([answer(404)], False, 1, {}),
        ([RESET, answer(204)], True, 2, {}),
        ([RESET], False, 2, {"ack: no answer": 1}),
    ],
)
def test_a_producer_that_does_not_answer_is_asked_once_more(said, is_known, calls, reasons):
    async def main():
        async with scripted(*said) as server, consumer_of(server) as (one, record):
            found = Object(one._clients["p1"], "g1", "p1-7", 1, 1, 1.0, b"")
            return await one._tell(found, "ack"), len(server.seen), dict(record.reasons)

    assert asyncio.run(main()) == (is_known, calls, reasons)


@pytest.mark.parametrize("visibility_s", [0.06, 60.0])
def test_an_object_is_kept_for_as_long_as_it_takes(visibility_s):
    """An exponential time, in which its grant is extended three times within the time that it would
    last; not in the end, when it is about to be acknowledged."""
    busy_s = Random(5).expovariate(1.0 / 0.2)
    assert 0.1 < busy_s < 0.5

    async def main():
        async with (
            scripted(answer(204)) as server,
            consumer_of(server, consume_s=0.2, random=Random(5)) as (one, _),
        ):
            found = Object(one._clients["p1"], "g1", "p1-7", 1, 1, visibility_s, b"")
            began_s = time.monotonic()
            await one._be_busy(found)
            return time.monotonic() - began_s, [asked for asked, _ in server.seen]

    took_s, asked = asyncio.run(main())
    assert busy_s <= took_s < busy_s + 5.0
    assert set(asked) <= {"POST /grants/g1/extend"}
    most = math.ceil(3.0 * busy_s / visibility_s) - 1
    assert len(asked) <= most
    assert bool(asked) == bool(most), "on a busy machine they are fewer"


def test_who_needs_no_time_takes_none():
    async def main():
        async with scripted(answer(204)) as server, consumer_of(server) as (one, _):
            state = one._random.getstate()
            await one._be_busy(Object(one._clients["p1"], "g1", "p1-7", 1, 1, 0.001, b""))
            assert one._random.getstate() == state
            return server.seen

    assert asyncio.run(main()) == []


# --- what is counted ------------------------------------------------------------------------------


def test_the_smallest_object_is_one():
    smallest = encode_object(RUN, 1, 2, 0)
    assert len(smallest) == OBJECT_BYTES_MIN == 20
    assert decode_object(RUN, smallest) == (1, 2)
    assert decode_object(RUN, smallest[:-1]) is None


def test_the_first_object_of_a_producer_is_in_order():
    record = QueueRecord()
    record.came(0, "p1-0", 1)
    record.came(0, "p1-1", 1)
    assert (record.out_of_order, record.redelivered) == (0, 0)


def test_a_result_names_each_of_its_figures():
    """Made up, so that no two are alike."""
    record = QueueRecord(
        offered=1, lag_ms=[2.0, 3.0], put_ms=[4.0], wait_ms=[5.0], probes=[6, 7], strangers=8,
        redelivered=9, out_of_order=10,
    )  # fmt: skip
    for k, outcome in enumerate(Put, start=20):
        record.puts[outcome] = k
    for k, outcome in enumerate(Took, start=30):
        record.takes[outcome] = k
    record.reasons.update({f"r{k}": k for k in range(1, 30)})
    told = record.summary(duration_s=11.0, seed=12, interrupted=True)
    assert (told["offered"], told["produced"], told["acknowledged"]) == (1, 20, 0)
    assert told["put_outcomes"] == {
        "ok": 20, "refused": 21, "failed": 22, "unknown": 23, "unreachable": 24,
    }  # fmt: skip
    assert told["take_outcomes"] == {"object": 30, "nothing": 31, "refused": 32, "failed": 33}
    assert (told["put_ms"]["max"], told["wait_ms"]["max"], told["probes_mean"]) == (4.0, 5.0, 6.5)
    assert told["schedule_lag_ms"] == {"p99": 3.0, "max": 3.0}
    assert (told["strangers"], told["redelivered"], told["out_of_order"]) == (8, 9, 10)
    assert list(told["reasons"]) == [f"r{k}" for k in range(29, 9, -1)], "the most frequent"
    assert (told["seed"], told["duration_s"], told["interrupted"]) == (12, 11.0, True)


@pytest.mark.parametrize(
    ("lags_ms", "kept_up"),
    [([], True), ([20.0], True), ([20.1], False), ([1.0] * 99 + [500.0], True)],
)
def test_a_load_is_as_asked_for_unless_one_object_in_a_hundred_was_late(lags_ms, kept_up):
    told = QueueRecord(lag_ms=lags_ms).summary(duration_s=1.0, seed=1, interrupted=False)
    assert told["kept_up"] is kept_up


def test_of_nothing_there_is_no_mean():
    told = QueueRecord().summary(duration_s=1.0, seed=1, interrupted=False)
    assert (told["probes_mean"], told["throughput_per_s"], told["missing"]) == (None, 0.0, 0)
