"""A handler for `spillover lease run`: applies each record of a partition to a fenced sink once.

    spillover lease run --group G --handler python:spillover.live.leases.streams.example:consume ...

It takes where Redis is and which group from the environment, SPILLOVER_REDIS (or the file that
SPILLOVER_REDIS_FILE names, whose password may change) and SPILLOVER_GROUP.
Values are numbers 0, 1, 2, ... within each partition, as `fill` writes them. Per partition the sink
keeps, in the same Redis: how many were applied, their sum, how many came out of order, and a bitmap
of which; `check` says whether each was applied exactly once.
"""

from __future__ import annotations

import contextlib
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spillover.live.leases.renewal.lease import current_lease
from spillover.live.leases.streams.effects import Effects
from spillover.live.leases.streams.keys import StreamKeys
from spillover.live.leases.streams.reader import AsyncStreamReader, StreamReader
from spillover.live.leases.streams.records import Record
from spillover.live.leases.streams.steps import Holder, Stop
from spillover.live.leases.streams.writer import StreamWriter
from spillover.live.redis.rotation import RedisUrl
from spillover.model.errors import InputError

REDIS, REDIS_FILE, GROUP = "SPILLOVER_REDIS", "SPILLOVER_REDIS_FILE", "SPILLOVER_GROUP"
WAIT_S = 0.1
"""A stop is noticed so late, on a thread and while nothing comes in; Redis adds up to 0.1 s."""


def consume(partition: int, epoch: int, stop_event: threading.Event) -> None:
    """Consume a partition's stream until told to stop. Raises Fenced if another holder has the
    partition."""
    url, group = _place()
    reader = StreamReader(url, group, partition, epoch, stop=stop_event, lease=_lease())
    with reader:
        reader.consume(Counting(partition), wait_s=WAIT_S)


async def consume_async(partition: int, epoch: int, stop_event: Stop) -> None:
    """The same on an event loop."""
    url, group = _place()
    reader = AsyncStreamReader(url, group, partition, epoch, stop=stop_event, lease=_lease())
    async with reader:
        await reader.consume(Counting(partition), wait_s=WAIT_S)


class Counting:
    """A handler that counts records. Gaps are seen by this process only: it forgets at a takeover,
    the sum and the bitmap do not."""

    def __init__(self, partition: int) -> None:
        self._counts = counts_name(partition)
        self._applied = applied_name(partition)
        self._last: int | None = None

    def __call__(self, record: Record, effects: Effects) -> None:
        number = int(record.value)
        effects.increment(self._counts, "applied")
        effects.increment(self._counts, "sum", number)
        if self._last is not None and number > self._last + 1:
            effects.increment(self._counts, "out_of_order")
        effects.set_bit(self._applied, number)
        self._last = number


def counts_name(partition: int) -> str:
    """Returns the name of the hash with applied, sum and out_of_order."""
    return f"counts:{partition}"


def applied_name(partition: int) -> str:
    """Returns the name of the bitmap of numbers that were applied."""
    return f"applied:{partition}"


def fill(url: str, group: str, partitions: int, records: int, *, first: int = 0) -> list[int]:
    """Append as many to each, or one more, beginning with the number `first`; how many each
    partition got."""
    counts = [len(range(partition, records, partitions)) for partition in range(partitions)]
    with StreamWriter(url, group, partitions) as writer:
        for number in range(max(counts)):
            for partition in range(partitions):
                if number < counts[partition]:
                    writer.append(b"%d" % (first + number), partition=partition)
    return counts


@dataclass(frozen=True, slots=True)
class Applied:
    """The state of one partition in the fenced sink."""

    partition: int
    expected: int
    applied: int
    distinct: int
    sum: int
    out_of_order: int

    @property
    def is_complete(self) -> bool:
        return self.applied >= self.expected

    @property
    def is_exactly_once(self) -> bool:
        """Returns whether there are as many as expected, all of them different, and in order
        wherever one process looked."""
        expected_sum = self.expected * (self.expected - 1) // 2
        counts = (self.applied, self.distinct, self.sum, self.out_of_order)
        return counts == (self.expected, self.expected, expected_sum, 0)


def check(redis: Any, group: str, counts: list[int]) -> list[Applied]:
    """Returns what has become of what `fill` wrote; `redis` is a synchronous client of the
    library."""
    keys = StreamKeys.of(group)
    pipe = redis.pipeline(transaction=False)
    for partition in range(len(counts)):
        names = ("applied", "sum", "out_of_order")
        pipe.hmget(keys.sink(counts_name(partition)), *names)
        pipe.bitcount(keys.sink(applied_name(partition)))
    answers = iter(pipe.execute())
    found = []
    for partition, expected in enumerate(counts):
        applied, total, out_of_order = (int(value or 0) for value in next(answers))
        found.append(Applied(partition, expected, applied, int(next(answers)), total, out_of_order))
    return found


def _place() -> tuple[RedisUrl, str]:
    found = [os.environ.get(name, "") for name in (REDIS, GROUP)]
    for name, value in zip((REDIS, GROUP), found, strict=True):
        if not value:
            raise InputError("environment", name, "expected it to say where the streams are")
    file = os.environ.get(REDIS_FILE)
    return Path(file) if file else found[0], found[1]


def _lease() -> Holder | None:
    """Returns the lease of the handler that runs here, if it runs in a member."""
    with contextlib.suppress(LookupError):
        return current_lease()
    return None
