"""Whether each record was applied exactly once, looked up in Redis by other code than applied it.

What should have been applied is read from the streams themselves: how many records, and their sum.
What has been is what the sink of `live.leases.streams.example` keeps: how many, their sum, and one
bit for each. Nothing is written here, except at the end, where a group's keys are removed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from spillover.live.leases.redis_values import GroupKeys
from spillover.live.leases.streams.example import applied_name, counts_name
from spillover.live.leases.streams.keys import StreamKeys
from spillover.live.leases.streams.records import Checkpoint

SLICE = 5_000
"""Records summed up at once, so that Redis is held up for a few milliseconds only."""

# Keys: a stream. Arguments: from which id on, how many at most.
# Answer: how many there were, the sum of their values, the last id.
_SUM = """
local entries = redis.call('XRANGE', KEYS[1], ARGV[1], '+', 'COUNT', ARGV[2])
local sum, last = 0, ''
for i = 1, #entries do
  sum = sum + tonumber(entries[i][2][2])
  last = entries[i][1]
end
return { #entries, string.format('%.0f', sum), last }
"""


@dataclass(frozen=True, slots=True)
class StreamCheck:
    """One stream and what its part of the sink shows."""

    partition: int
    records: int
    """That lie in the stream."""
    sum: int
    applied: int
    """How often a record was applied."""
    applied_sum: int
    distinct: int
    """How many of the numbers 0 to records - 1 were applied."""
    foreign: int
    """How many others were."""
    out_of_order: int
    set_aside: int
    epoch: int

    @property
    def missing(self) -> int:
        return self.records - self.distinct

    @property
    def duplicates(self) -> int:
        return max(0, self.applied - self.distinct - self.foreign)

    @property
    def is_exactly_once(self) -> bool:
        wrong = (self.missing, self.duplicates, self.foreign, self.out_of_order, self.set_aside)
        return (self.applied, self.applied_sum) == (self.records, self.sum) and not any(wrong)

    @property
    def problem(self) -> str:
        """Returns it in words; empty if there is none."""
        if self.is_exactly_once:
            return ""
        return (
            f"stream {self.partition}: {self.records} records with sum {self.sum}, applied "
            f"{self.applied} times with sum {self.applied_sum}, {self.missing} never, "
            f"{self.duplicates} again, {self.foreign} that do not exist, {self.out_of_order} out "
            f"of order, {self.set_aside} set aside"
        )


def check_streams(redis: Any, group: str, streams: int) -> list[StreamCheck]:
    """Checks all streams; `redis` is a synchronous client of the library that answers in bytes."""
    return [_check(redis, StreamKeys.of(group), partition) for partition in range(streams)]


def remove_keys(redis: Any, group: str, streams: int) -> None:
    """Removes everything that the demo has left of its group. The numbers that writers keep of
    their last batch go by themselves, within a day."""
    keys, leases = StreamKeys.of(group), GroupKeys.of(group)
    names = [*leases.hashes_with_load, keys.checkpoints, keys.facts]
    for partition in range(streams):
        names += [keys.stream(partition), keys.set_aside(partition)]
        names += [keys.sink(counts_name(partition)), keys.sink(applied_name(partition))]
    redis.unlink(*names)


def _check(redis: Any, keys: StreamKeys, partition: int) -> StreamCheck:
    records, total = _sum_of(redis, keys.stream(partition))
    fields = ("applied", "sum", "out_of_order")
    counts = redis.hmget(keys.sink(counts_name(partition)), *fields)
    applied, applied_sum, out_of_order = (int(value or 0) for value in counts)
    bits = redis.get(keys.sink(applied_name(partition))) or b""
    distinct, foreign = _count_bits(bits, records)
    stored = redis.hget(keys.checkpoints, partition)
    checkpoint = Checkpoint.parse(stored.decode()) if stored else None
    return StreamCheck(
        partition=partition,
        records=records,
        sum=total,
        applied=applied,
        applied_sum=applied_sum,
        distinct=distinct,
        foreign=foreign,
        out_of_order=out_of_order,
        set_aside=checkpoint.set_aside if checkpoint else 0,
        epoch=checkpoint.epoch if checkpoint else 0,
    )


def _sum_of(redis: Any, stream: str) -> tuple[int, int]:
    """How many records, and the sum of their values."""
    count = total = 0
    start = "-"
    while True:
        found, part, last = redis.eval(_SUM, 1, stream, start, SLICE)
        count += int(found)
        total += int(part)
        if found < SLICE:
            return count, total
        start = f"({last.decode()}"


def _count_bits(bits: bytes, records: int) -> tuple[int, int]:
    """How many of the first `records` bits are set, and how many behind them. Redis counts the
    bits of a byte from its highest on."""
    ones = int.from_bytes(bits, "big")
    behind = max(0, len(bits) * 8 - records)
    first = (ones >> behind).bit_count()
    return first, ones.bit_count() - first
