"""Exactly once under takeovers: readers of growing epochs race, die, freeze, and come back.

SPILLOVER_SOAK_S in the environment: a million records instead of 2 000, and takeovers for as
long.
"""

import os
import signal
import subprocess
import sys
from functools import partial
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillover.live.leases.renewal.lease import Fenced
from spillover.live.leases.streams import example
from spillover.live.leases.streams.effects import Effects
from spillover.live.leases.streams.keys import StreamKeys
from spillover.live.leases.streams.reader import StreamReader
from spillover.live.leases.streams.records import CheckpointMoved
from spillover.live.leases.streams.writer import StreamWriter
from support import waiting
from support.few import examples

SOAK_S = float(os.environ.get("SPILLOVER_SOAK_S", "0"))
RECORDS = 1_000_000 if SOAK_S else 2_000
BATCH_RECORDS = max(2, RECORDS // 4_000)
"""Small, so that takeovers come in the middle; one alone would have none."""
LIMIT_S = 240.0 if SOAK_S else 60.0
FENCED = 3

CONSUMER = """
import sys, threading
from spillover.live.leases.renewal.lease import Fenced
from spillover.live.leases.streams.example import Counting
from spillover.live.leases.streams.reader import StreamReader
url, group, partition, epoch = *sys.argv[1:3], int(sys.argv[3]), int(sys.argv[4])
with StreamReader(url, group, partition, epoch, batch_records=int(sys.argv[5])) as reader:
    try:
        reader.consume(Counting(partition))
    except Fenced:
        sys.exit(3)
"""


until = partial(waiting.until, limit_s=LIMIT_S)


steps = st.lists(
    st.tuples(
        st.sampled_from(["claim", "read", "apply", "part", "lost", "twice", "kill", "append"]),
        st.integers(0, 3),
        st.integers(1, 9),
    ),
    min_size=10,
    max_size=60 if SOAK_S else 30,
)


class Race:
    """Up to four readers of one partition; each record appends itself to what is applied."""

    def __init__(self, url, group):
        self.url, self.group = url, group
        self.epoch = self.appended = 0
        self.readers = {}
        self.batches = {}
        self.writer = StreamWriter(url, group, 1)
        self.append(20)

    def append(self, count):
        for _ in range(count):
            self.writer.append(str(self.appended), partition=0)
            self.appended += 1
        self.writer.flush()

    def step(self, what, who, count):
        match what:
            case "append":
                self.append(count)
            case "claim":
                self.kill(who)
                self.epoch += 1
                self.readers[who] = self.reader(self.epoch, count)
                self.readers[who].claim()
            case "kill":
                self.kill(who)
            case "read" if who in self.readers:
                batch = self.readers[who].read(0.0)
                if batch is not None:
                    self.batches[who] = batch
            case "apply" | "part" | "lost" | "twice" if who in self.batches:
                self.apply(what, who, count)

    def reader(self, epoch, count):
        return StreamReader(self.url, self.group, 0, epoch, batch_records=count)

    def apply(self, what, who, count):
        reader, batch = self.readers[who], self.batches.pop(who)
        if what == "part":
            batch = batch.upto(count)
        before = reader.checkpoint
        reader.apply(batch, effects_of(batch))
        if what in {"lost", "twice"}:
            reader._reading.checkpoint = before
        if what == "twice":
            reader.apply(batch, effects_of(batch))

    def kill(self, who):
        self.batches.pop(who, None)
        if who in self.readers:
            self.readers.pop(who).close()

    def close(self):
        for who in list(self.readers):
            self.kill(who)
        self.writer.close()


def effects_of(batch):
    effects = Effects()
    for record in batch.records:
        effects.increment("times", record.value)
    return effects


@settings(max_examples=examples(60))
@given(happened=steps)
def test_whatever_readers_do_each_record_is_applied_once(redis_server, redis_servers, happened):
    race = Race(redis_server.url, redis_servers.new_name())
    highest, fenced = 0, set()
    for what, who, count in happened:
        try:
            race.step(what, who, count)
        except Fenced as error:
            fenced.add(error.epoch)
            race.kill(who)
        except (CheckpointMoved, ValueError):
            race.kill(who)  # a member begins anew
        assert race.epoch not in fenced  # only those that somebody came after
        times = redis_server.client.hgetall(StreamKeys.of(race.group).sink("times"))
        assert set(times) == {str(number) for number in range(len(times))}  # in order, no gap
        assert set(times.values()) <= {"1"}
        assert len(times) >= highest
        highest = len(times)
    with race.reader(race.epoch + 1, 7) as last:
        while (batch := last.read(0.0)) is not None:
            last.apply(batch, effects_of(batch))
    race.close()
    times = redis_server.client.hgetall(StreamKeys.of(race.group).sink("times"))
    assert times == {str(number): "1" for number in range(race.appended)}


class Consumers:
    """Processes that consume one partition; each one started has a higher epoch."""

    def __init__(self, url, group, client, counts):
        self.given = url, group
        self.client, self.counts = client, counts
        self.epoch = 0
        self.processes = []

    def start(self):
        self.epoch += 1
        arguments = (*self.given, "0", str(self.epoch), str(BATCH_RECORDS))
        command = [sys.executable, "-c", CONSUMER, *arguments]
        self.processes.append(subprocess.Popen(command, stderr=subprocess.PIPE))
        return self.processes[-1]

    @property
    def applied(self):
        return example.check(self.client, self.given[1], self.counts)[0]

    @property
    def claimed(self):
        value = self.client.hget(StreamKeys.of(self.given[1]).checkpoints, "0")
        return int(value.split("|")[0]) if value else 0

    def end(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.mark.timeout(300 + LIMIT_S)
def test_processes_are_killed_frozen_and_overtaken(redis_server, redis_servers):
    """At random instants. Those that come back are fenced, and nothing is applied twice."""
    url, group, random = redis_server.url, redis_servers.new_name(), Random(11)
    counts = example.fill(url, group, 1, RECORDS)
    consumers = Consumers(url, group, redis_server.client, counts)
    stale = []
    try:
        for what in ["kill", "freeze", "overtake"] * 2 if SOAK_S else ["freeze", "overtake"]:
            process = consumers.start()
            until(lambda: consumers.claimed == consumers.epoch)
            goal = min(RECORDS, consumers.applied.applied + random.randrange(1, RECORDS // 40))
            until(lambda goal=goal: consumers.applied.applied >= goal)
            if what == "kill":
                process.kill()
            else:
                stale.append(process)
                process.send_signal(signal.SIGSTOP if what == "freeze" else 0)
        assert not consumers.applied.is_complete  # or nothing was taken over
        last = consumers.start()
        until(lambda: consumers.claimed == consumers.epoch)
        for process in stale:
            process.send_signal(signal.SIGCONT)
        for process in stale:
            assert process.wait(LIMIT_S) == FENCED, process.stderr.read()
        until(lambda: consumers.applied.is_complete)
        assert last.poll() is None
        assert consumers.applied.is_exactly_once, consumers.applied
    finally:
        consumers.end()
