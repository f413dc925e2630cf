"""Values of the streams: a record, a batch of them, a checkpoint, and how places are counted.

A place is counted by how many entries of the stream lie before it, those included that were removed
before anybody read them. So the distance to the end is known without reading.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from spillover.model.errors import SpilloverError
from spillover.model.ranges import WHOLE_MAX

START = "0-0"

_CHECKPOINT = re.compile(
    r"(\d{1,19})\|(\d{1,19}-\d{1,19})\|(\d{1,16})\|(\d{1,16})\|(\d{1,16})", re.ASCII
)
"""The form of a checkpoint, as in lua/fence.lua."""


class CheckpointMoved(SpilloverError):
    """The checkpoint is not where this reader left it: Redis lost data, or somebody set it.
    Nothing was done. Claim the partition again and go on from what is stored."""


class RecordsTrimmed(SpilloverError):
    """Records were removed from the stream before they were read. See `on_trimmed`."""

    def __init__(self, partition: int, count: int, after: str) -> None:
        self.partition = partition
        self.count = count
        super().__init__(
            f"partition {partition}: {count} records after {after} were trimmed before they were "
            "read: trim later, or read on without them with on_trimmed='skip'"
        )


class PoisonRecord(SpilloverError):
    """The handler failed at a record as often as it may: the partition is given up."""

    def __init__(self, partition: int, record_id: str, why: str) -> None:
        self.partition = partition
        self.record_id = record_id
        super().__init__(f"partition {partition}, record {record_id}: {why}")


@dataclass(frozen=True, slots=True)
class Record:
    """One entry. Ids of a partition only grow: `milliseconds-number`, to be compared as numbers."""

    id: str
    fields: dict[bytes, bytes]

    @property
    def value(self) -> bytes:
        """Returns what `StreamWriter` appended; empty if the record is not one of its own."""
        return self.fields.get(b"value", b"")

    @property
    def key(self) -> bytes | None:
        return self.fields.get(b"key")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The end of the handled part of a partition; stored as `epoch|id|passed|skipped|set aside`."""

    epoch: int
    id: str
    """The id of the last record that counts as handled."""
    passed: int
    """The number of entries up to there, with those that are skipped or set aside."""
    skipped: int = 0
    """The number of entries that were gone before they could be read."""
    set_aside: int = 0

    @classmethod
    def parse(cls, value: str) -> Checkpoint:
        """Raises ValueError."""
        found = _CHECKPOINT.fullmatch(value)
        counts = () if found is None else tuple(map(int, found.groups()[2:]))
        if found is None or max(counts) > WHOLE_MAX:
            raise ValueError(f"expected a checkpoint, got {value[:80]!r}")
        return cls(int(found[1]), found[2], *counts)

    def __str__(self) -> str:
        return f"{self.epoch}|{self.id}|{self.passed}|{self.skipped}|{self.set_aside}"

    @property
    def handled(self) -> int:
        """Returns how many records took effect."""
        return self.passed - self.skipped - self.set_aside


@dataclass(frozen=True, slots=True)
class ReadPosition:
    """The place where reading goes on: behind this id, so many entries passed, so many of them
    skipped."""

    id: str
    passed: int
    skipped: int


@dataclass(frozen=True, slots=True)
class Batch:
    """Records in order, and the places in front of them and behind."""

    partition: int
    epoch: int
    records: Sequence[Record]
    start: ReadPosition
    """The place in front of the first record, and of entries skipped before it."""
    end: ReadPosition

    @property
    def position(self) -> str:
        """Returns the id of the last record: what a sink elsewhere keeps beside its effects."""
        return self.end.id

    def upto(self, count: int) -> Batch:
        """Returns the first `count` of its records, to be committed by themselves."""
        if count >= len(self.records):
            return self
        last = self.records[count - 1].id if count else self.start.id
        end = ReadPosition(last, self.start.passed + count, self.start.skipped)
        return replace(self, records=self.records[:count], end=end)

    def after(self, count: int) -> Batch:
        """Returns what remains behind the first `count` of its records."""
        return replace(self, records=self.records[count:], start=self.upto(count).end)


@dataclass(frozen=True, slots=True)
class Found:
    """The records that Redis found behind a place, all at one instant."""

    added: int
    """The number of entries that the stream ever had."""
    length: int
    """The number of entries that it has."""
    is_end: bool
    """True where nothing follows the records."""
    records: list[Record]


def places(at: ReadPosition, found: Found) -> tuple[ReadPosition, ReadPosition]:
    """Returns the places in front of the records that were found behind `at`, and behind them.
    Raises CheckpointMoved if the stream has had fewer entries than were passed: somebody began it
    anew.
    """
    if found.added < at.passed:
        raise CheckpointMoved("the stream was deleted and begun anew")
    gone = max(0, found.added - found.length - at.passed)
    start = ReadPosition(at.id, at.passed + gone, at.skipped + gone)
    if not found.records:
        behind = found.added if found.is_end else start.passed
        return start, ReadPosition(at.id, behind, start.skipped + behind - start.passed)
    passed = start.passed + len(found.records)
    # Single ones that were deleted show only at the end, where everything there was has passed.
    behind = found.added if found.is_end else passed
    return start, ReadPosition(found.records[-1].id, behind, start.skipped + behind - passed)
