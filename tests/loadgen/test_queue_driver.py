"""The puts of the load on a queue, looked at one by one, and when a run is over."""

from __future__ import annotations

import asyncio
import socket
import time
from dataclasses import replace
from random import Random

import pytest

from spillover.live.http.client import HttpClient
from spillover_loadgen import queue_driver
from spillover_loadgen.queue_driver import QueueLoad, _Producer
from spillover_loadgen.queue_record import Put, QueueRecord, decode_object
from support.loop import until
from support.queue_producers import producers
from support.scripted_server import RESET, answer, problem, scripted

RUN = b"12345678"
TAKEN_IN = answer(201)
LOAD = QueueLoad(
    produce_rate_per_s=200.0, consumers=0, consume_s=0.0, object_bytes=64, duration_s=0.2,
    max_hops=3, deadline_s=2.5, seed=7,
)  # fmt: skip


def due(seed, index):
    """At which instants objects are due."""
    random, instants, at_s = Random(f"{seed} producer {index}"), [], 0.0
    while (at_s := at_s + random.expovariate(200.0)) < 0.2:
        instants.append(at_s)
    return instants


async def produce(server, index=0, load=LOAD, lead_s=0.02):
    record, client = QueueRecord(), HttpClient(server.url)
    start_s = time.monotonic() + lead_s
    await _Producer(index, client, record, RUN, load, start_s).produce()
    took_s = time.monotonic() - start_s
    await client.close()
    return record, took_s


@pytest.mark.parametrize(("seed", "index"), [(7, 0), (7, 4), (8, 0)])
def test_objects_are_put_when_they_are_due_by_the_seed_and_the_producer(seed, index):
    async def main():
        async with scripted(TAKEN_IN) as server:
            record, took_s = await produce(server, index, replace(LOAD, seed=seed))
            return record, took_s, server.seen, server.bodies

    record, took_s, seen, bodies = asyncio.run(main())
    count = len(due(seed, index))
    assert count > 10
    assert record.offered == len(record.lag_ms) == count
    assert record.kept == {(index, number) for number in range(1, count + 1)}
    assert {decode_object(RUN, body) for body in bodies} == record.kept
    assert {len(body) for body in bodies} == {64}
    assert {asked for asked, _ in seen} == {"POST /objects"}
    assert {headers["spillover-deadline-ms"] for _, headers in seen} == {"2500.000"}
    assert record.puts == {Put.OK: count}
    assert min(record.lag_ms) >= 0.0, "none before its time"
    assert 0.2 <= took_s < 10.0, "and the rest of the time is waited for"
    assert dict(record.reasons) == {}


def test_the_instants_of_producers_and_seeds_differ():
    assert len({len(due(*one)) for one in ((7, 0), (7, 4), (8, 0))}) == 3


def test_what_is_late_is_as_late_as_its_answer():
    """Both in ms, from the instant at which it was due."""

    async def main():
        async with scripted(TAKEN_IN) as server:
            return await produce(server, lead_s=-20.0)

    record, took_s = asyncio.run(main())
    for lags_ms in (record.lag_ms, record.put_ms):
        assert len(lags_ms) == len(due(7, 0))
        assert 19_800 <= min(lags_ms) <= max(lags_ms) < 30_000
    assert max(record.put_ms) > min(record.lag_ms)
    first_s = due(7, 0)[0]
    assert max(record.put_ms) <= (took_s - first_s) * 1e3


def test_a_low_rate_is_one_too():
    """Of one object in two and a half seconds, of a minute that is over already."""

    async def main():
        async with scripted(TAKEN_IN) as server:
            load = replace(LOAD, produce_rate_per_s=0.4, duration_s=50.0)
            return await produce(server, load=load, lead_s=-60.0)

    record, _ = asyncio.run(main())
    assert 5 <= record.offered == len(record.kept) <= 50


def test_no_rate_is_no_object_for_all_the_time():
    async def main():
        async with scripted(TAKEN_IN) as server:
            return await produce(server, load=replace(LOAD, produce_rate_per_s=0.0))

    record, took_s = asyncio.run(main())
    assert (record.offered, took_s >= 0.2) == (0, True)


def test_whoever_is_done_has_its_answers():
    """Of a producer that answers none until after the time that was asked for."""

    async def main():
        async with scripted(TAKEN_IN) as server:
            with socket.create_server(("127.0.0.1", 0)) as busy:
                server.url = f"http://127.0.0.1:{busy.getsockname()[1]}"
                producing = asyncio.create_task(produce(server))
                end_s = time.monotonic() + 0.4
                await until(lambda: time.monotonic() > end_s)
                late = await asyncio.start_server(server.talk, sock=busy)
                told = await producing
                late.close()
                return told

    record, took_s = asyncio.run(main())
    assert record.puts == {Put.OK: len(due(7, 0))}
    assert took_s >= 0.35
    assert min(record.put_ms) >= 150.0


