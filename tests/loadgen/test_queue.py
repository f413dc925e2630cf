"""The load on a queue: what is asked for, what comes of it, and that faults of a queue are seen."""

from __future__ import annotations

import argparse
import asyncio
import time
from dataclasses import replace
from random import Random

import pytest

from spillover.live.http.client import HttpClient
from spillover_loadgen import queue_driver
from spillover_loadgen.cli import main
from spillover_loadgen.queue_command import configure, load_of, print_summary
from spillover_loadgen.queue_consumer import Consumer, Object
from spillover_loadgen.queue_driver import QueueLoad, _outcome_of, _Producer
from spillover_loadgen.queue_record import Put, QueueRecord, Took, decode_object, encode_object
from support.api_tokens import access_of_tests, shown_by
from support.queue_producers import producers
from support.scripted_server import RESET, problem, scripted

LOAD = QueueLoad(
    produce_rate_per_s=30.0,
    consumers=2,
    consume_s=0.002,
    object_bytes=100,
    duration_s=1.0,
    max_hops=3,
    deadline_s=10.0,
    seed=1,
)


async def run_on(load, **settings):
    """The result of a run on two producers."""
    async with producers(2, **settings) as them:
        targets = {one.id: one.url for one in them}
        record = await queue_driver.run(targets, load, asyncio.Event())
        states = [one.objects for one in them]
        return record.summary(duration_s=load.duration_s, seed=1, interrupted=False), states


def test_all_that_is_put_is_acknowledged_once():
    result, states = asyncio.run(run_on(LOAD))
    assert result["offered"] == result["produced"] == result["acknowledged"] > 30
    assert sum(one.acknowledged for one in states) == result["produced"]
    faults = ("missing", "duplicates", "out_of_order", "strangers")
    assert [result[name] for name in faults] == [0, 0, 0, 0]
    assert result["put_ms"]["mean"] > 0.0
    waited_ms = result["wait_ms"]["mean"] * result["acknowledged"]
    assert waited_ms > 500.0, "two consumers that did little else for a second"
    assert 1.0 <= result["probes_mean"] <= 8.0


def test_producers_that_want_an_api_token_are_shown_one():
    load = replace(LOAD, duration_s=0.3)

    async def main(shown):
        async with producers(1, access=access_of_tests()) as (one,):
            targets = {one.id: one.url}
            record = await queue_driver.run(targets, load, asyncio.Event(), headers=shown)
            return record.summary(duration_s=load.duration_s, seed=1, interrupted=False)

    result = asyncio.run(main(shown_by("submitter")))
    assert result["offered"] == result["acknowledged"] > 0
    result = asyncio.run(main(()))
    assert (result["put_outcomes"]["failed"], result["produced"]) == (result["offered"], 0)
    assert "put: status 401" in result["reasons"]


def test_an_object_of_somebody_else_is_given_back_and_never_acknowledged():
    load = replace(LOAD, duration_s=0.3)

    async def main():
        async with producers(1, deliveries_max=2) as (one,):
            client = HttpClient(one.url)
            put = await client.request("POST", "/objects", body=b"not theirs", timeout_s=10.0)
            assert put.status == 201
            await client.close()
            record = await queue_driver.run({one.id: one.url}, load, asyncio.Event())
            return record, one.objects

    record, objects = asyncio.run(main())
    assert record.strangers == 2, "then it is dead"
    assert len(objects.dead) == 1
    assert objects.acknowledged == len(record.acknowledged) == len(record.kept)


def test_a_put_says_by_when_and_is_as_late_as_it_was_sent():
    async def main():
        async with scripted(problem(429, "full")) as server:
            record, client = QueueRecord(), HttpClient(server.url)
            start_s = time.monotonic() - 1.0
            await _Producer(0, client, record, b"12345678", LOAD, start_s)._put(1, 0.25)
            since_ms = (time.monotonic() - start_s) * 1e3
            await client.close()
            return record, since_ms, server.seen

    record, since_ms, [(_, headers)] = asyncio.run(main())
    assert headers["spillover-deadline-ms"] == "10000.000"
    assert 750.0 <= record.lag_ms[0] <= since_ms - 250.0
    assert record.puts == {Put.REFUSED: 1}
    assert record.reasons == {"put: status 429": 1}


