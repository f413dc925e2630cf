"""The load on a queue: what is asked for, what comes of it, and that faults of a queue are seen."""

import asyncio

import pytest

from spillover_loadgen import queue_driver
from spillover_loadgen.cli import main
from spillover_loadgen.queue_driver import QueueLoad
from support.queue_producers import producers

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
