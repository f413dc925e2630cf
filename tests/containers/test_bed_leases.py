"""The lease members of the compose testbed: they share, Redis stands still and loses everything,
one is killed and one frozen at the same time, and the third hands over. Throughout there is one
holder at a time, epochs grow, and each record is applied exactly once.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager

import pytest

PARTITIONS = 32
GROUP = "testbed"
SETTLES_S = 60.0
"""Until all have their share: a few challenges, each of which comes once in a normal lease."""
STILL_S = 4.0
"""Redis: less than what a lease has left, so that nothing may be lost."""
BATCH_S = 0.5


@pytest.fixture(scope="module")
def times(bed):
    """Of the members, as their command says."""
    import yaml

    from spillover.model.lease_times import LeaseTimes

    compose = yaml.safe_load((bed.context / "compose.yaml").read_text())
    command = compose["services"]["lease-1"]["command"]
    assert command[command.index("--partitions") + 1] == str(PARTITIONS)
    names = ("normal_lease", "max_lease", "max_shutdown", "min_grab", "held_delay")
    return LeaseTimes(
        **{
            f"{name}_ms": float(command[command.index(f"--{name.replace('_', '-')}-ms") + 1])
            for name in names
        }
    )


@pytest.fixture(scope="module")
def even(beds, watch):
    """What each member holds once all have as many."""
    watch.until_shared(*beds.MEMBERS, limit_s=SETTLES_S)


class Records:
    """Written to all partitions alike, a batch every moment, while `writing()`."""

    def __init__(self, url):
        self._url = url
        self.batches = 0

    @contextmanager
    def writing(self):
        ended = threading.Event()
        thread = threading.Thread(target=self._write, args=(ended,))
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _write(self, ended):
        from spillover.live.leases.streams.example import fill

        while not ended.wait(BATCH_S):
            fill(self._url, GROUP, PARTITIONS, PARTITIONS, first=self.batches)
            self.batches += 1

    def applied(self):
        """What came of each partition's records so far."""
        from redis import Redis

        from spillover.live.leases.streams.example import check

        with Redis.from_url(self._url) as client:
            return check(client, GROUP, [self.batches] * PARTITIONS)


@pytest.fixture(scope="module")
def records(bed):
    return Records(bed.redis_url)


def judge(beds, watch, records):
    """All records have been applied, each once, and leases were as they should be."""
    beds.until(lambda: all(one.is_complete for one in records.applied()), 20.0, "all records")
    wrong = [one for one in records.applied() if not one.is_exactly_once]
    assert not wrong, wrong[:3]
    assert watch.wrongs == []
    assert watch.wrongs_of_tenures() == []
    assert watch.looks > 0


def test_redis_stands_still(beds, bed, watch, even, records):
    """For less than a lease: nobody loses anything, and all goes on."""
    before = {node: dict(held) for node, held in watch.held.items()}
    with records.writing():
        beds.until(lambda: records.batches > 1, 30.0, "records")
    bed.pause("redis")
    try:
        over_s = time.monotonic() + STILL_S
        beds.until(lambda: time.monotonic() > over_s, STILL_S + 5.0)
    finally:
        bed.unpause("redis")
    took_s = beds.until(lambda: watch.held == before, 30.0, "what was held before")
    beds.tell(f"leases: Redis stood still for {STILL_S:g} s, all as before after {took_s:.1f} s")
    judge(beds, watch, records)


def test_redis_is_killed_and_loses_everything(beds, bed, watch, even, records):
    """It keeps nothing on disk. Those who hold something say so anew, and go on."""
    before = {node: dict(held) for node, held in watch.held.items()}
    bed.kill("redis")
    bed.start_again("redis")

    def is_known_again():
        states = [beds.get(f"{url}/state") for url in bed.member_urls.values()]
        known = [{one["partition"]: one["epoch"] for one in s["allocation"]} for s in states]
        held = {p: epoch for each in before.values() for p, epoch in each.items()}
        return all(s["redis"]["up"] for s in states) and all(one == held for one in known)

    took_s = beds.until(is_known_again, 20.0, "the same allocation in Redis as before")
    beds.tell(f"leases: Redis lost everything, and has it again after {took_s:.1f} s")
    assert watch.held == before
    records.batches = 0  # those before went with it
    with records.writing():
        beds.until(lambda: records.batches > 1, 30.0, "records")
    judge(beds, watch, records)


def test_one_is_killed_and_one_frozen(beds, bed, watch, even, records, times):
    """The third takes over all within the time that leases take to run out. The frozen one finds
    out as it goes on, and lets go. Both get a share again, and one who ends gives up its own."""
    limit_s = (times.max_lease_ms + 1.1 * times.normal_lease_ms + times.longest_wait_ms) / 1e3
    with records.writing():
        frozen = set(watch.held["lease-3"])
        bed.kill("lease-2")
        bed.pause("lease-3")
        hurt_s = time.time()
        try:
            took_s = watch.until_shared("lease-1", limit_s=limit_s + 2.0)
        finally:
            watch.silences += [("lease-2", hurt_s, time.time()), ("lease-3", hurt_s, time.time())]
            bed.unpause("lease-3")
            bed.start_again("lease-2")
        said = beds.until(lambda: let_go(watch, hurt_s) >= frozen, 30.0, "the frozen one")
        back_s = beds.until(
            lambda: watch.held.get("lease-2") and watch.held.get("lease-3"), SETTLES_S, "shares"
        )
        bed.compose("stop", "lease-1")
        gave_s = watch.until_all_held("lease-2", "lease-3", limit_s=30.0)
    beds.tell(
        f"leases: one killed and one frozen, all taken over after {took_s:.1f} s (limit "
        f"{limit_s:.1f} s); back, the frozen one had let go within {said:.1f} s, and both had a "
        f"share {back_s:.1f} s later; handed over by the third in {gave_s:.1f} s"
    )
    judge(beds, watch, records)
    assert bed.inspect("lease-1")["State"]["ExitCode"] == 0
    assert gave_s < (times.max_lease_ms - 1.1 * times.normal_lease_ms) / 1e3, "they ran out"


def let_go(watch, since_s):
    """The partitions that the frozen one was told are not its own any more."""
    lines = [line for line in watch.lines("lease-3") if line["at_s"] > since_s]
    return {line["partition"] for line in lines if line["event"] in {"lost", "fenced"}}