def test_what_got_no_answer_may_have_been_taken_in_only_if_it_left():
    async def main():
        record = QueueRecord()
        async with scripted(RESET) as server:
            for url in (server.url, "http://127.0.0.1:1", "http://127.0.0.1:1"):
                client = HttpClient(url)
                await _Producer(0, client, record, b"12345678", LOAD, 0.0)._put(1, 0.0)
                await client.close()
        return record

    record = asyncio.run(main())
    assert record.puts == {Put.UNKNOWN: 1, Put.UNREACHABLE: 2}
    assert record.reasons["put: NotDelivered"] == 2


def test_a_run_lasts_as_long_as_was_asked_for():
    """Though nothing is put at its end: throughput is of the whole of it."""
    began_s = time.monotonic()
    asyncio.run(run_on(replace(LOAD, produce_rate_per_s=0.0, consumers=0, duration_s=0.3)))
    assert time.monotonic() - began_s >= 0.3


def test_a_consumer_tells_why_it_got_nothing():
    async def main():
        record, client = QueueRecord(), HttpClient("http://127.0.0.1:1")
        consumer = Consumer(
            0, {"p1": client}, record, b"12345678",
            start_s=0.0, consume_s=0.0, max_hops=1, random=Random(1),
        )  # fmt: skip
        told = await consumer._take()
        found = Object(client, "g", "p1-1", 1, 1, 1.0, b"")
        is_known = await consumer._tell(found, "ack")
        await client.close()
        return told, is_known, record.reasons

    reasons = {"NotDelivered": 1, "ack: no answer": 1}
    assert asyncio.run(main()) == ((Took.FAILED, None), False, reasons)


@pytest.mark.parametrize(
    ("status", "took"), [(429, Took.REFUSED), (503, Took.REFUSED), (500, Took.FAILED)]
)
def test_a_refused_take_is_no_failed_one(status, took):
    async def main():
        record = QueueRecord()
        async with scripted(problem(status, "why")) as server:
            client = HttpClient(server.url)
            consumer = Consumer(
                0, {"p1": client}, record, b"12345678",
                start_s=0.0, consume_s=0.0, max_hops=1, random=Random(1),
            )  # fmt: skip
            told = await consumer._take()
            await client.close()
        return told, record.reasons

    assert asyncio.run(main()) == ((took, None), {f"take: status {status}": 1})


@pytest.mark.slow
def test_the_schedule_follows_from_the_seed():
    idle = replace(LOAD, consumers=0, produce_rate_per_s=20.0, duration_s=0.5)
    offered = {
        seed: [asyncio.run(run_on(replace(idle, seed=seed), buffers=100))[0] for _ in range(2)]
        for seed in (1, 2)
    }
    assert offered[1][0]["offered"] == offered[1][1]["offered"]
    assert offered[1][0]["missing"] == offered[1][0]["produced"] > 0, "nobody took them"


@pytest.mark.realtime  # whoever stands still for 0.4 s has lost it
def test_an_object_keeps_its_grant_while_its_consumer_is_busy():
    load = replace(LOAD, produce_rate_per_s=2.0, consume_s=1.0, consumers=8)
    result, _ = asyncio.run(run_on(load, visibility_s=0.4))
    assert (result["redelivered"], result["missing"]) == (0, 0)


