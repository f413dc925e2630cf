"""The lag of each partition: records, and milliseconds, beyond its checkpoint."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import Any

from spillover.live.leases.streams.client import AsyncClient, Client
from spillover.live.leases.streams.keys import SOURCE, StreamKeys
from spillover.live.leases.streams.reading import load_script
from spillover.live.leases.streams.records import Checkpoint
from spillover.live.leases.streams.steps import Guard, Run, Steps
from spillover.live.redis.rotation import RedisUrl
from spillover.model.errors import InputError

SLICE = 200
"""So many partitions are looked at in one script, so that it holds nobody up."""


@dataclass(frozen=True, slots=True)
class Lag:
    """The lag of one partition, at one instant."""

    partition: int
    records: int
    """The records that are not yet committed. Single records that were deleted unread count until
    the end is reached. Redis before 7 does not count entries: where a stream is trimmed this is the
    least it may be."""
    age_ms: int
    """The milliseconds since the oldest of them was appended, by Redis's clock; 0 if there is
    none."""
    trimmed: int
    """The records that were lost beyond the checkpoint before they were read; a reader counts them
    when it is there. Always 0 with Redis before 7."""
    length: int
    """The records that the stream still has, committed ones included."""
    checkpoint: Checkpoint | None
    """The checkpoint; None where nobody has claimed the partition yet."""


def read_lags(
    url: RedisUrl, group: str, partitions: int, *, timeout_s: float = 5.0, retry_s: float = 5.0
) -> list[Lag]:
    """Returns the lags of partitions 0 to `partitions` - 1. Raises InputError, StoreUnreachable,
    StoreRefused."""
    client = Client(url, timeout_s)
    try:
        return client.carry_out(_lags(StreamKeys.of(group), partitions, retry_s))
    finally:
        client.close()


async def read_lags_async(
    url: RedisUrl, group: str, partitions: int, *, timeout_s: float = 5.0, retry_s: float = 5.0
) -> list[Lag]:
    """Do the same as `read_lags`."""
    client = AsyncClient(url, timeout_s)
    try:
        return await client.carry_out(_lags(StreamKeys.of(group), partitions, retry_s))
    finally:
        await client.close()


def _lags(keys: StreamKeys, partitions: int, retry_s: float) -> Steps[list[Lag]]:
    if partitions < 1:
        raise InputError(SOURCE, "partitions", f"expected at least 1, got {partitions}")
    guard = Guard(None, None, retry_s, Random())
    script = load_script("lags")
    found: list[Lag] = []
    for first in range(0, partitions, SLICE):
        part = range(first, min(first + SLICE, partitions))
        run = Run(script, (keys.checkpoints, *map(keys.stream, part)), (first,))
        now_ms, *answers = yield from guard.patiently(run)
        found += _read(part, int(now_ms), answers)
    return found


def _read(part: Iterable[int], now_ms: int, answers: list[Any]) -> Iterable[Lag]:
    for partition, (value, added, length, oldest, first) in zip(part, answers, strict=True):
        checkpoint = None
        if value:
            try:
                checkpoint = Checkpoint.parse(value.decode())
            except ValueError:
                checkpoint = None
        passed = checkpoint.passed if checkpoint else 0
        if added >= 0:
            # Fewer than were passed: the stream was begun anew.
            beyond = length if added < passed else added - passed
        else:
            beyond = length if oldest == first else max(1, length - passed)
        trimmed = max(0, added - length - passed)
        age_ms = max(0, now_ms - int(oldest.partition(b"-")[0])) if oldest else 0
        records = min(length, beyond) if oldest else 0
        yield Lag(partition, records, age_ms, trimmed, length, checkpoint)
