"""The words that a member and its renewer share, against a twin that is a few dictionaries: through
either of two maps of the same file, and of each partition for itself."""

import math
from random import Random

import pytest

from spillover.live.leases.renewal.guard import ProgressGuard
from spillover.live.leases.renewal.memory import LOOP, THREAD, LeaseMemory

PARTITIONS = 3
STEPS = 1_500


class Twin:
    """What the words of a memory mean, by partition."""

    def __init__(self):
        nothing = {"epoch": 0, "granted": 0.0, "limit": 0.0, "progress": None, "runtime": THREAD}
        nothing |= {"renewed": (0, 0.0), "lost": 0}
        self.words = [dict(nothing) for _ in range(PARTITIONS)]
        self.beat_s = {THREAD: None, LOOP: None}
        self.ran_s = {THREAD: 1.0, LOOP: 1.0}
        self.renewer_beat_s = 0.0

    def grant(self, partition, epoch, to_s, runtime):
        words = self.words[partition]
        words |= {"epoch": epoch, "granted": to_s, "limit": math.inf}
        words |= {"progress": None, "runtime": runtime}

    def limit(self, partition, to_s):
        self.words[partition]["limit"] = min(self.words[partition]["limit"], to_s)

    def drop(self, partition):
        self.words[partition]["epoch"] = 0

    def report_progress(self, partition):
        words = self.words[partition]
        words["progress"] = self.ran_s[words["runtime"]]

    def beat(self, runtime, now_s, gap_max_s):
        before_s = self.beat_s[runtime]
        gap_s = gap_max_s if before_s is None else now_s - before_s
        self.ran_s[runtime] += min(gap_s, gap_max_s)
        self.beat_s[runtime] = now_s

    def renewed(self, partition, epoch, to_s):
        self.words[partition]["renewed"] = epoch, to_s

    def lose(self, partition, epoch):
        self.words[partition]["lost"] = epoch

    def beat_renewer(self, now_s):
        self.renewer_beat_s = now_s

    def deadline_s(self, partition, epoch):
        words = self.words[partition]
        if words["epoch"] != epoch or words["lost"] == epoch:
            return 0.0
        of, renewed_s = words["renewed"]
        latest_s = max(words["granted"], renewed_s) if of == epoch else words["granted"]
        return min(latest_s, words["limit"])

    def seen(self, now_s):
        """All that can be asked."""
        numbers = range(PARTITIONS)
        runtimes = [words["runtime"] for words in self.words]
        told_s = [words["progress"] for words in self.words]
        return {
            "held": [(p, self.words[p]["epoch"]) for p in numbers if self.words[p]["epoch"]],
            "epochs": [words["epoch"] for words in self.words],
            "deadlines": [self.deadline_s(p, epoch) for p in numbers for epoch in range(1, 5)],
            "idle": [
                None if told is None else self.ran_s[runtime] - told
                for runtime, told in zip(runtimes, told_s, strict=True)
            ],
            "silent": [
                0.0 if self.beat_s[runtime] is None else now_s - self.beat_s[runtime]
                for runtime in runtimes
            ],
            "renewer": self.renewer_beat_s,
        }


def seen(memory, now_s):
    numbers = range(PARTITIONS)
    return {
        "held": memory.held(),
        "epochs": [memory.epoch(partition) for partition in numbers],
        "deadlines": [memory.deadline_s(p, epoch) for p in numbers for epoch in range(1, 5)],
        "idle": [memory.idle_s(partition) for partition in numbers],
        "silent": [memory.silent_s(partition, now_s) for partition in numbers],
        "renewer": memory.renewer_beat_s,
    }


def a_step(random, now_s):
    """What one of both sides writes, with halves and quarters, which add up exactly."""
    partition, epoch = random.randrange(PARTITIONS), random.randrange(1, 5)
    at_s, runtime = now_s + random.randrange(80) / 4.0, random.choice((THREAD, LOOP))
    return random.choice(
        (
            ("grant", partition, epoch, at_s, runtime),
            ("limit", partition, at_s),
            ("drop", partition),
            ("report_progress", partition),
            ("beat", runtime, now_s, 0.75),
            ("renewed", partition, epoch, at_s),
            ("lose", partition, epoch),
            ("beat_renewer", now_s),
        )
    )


@pytest.mark.parametrize("seed", range(3))
def test_both_maps_show_what_was_written_of_each_partition(seed):
    """A second map, as a renewer that starts anew makes one, changes nothing by being made."""
    random, twin = Random(seed), Twin()
    member = LeaseMemory(PARTITIONS)
    assert seen(member, 7.0) == twin.seen(7.0)
    for written in (member, twin):
        for partition, runtime in ((0, LOOP), (1, THREAD)):
            written.grant(partition, 1, 5.0, runtime)
            written.report_progress(partition)
            written.beat(runtime, 6.0, 0.5)
    assert seen(member, 7.0) == twin.seen(7.0)
    renewer = LeaseMemory(PARTITIONS, member.fd)
    assert seen(renewer, 7.0) == twin.seen(7.0)
    now_s = 100.0
    for _ in range(STEPS):
        now_s += random.randrange(1, 5) / 4.0
        operation, *given = a_step(random, now_s)
        getattr(random.choice((member, renewer)), operation)(*given)
        getattr(twin, operation)(*given)
        expected = twin.seen(now_s)
        assert seen(member, now_s) == expected, operation
        assert seen(renewer, now_s) == expected, operation
    member.close()


# --- who hangs --------------------------------------------------------------------------------


@pytest.mark.parametrize(("max_s", "limit_s"), [(2.0, 4.0), (3.0, 6.0)])
def test_a_runtime_may_stand_still_for_four_leases_and_twice_what_a_handler_may_take(
    max_s, limit_s
):
    """Of leases of 1 s; whichever is longer. Those who never told of anything are left alone."""
    memory = LeaseMemory(2)
    guard = ProgressGuard(memory, max_s, 1.0)
    for partition in (0, 1):
        memory.grant(partition, 1, 1e9, LOOP)
    memory.beat(LOOP, 100.0, 9.0)
    memory.report_progress(1)
    assert guard.hung(memory.held(), 100.0 + limit_s, 0.0) == []
    assert guard.hung(memory.held(), 100.25 + limit_s, 100.25) == []
    assert guard.hung(memory.held(), 100.25 + limit_s, 100.0) == [(1, 1)]
    memory.close()


def test_nobody_is_judged_where_no_limit_was_asked_for():
    memory = LeaseMemory(1)
    memory.grant(0, 1, 1e9, THREAD)
    memory.beat(THREAD, 100.0, 9.0)
    memory.report_progress(0)
    memory.beat(THREAD, 1e6, 1e6)
    assert memory.idle_s(0) > 1e5
    assert ProgressGuard(memory, None, 1.0).hung(memory.held(), 1e6, 0.0) == []
    memory.close()