def test_faults_of_a_queue_are_counted():
    record = QueueRecord()
    record.kept = {(0, 1), (0, 2), (0, 3)}
    record.puts[Put.OK] = 3
    for number in (1, 1, 2):
        record.acknowledged[0, number] += 1
    for name, deliveries in (
        ("p1-1", 1),
        ("p1-4", 1),
        ("p1-2", 1),
        ("p1-3", 1),
        ("p2-1", 1),
        ("p1-1", 2),
    ):
        record.came(0, name, deliveries)
    record.came(1, "p1-1", 1)
    record.came(1, "p1-1", 1)  # from another one of this name: not before itself
    record.acknowledged_s = [0.5, 2.0, 2.5]
    result = record.summary(duration_s=2.0, seed=1, interrupted=False)
    assert (result["missing"], result["duplicates"], result["out_of_order"]) == (1, 1, 2)
    assert result["redelivered"] == 1
    assert result["throughput_per_s"] == 1.0, "of what was done within the duration"


def test_what_is_asked_for_in_ms_is_waited_for_in_s():
    parser = argparse.ArgumentParser()
    configure(parser)
    given = ["--target", "p1=http://a:1", "--produce-rate", "3", "--consumers", "2"]
    given += ["--duration-s", "9", "--consume-ms", "250", "--deadline-ms", "1500"]
    load = load_of(parser.parse_args(given))
    assert (load.produce_rate_per_s, load.consumers, load.duration_s) == (3.0, 2, 9.0)
    assert (load.consume_s, load.deadline_s) == (0.25, 1.5)


@pytest.mark.parametrize(
    ("status", "put"),
    [(201, Put.OK), (429, Put.REFUSED), (503, Put.REFUSED), (200, Put.FAILED), (500, Put.FAILED)],
)
def test_what_becomes_of_an_object_is_told_by_the_status(status, put):
    assert _outcome_of(status) is put


def test_an_object_is_known_again_and_a_strangers_is_not():
    body = encode_object(b"12345678", 3, 77, 50)
    assert len(body) == 50
    assert decode_object(b"12345678", body) == (3, 77)
    assert decode_object(b"87654321", body) is None
    assert decode_object(b"12345678", b"short") is None


BRIEF = {
    "--target": "p1=http://127.0.0.1:1",
    "--produce-rate": "1",
    "--consumers": "1",
    "--duration-s": "1",
}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"--target": "p1"}, "--target: expected PRODUCER=URL, got 'p1'"),
        ({"--target": "p1=ftp://a"}, "--target: expected http://HOST"),
        ({}, "--target: expected producer p1 at http://127.0.0.1:1, got no answer"),
        ({"--produce-rate": "-1"}, "--produce-rate: expected a number of at least 0, got '-1'"),
        ({"--consumers": "-1"}, "--consumers: expected a number of at least 0, got -1"),
        ({"--consumers": "many"}, "--consumers: expected a whole number, got 'many'"),
        ({"--object-bytes": "3"}, "--object-bytes: expected a number of at least 20, got 3"),
        ({"--max-hops": "0"}, "--max-hops: expected a number of at least 1, got 0"),
        ({"--duration-s": "0"}, "--duration-s: expected a number above 0, got '0'"),
        ({"--consumer": "1"}, "unknown option --consumer, did you mean --consumers?"),
    ],
)
def test_bad_usage_is_told_in_one_line(capfd, changed, message):
    options = [word for option in ({**BRIEF, **changed}).items() for word in option]
    assert main(["queue", *options, "--json"]) == 2
    told = capfd.readouterr()
    assert (told.out, told.err.count("\n")) == ("", 1)
    assert message in told.err


def test_a_target_that_is_no_producer_is_told(node, capfd):
    options = [
        word for option in {**BRIEF, "--target": f"p1={node.url}"}.items() for word in option
    ]
    assert main(["queue", *options]) == 2
    said = capfd.readouterr().err
    assert said.endswith(
        f"expected producer p1 at {node.url}, found no producer of a queue there\n"
    )


def test_without_json_there_is_a_table(capfd):
    result, _ = asyncio.run(run_on(replace(LOAD, duration_s=0.3)))
    print_summary(result)
    said = capfd.readouterr().err
    assert f"acknowledged: {result['acknowledged']}" in said
    assert "until one is taken" in said
