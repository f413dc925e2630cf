"""Handlers over streams: attempts, poison, stops, Redis going away, leases that end meanwhile."""

import asyncio
import signal
import threading
import time

import pytest

from spillover.live.leases.renewal.lease import Fenced, StopEvent
from spillover.live.leases.streams import example
from spillover.live.leases.streams.consuming import Attempts
from spillover.live.leases.streams.keys import StreamKeys
from spillover.live.leases.streams.lags import read_lags
from spillover.live.leases.streams.reader import AsyncStreamReader, StreamReader
from spillover.live.leases.streams.records import PoisonRecord
from spillover.live.leases.streams.writer import StreamWriter
from spillover.model.errors import InputError, StoreUnreachable

QUICK = {"pause_first_s": 0.001, "pause_longest_s": 0.002}


class Lease:
    """What a reader sees of a lease; it ends after so many questions."""

    def __init__(self, questions=10**9):
        self.left = questions
        self.told = 0
        self.load = 0

    def check(self):
        self.left -= 1
        if self.left < 0:
            raise Fenced(0, 1, "the lease is over")

    def progress(self):
        self.told += 1
        self.check()

    def report_load(self, amount):
        self.load += amount


@pytest.fixture
def filled(redis_server, redis_servers):
    """Partition 0 of a new group, with the numbers 0 to 99."""
    group = redis_servers.new_name()
    fill(redis_server.url, group, 100)
    return redis_server.url, group


def fill(url, group, count):
    with StreamWriter(url, group, 1) as writer:
        for number in range(count):
            writer.append(str(number), partition=0)


def counting(seen, fails=lambda number: False):  # noqa: ARG005 - of all numbers alike
    def on_record(record, effects):
        number = int(record.value)
        seen.append(number)
        effects.increment("n", str(number))
        if fails(number):
            raise ValueError(f"cannot {number}")

    return on_record


def applied(redis_server, group):
    found = redis_server.client.hgetall(StreamKeys.of(group).sink("n"))
    return {int(number): int(count) for number, count in found.items()}


def checkpoint(url, group):
    return read_lags(url, group, 1)[0].checkpoint


def test_each_record_takes_effect_once_and_in_order(redis_server, filled):
    url, group = filled
    seen = []
    with StreamReader(url, group, 0, 1, batch_records=7) as reader:
        consumed = reader.consume(counting(seen), to_end=True)
    assert seen == list(range(100))
    assert applied(redis_server, group) == dict.fromkeys(range(100), 1)
    assert (consumed.handled, consumed.batches, consumed.set_aside) == (100, 15, 0)


def test_slow_handlers_commit_in_parts(redis_server, filled):
    """A takeover repeats what took a moment, not what took a whole batch."""
    url, group = filled
    seen = []
    with StreamReader(url, group, 0, 1) as reader:
        consumed = reader.consume(counting(seen), attempts=Attempts(commit_s=0.0), to_end=True)
    assert (consumed.handled, consumed.batches) == (100, 100)
    assert applied(redis_server, group) == dict.fromkeys(range(100), 1)


def test_of_records_set_aside_the_last_ones_are_kept(redis_server, filled):
    url, group = filled
    poison = range(0, 100, 5)
    attempts = Attempts(attempts=2, **QUICK)
    with StreamReader(url, group, 0, 1, aside_records=6, batch_records=30) as reader:
        consumed = reader.consume(counting([], poison.__contains__), attempts=attempts, to_end=True)
    assert (consumed.handled, consumed.set_aside) == (80, 20)
    aside = redis_server.client.xrange(StreamKeys.of(group).set_aside(0))
    assert [int(fields["value"]) for _, fields in aside] == list(poison)[-6:]
    assert aside[-1][1]["error"] == "ValueError: cannot 95"
    assert set(applied(redis_server, group)) == set(range(100)) - set(poison)
    assert checkpoint(url, group).set_aside == 20
    with pytest.raises(InputError, match="aside_records: expected at least 1, got 0"):
        StreamReader(url, group, 0, 1, aside_records=0)