@pytest.mark.parametrize(
    ("said", "outcome", "reason"),
    [
        (problem(503, "no"), Put.REFUSED, "put: status 503"),
        (problem(413, "no"), Put.FAILED, "put: status 413"),
        (RESET, Put.UNKNOWN, "put: OutcomeUnknown"),
    ],
)
def test_what_was_not_taken_in_is_not_waited_for(said, outcome, reason):
    async def main():
        async with scripted(said) as server:
            record, client = QueueRecord(), HttpClient(server.url)
            await _Producer(2, client, record, RUN, LOAD, time.monotonic())._put(1, 0.0)
            await client.close()
            return record

    record = asyncio.run(main())
    assert (record.kept, record.put_ms) == (set(), [])
    assert dict(record.puts) == {outcome: 1}
    assert dict(record.reasons) == {reason: 1}


def test_a_producer_that_says_nothing_is_given_up_after_its_deadline(monkeypatch):
    monkeypatch.setattr(queue_driver, "ANSWER_EXTRA_S", 0.1)

    async def main():
        with socket.create_server(("127.0.0.1", 0)) as silent:
            record = QueueRecord()
            client = HttpClient(f"http://127.0.0.1:{silent.getsockname()[1]}")
            began_s = time.monotonic()
            load = replace(LOAD, deadline_s=0.2)
            await _Producer(0, client, record, RUN, load, began_s)._put(1, 0.0)
            await client.close()
            return record, time.monotonic() - began_s

    record, took_s = asyncio.run(main())
    assert dict(record.puts) == {Put.UNKNOWN: 1}
    assert 0.3 <= took_s < 10.0


# --- whole runs -----------------------------------------------------------------------------------


def test_a_run_goes_on_until_all_was_acknowledged():
    """By one consumer that is slower than what is put; with as much as was asked for."""
    load = replace(
        LOAD, produce_rate_per_s=20.0, consumers=1, consume_s=0.06, duration_s=0.3, seed=3
    )

    async def main():
        async with producers(1, buffers=50) as (one,):
            began_s = time.monotonic()
            record = await queue_driver.run({one.id: one.url}, load, asyncio.Event())
            return record, time.monotonic() - began_s

    record, took_s = asyncio.run(main())
    assert record.puts == {Put.OK: record.offered}
    assert set(record.acknowledged) == record.kept
    assert len(record.kept) > 3
    assert took_s >= queue_driver.LEAD_S + 0.3
    assert len(record.acknowledged_s) == len(record.kept)
    assert 0.0 < min(record.acknowledged_s) <= max(record.acknowledged_s) < took_s


def test_what_nobody_acknowledges_is_given_up_in_the_end(monkeypatch):
    monkeypatch.setattr(queue_driver, "DRAIN_S_MAX", 0.2)

    async def main():
        async with scripted(TAKEN_IN) as server:
            began_s = time.monotonic()
            load = replace(LOAD, consumers=2, duration_s=0.1)
            record = await queue_driver.run({"p1": server.url}, load, asyncio.Event())
            return record, time.monotonic() - began_s, server.bodies

    record, took_s, bodies = asyncio.run(main())
    assert record.missing == len(record.kept) > 0
    assert 0.3 <= took_s < 20.0
    takers = {body.partition(b'"consumer": "')[2].partition(b'"')[0] for body in bodies}
    assert {name.rpartition(b"-")[2] for name in takers if name} == {b"0", b"1"}


def test_connections_are_not_used_that_the_other_end_may_be_closing(monkeypatch):
    """And all are closed in the end."""
    monkeypatch.setattr(queue_driver, "IDLE_S_MAX", 0.001)
    opened, closed = [], []

    async def main():
        async with scripted(TAKEN_IN) as server:

            async def talk(reader, writer):
                opened.append(writer)
                await server.talk(reader, writer)
                closed.append(writer)

            counted = await asyncio.start_server(talk, "127.0.0.1", 0)
            url = f"http://127.0.0.1:{counted.sockets[0].getsockname()[1]}"
            load = replace(LOAD, produce_rate_per_s=40.0)
            record = await queue_driver.run({"p1": url}, load, asyncio.Event())
            await until(lambda: len(closed) == len(opened))
            counted.close()
            return record

    record = asyncio.run(main())
    assert record.offered > 3
    assert len(opened) > record.offered / 2


def test_each_run_has_a_name_of_its_own():
    """Else it would take objects of an earlier one for its own."""

    async def main():
        names = set()
        async with scripted(TAKEN_IN) as server:
            for _ in range(2):
                server.bodies.clear()
                await queue_driver.run(
                    {"p1": server.url}, replace(LOAD, duration_s=0.1), asyncio.Event()
                )
                names |= {body[:8] for body in server.bodies}
        return names

    assert len(asyncio.run(main())) == 2


def test_a_fault_of_a_consumer_is_no_result():
    """Such as an answer that no producer gives, an object without its grant."""

    async def main():
        async with scripted(answer(200)) as server:
            load = replace(LOAD, consumers=1, duration_s=3600.0)
            await asyncio.wait_for(
                queue_driver.run({"p1": server.url}, load, asyncio.Event()), timeout=30.0
            )

    with pytest.raises(KeyError, match="spillover-grant"):
        asyncio.run(main())


def test_a_stop_ends_a_run_whatever_is_under_way():
    async def main():
        stop = asyncio.Event()
        stop.set()
        async with scripted(TAKEN_IN) as server:
            load = replace(LOAD, consumers=1, duration_s=3600.0)
            return await asyncio.wait_for(
                queue_driver.run({"p1": server.url}, load, stop), timeout=30.0
            )

    assert asyncio.run(main()).missing == 0