def test_a_record_that_fails_is_tried_again_before_what_follows(redis_server, filled):
    url, group = filled
    seen = []
    on_record = counting(seen, lambda number: number == 5 and seen.count(5) < 3)
    with StreamReader(url, group, 0, 1) as reader:
        reader.consume(on_record, attempts=Attempts(attempts=3, **QUICK), to_end=True)
    assert seen == [0, 1, 2, 3, 4, 5, 5, *range(5, 100)]
    assert applied(redis_server, group) == dict.fromkeys(range(100), 1)


def test_poison_of_very_many_fields_is_set_aside_in_part(redis_server, filled):
    """More than a script passes on: also then its batch takes effect as a whole."""
    url, group = filled
    keys = StreamKeys.of(group)
    redis_server.client.xadd(keys.stream(0), {f"f{number}": "" for number in range(5_000)})
    with StreamReader(url, group, 0, 1) as reader:
        consumed = reader.consume(counting([]), attempts=Attempts(attempts=1), to_end=True)
    assert (consumed.handled, consumed.set_aside) == (100, 1)
    assert applied(redis_server, group) == dict.fromkeys(range(100), 1)
    ((_, aside),) = redis_server.client.xrange(keys.set_aside(0))
    assert ("f2999" in aside, "f3000" in aside) == (True, False)


def test_poison_can_end_it_instead(redis_server, filled):
    url, group = filled
    attempts = Attempts(attempts=2, on_poison="give-up", **QUICK)
    for epoch in (1, 2):
        with (
            StreamReader(url, group, 0, epoch) as reader,
            pytest.raises(PoisonRecord, match="tried 2 times, ValueError: cannot 50"),
        ):
            reader.consume(counting([], lambda number: number == 50), attempts=attempts)
    assert checkpoint(url, group).passed == 50
    assert applied(redis_server, group) == dict.fromkeys(range(50), 1)


def test_failing_at_everything_is_no_poison(redis_server, filled):
    """A database that is down must not set all records aside. As many with others between them are
    poison."""
    url, group = filled
    attempts = Attempts(attempts=1, aside_in_a_row_max=4, **QUICK)
    poison = {1, 3, 5, 7, 9, 11}
    with (
        StreamReader(url, group, 0, 1) as reader,
        pytest.raises(PoisonRecord, match="so did 4 before it"),
    ):
        reader.consume(
            counting([], lambda number: number in poison or number >= 20), attempts=attempts
        )
    stored = checkpoint(url, group)
    assert (stored.passed, stored.set_aside) == (20, len(poison))


def test_another_process_that_does_not_answer_is_no_poison(redis_server, filled):
    url, group = filled

    def on_record(record, effects):
        if record.value == b"3":
            raise StoreUnreachable("some sink")

    with StreamReader(url, group, 0, 1) as reader, pytest.raises(StoreUnreachable):
        reader.consume(on_record, attempts=Attempts(**QUICK))
    assert (checkpoint(url, group).passed, checkpoint(url, group).set_aside) == (3, 0)


@pytest.mark.parametrize("event", [threading.Event, StopEvent])
def test_told_to_stop_it_commits_what_it_has_done(redis_server, filled, event):
    url, group = filled
    stop, seen = event(), []

    def fails(number):
        if number == 30:
            stop.set()
        return number == 30

    with StreamReader(url, group, 0, 1, stop=stop) as reader:
        consumed = reader.consume(counting(seen, fails))
    assert seen == list(range(31))
    assert consumed.handled == 30
    assert consumed.set_aside == 0
    assert checkpoint(url, group).passed == 30


def test_a_lease_that_is_over_ends_it_at_the_next_step(redis_server, filled):
    url, group = filled
    lease = Lease(50)
    with StreamReader(url, group, 0, 1, lease=lease) as reader, pytest.raises(Fenced):
        reader.consume(counting([]))
    assert applied(redis_server, group) == {}


def test_a_handler_that_sees_a_fence_is_not_tried_again(redis_server, filled):
    url, group = filled
    calls = []

    def on_record(record, effects):
        calls.append(record)
        raise Fenced(0, 1, "the sink has seen epoch 2")

    with StreamReader(url, group, 0, 1) as reader, pytest.raises(Fenced):
        reader.consume(on_record, attempts=Attempts(attempts=5, **QUICK))
    assert len(calls) == 1


def test_redis_may_go_away_for_a_while(redis_servers, tmp_path):
    """Killed and restarted with its data while records come in: nothing is lost or done twice."""
    kept = ("--appendonly", "yes", "--appendfsync", "always")
    with redis_servers.running(tmp_path, *kept) as server:
        fill(server.url, "g", 300)
        seen = []

        def on_record(record, effects):
            number = int(record.value)
            if number in {50, 170} and number not in seen:
                server.restart()
            seen.append(number)
            effects.increment("n", str(number))

        with StreamReader(server.url, "g", 0, 1, batch_records=20) as reader:
            reader.consume(on_record, to_end=True)
        assert applied(server, "g") == dict.fromkeys(range(300), 1)


def test_closing_waits_for_nobody(redis_servers, tmp_path):
    """A Redis that stands still does not hold up a handler that ends."""
    with redis_servers.running(tmp_path) as server:
        fill(server.url, "g", 20)
        reader = StreamReader(server.url, "g", 0, 1, batch_records=5, timeout_s=60.0)
        reader.read(0.0)
        server.process.send_signal(signal.SIGSTOP)
        reader.read(0.0) if reader._reading._ahead[1].done() else None
        began_s = time.monotonic()
        reader.close()
        assert time.monotonic() - began_s < 30.0


@pytest.mark.parametrize("event", [asyncio.Event, threading.Event, StopEvent])
def test_async_handlers_are_awaited_and_stopped_while_they_wait(redis_server, filled, event):
    url, group = filled

    async def run():
        stop, seen, idle = event(), [], asyncio.Event()

        async def on_record(record, effects):
            await asyncio.to_thread(seen.append, int(record.value))
            effects.increment("n", str(seen[-1]))
            if seen[-1] == 99:
                idle.set()

        reader = AsyncStreamReader(url, group, 0, 1, stop=stop, batch_records=9, timeout_s=200.0)
        async with reader, asyncio.timeout(20.0):
            task = asyncio.create_task(reader.consume(on_record, wait_s=90.0))
            await idle.wait()
            while redis_server.client.info("clients")["blocked_clients"] == 0:
                await asyncio.to_thread(redis_server.client.ping)
            stop.set()
            consumed = await task
        return seen, consumed

    seen, consumed = asyncio.run(run())
    assert seen == list(range(100))
    assert consumed.handled == 100
    assert applied(redis_server, group) == dict.fromkeys(range(100), 1)


@pytest.mark.parametrize("is_async", [False, True])
def test_the_example_counts_each_record_once(redis_server, redis_servers, monkeypatch, is_async):
    group = redis_servers.new_name()
    monkeypatch.setenv(example.REDIS, redis_server.url)
    monkeypatch.setenv(example.GROUP, group)
    counts = example.fill(redis_server.url, group, 2, 3_001)
    assert counts == [1_501, 1_500]

    def found():
        return example.check(redis_server.client, group, counts)

    for partition in (0, 1):
        stop = StopEvent()
        if is_async:
            thread = threading.Thread(
                target=lambda: asyncio.run(example.consume_async(partition, 4, stop))  # noqa: B023
            )
        else:
            thread = threading.Thread(target=example.consume, args=(partition, 4, stop))
        thread.start()
        try:
            while thread.is_alive() and not found()[partition].is_complete:
                thread.join(0.01)
        finally:
            stop.set()
            thread.join(10.0)
    assert all(one.is_exactly_once for one in found()), found()
