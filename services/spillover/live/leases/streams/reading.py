"""Reading one partition at one epoch, as steps: claim, read on, apply.

The checkpoint is moved by compare and swap, from where this reader left it and under its own epoch,
so that no two readers can move it over the same records, and a call whose answer was lost can be
made again. What is read ahead changes nothing until it is handed out.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from itertools import groupby, islice
from typing import Any, Literal

from spillover.live.leases.renewal.lease import Fenced
from spillover.live.leases.streams.effects import Effect, Effects
from spillover.live.leases.streams.keys import SOURCE, StreamKeys, check_partition
from spillover.live.leases.streams.records import (
    Batch,
    Checkpoint,
    CheckpointMoved,
    Found,
    ReadPosition,
    Record,
    RecordsTrimmed,
    places,
)
from spillover.live.leases.streams.steps import Begin, Guard, Run, Steps, Take, Wait
from spillover.live.process.logs import Message
from spillover.live.redis.connection import Script
from spillover.model.errors import InputError, StoreRefused, StoreUnreachable

OnTrimmed = Literal["skip", "fail"]

BATCH_RECORDS = 500
BATCH_BYTES = 1 << 20
ASIDE_RECORDS = 10_000

ASIDE_FIELDS_MAX = 3_000
"""The most fields of a record that is set aside. Lua cannot pass on a thousand more in one command,
and would end the script between the checkpoint and the effects."""

ERROR_BYTES_MAX = 1_000
"""The most bytes of a handler's error that are kept with a record that is set aside."""

UNCOUNTED = (
    "Redis before 7 does not count the entries of a stream: records are applied once, "
    "but those trimmed before they are read go unnoticed"
)

_log = logging.getLogger(__name__)


def _kind(effect: Effect) -> tuple[str, str, int]:
    """Returns the kind of an effect: those of one kind that follow each other are sent as one
    run."""
    return effect[0], effect[1], len(effect[2])


@cache
def _tell_uncounted() -> None:
    """Warns, once in a process."""
    _log.warning(UNCOUNTED)


load_script = partial(Script.load, "spillover.live.leases.streams")
"""Returns the scripts of these names in lua/, as one."""


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """The limits of one read, and of records set aside; raises InputError."""

    batch_records: int = BATCH_RECORDS
    batch_bytes: int = BATCH_BYTES
    """The bytes of fields and values in a batch; one record is read however large it is."""
    aside_records: int = ASIDE_RECORDS
    """The records of a partition that are set aside. The oldest leave first; the checkpoint counts
    all that there ever were."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value < 1:
                raise InputError(SOURCE, field.name, f"expected at least 1, got {value}")


@dataclass(frozen=True, slots=True)
class SetAside:
    """A record that no attempt could handle, and the last error."""

    record: Record
    why: str


class StreamReading:
    """The state of one reader: the checkpoint as it knows it, the place it has read up to."""

    def __init__(
        self,
        keys: StreamKeys,
        partition: int,
        epoch: int,
        guard: Guard,
        limits: ReadLimits,
        on_trimmed: OnTrimmed,
    ) -> None:
        check_partition(partition)
        if on_trimmed not in {"skip", "fail"}:
            expected = f"expected skip or fail, got {on_trimmed!r}"
            raise InputError(SOURCE, "on_trimmed", expected)
        self.partition = partition
        self.epoch = epoch
        self.guard = guard
        self.checkpoint: Checkpoint | None = None
        """The checkpoint as stored by this reader; None before it has claimed."""
        self.lag: int | None = None
        """The records beyond the checkpoint when it was last read."""
        self._keys = keys
        self._fenced_keys = keys.checkpoints, keys.allocation, keys.stream(partition)
        self._limits = limits
        self._on_trimmed = on_trimmed
        self._place = ReadPosition("0-0", 0, 0)
        self._ahead: tuple[ReadPosition, Any] | None = None
        self._claim_script = load_script("fence", "claim")
        self._read_script = load_script("fence", "read")
        self._apply_script = load_script("fence", "apply")

    def claim(self) -> Steps[Checkpoint]:
        """Fence holders of earlier epochs, and go to the checkpoint. Raises Fenced, and
        StoreRefused if somebody wrote something there that is no checkpoint."""
        self.checkpoint = None
        ask = Run(self._claim_script, self._fenced_keys, (self.partition, self.epoch))
        answer = yield from self.guard.patiently(ask)
        self._check(answer)
        if not answer[2]:
            self._accept_uncounted()
        checkpoint = Checkpoint.parse(answer[1].decode())
        self.checkpoint = checkpoint
        self.seek(ReadPosition(checkpoint.id, checkpoint.passed, checkpoint.skipped))
        return checkpoint

    def seek(self, place: ReadPosition) -> None:
        """Read on from there; records that were read ahead are forgotten."""
        self._place = place
        self._ahead = None

    def read(self, wait_s: float, *, read_ahead: bool) -> Steps[Batch | None]:
        """Reads the next records; None if there are none within `wait_s`, or if told to stop.
        Claims first if that was not done."""
        if self.checkpoint is None:
            yield from self.claim()
        batch = self._accept((yield from self._found()))
        if batch is None and wait_s > 0.0 and not self.guard.stop.is_set():
            yield from self._wait(wait_s)
            batch = self._accept((yield from self._found()))
        if batch is not None and read_ahead and not self.guard.stop.is_set():
            ticket = yield Begin(self._ask_once(self._place))
            self._ahead = self._place, ticket
        return batch

    def apply(
        self, batch: Batch, effects: Effects | None = None, set_aside: Sequence[SetAside] = ()
    ) -> Steps[None]:
        """Carry out the effects and move the checkpoint behind the batch, at once. Raises Fenced,
        CheckpointMoved, StoreRefused if an effect cannot be, ValueError if the batch does not begin
        at the checkpoint; then nothing was done."""
        if self._checkpoint_before(batch).id != batch.start.id:
            raise ValueError("expected the batch that follows the checkpoint: see Batch.after")
        yield from self._move(batch, effects or Effects(), set_aside)

    def commit(self, batch: Batch) -> Steps[None]:
        """Moves the checkpoint alone, over all batches up to this one. Raises as `apply`."""
        yield from self._move(batch, Effects(), ())

    def _move(self, batch: Batch, effects: Effects, set_aside: Sequence[SetAside]) -> Steps[None]:
        before = self._checkpoint_before(batch)
        end = batch.end
        after = Checkpoint(self.epoch, end.id, end.passed, end.skipped, before.set_aside)
        if after == before:
            if effects or set_aside:
                raise ValueError("this batch has no records that effects could belong to")
            return
        after = replace(after, set_aside=before.set_aside + len(set_aside))
        ask = self._application(before, after, effects, set_aside)
        answer = yield from self.guard.patiently(ask)
        self._check(answer)
        self.checkpoint = after

    def _checkpoint_before(self, batch: Batch) -> Checkpoint:
        before = self.checkpoint
        if before is None:
            raise CheckpointMoved("this reader has lost its claim, or never had one")
        if (batch.partition, batch.epoch) != (self.partition, self.epoch):
            raise ValueError("this batch was read by another reader")
        if batch.end.passed < before.passed:
            raise ValueError("this batch lies before the checkpoint, which never moves backward")
        return before

    def _application(
        self, before: Checkpoint, after: Checkpoint, effects: Effects, set_aside: Sequence[SetAside]
    ) -> Run:
        given: list[str | bytes | int] = [self.partition, self.epoch, before.id, str(after)]
        given += [self._limits.aside_records, len(set_aside)]
        for one in set_aside:
            fields = self._aside_fields(one)
            given += [len(fields), *fields]
        names: dict[str, int] = {}
        for (command, name, count), run in groupby(effects, _kind):
            index = names.setdefault(name, len(names) + 1)
            arguments = [argument for effect in run for argument in effect[2]]
            given += [command, index, count, len(arguments), *arguments]
        aside = self._keys.set_aside(self.partition)
        keys = (*self._fenced_keys, aside, *(self._keys.sink(name) for name in names))
        return Run(self._apply_script, keys, tuple(given))

    def _aside_fields(self, one: SetAside) -> list[bytes]:
        """Returns the record's own fields, the first of them if there are too many for a script,
        behind those about it."""
        why = one.why.encode(errors="replace")[:ERROR_BYTES_MAX]
        told = [b"record", one.record.id.encode(), b"epoch", b"%d" % self.epoch, b"error", why]
        fields = one.record.fields.items()
        return told + [part for field in islice(fields, ASIDE_FIELDS_MAX) for part in field]

    def _found(self) -> Steps[Found]:
        """Returns the records that were read ahead, if they are of this place and there are any;
        else those in the stream."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] == self._place:
            self.guard.check()
            try:
                answer = yield Take(ahead[1])
            except StoreUnreachable:
                pass
            else:
                found = self._read_found(answer, self._place)
                if found.records:
                    return found
        return (yield from self._find_patiently(self._place))

    def _ask_once(self, at: ReadPosition) -> Steps[Any]:
        """Changes nothing here: it may run in a thread beside the reader's. What it was told counts
        once it is taken, and be it that the claim is over."""
        return (yield self._query(at))

    def _find_patiently(self, at: ReadPosition) -> Steps[Found]:
        return self._read_found((yield from self.guard.patiently(self._query(at))), at)

    def _query(self, at: ReadPosition) -> Run:
        given = (
            self.partition,
            self.epoch,
            at.id,
            self._limits.batch_records,
            self._limits.batch_bytes,
        )
        return Run(self._read_script, self._fenced_keys, given)

    def _read_found(self, answer: Any, at: ReadPosition) -> Found:
        self._check(answer)
        _, added, length, is_end, entries = answer
        records = []
        for id_, flat in entries:
            parts = iter(flat)
            records.append(Record(id_.decode(), dict(zip(parts, parts, strict=True))))
        if added < 0:
            self._accept_uncounted()
            # As if nothing had been trimmed; at the end it is known how many follow.
            beyond = len(records) if is_end else max(len(records) + 1, length - at.passed)
            added = at.passed + beyond
        return Found(added, length, bool(is_end), records)

    def _accept_uncounted(self) -> None:
        """Go on where Redis does not tell how many entries a stream ever had, and so not what was
        trimmed before it was read. Raises InputError for a reader that is to fail then."""
        if self._on_trimmed == "fail":
            self.checkpoint = None
            expected = "expected Redis 7 or later, which counts the entries of a stream"
            raise InputError("redis", "version", f"{expected}, with on_trimmed='fail'")
        _tell_uncounted()

    def _accept(self, found: Found) -> Batch | None:
        """Hand out the records that were found, and go behind them."""
        at = self._place
        try:
            start, end = places(at, found)
        except CheckpointMoved:
            self.checkpoint = None
            raise
        gone = start.skipped - at.skipped
        if gone and self._on_trimmed == "fail":
            raise RecordsTrimmed(self.partition, gone, at.id)
        if gone:
            _log.warning(
                Message(
                    "records were trimmed before they were read",
                    partition=self.partition,
                    records=gone,
                    after=at.id,
                )
            )
        self._place = end
        if self.checkpoint is not None:
            self.lag = min(found.length, max(0, found.added - self.checkpoint.passed))
        if not found.records:
            return None
        return Batch(self.partition, self.epoch, found.records, start, end)

    def _wait(self, limit_s: float) -> Steps[None]:
        """An interrupted wait is no error: the read that follows is tried again."""
        self.guard.check()
        try:
            yield Wait(self._keys.stream(self.partition), self._place.id, limit_s)
        except StoreUnreachable:
            return

    def _check(self, answer: Any) -> None:
        """Raise what a script says instead of `ok`."""
        said = answer[0]
        if said == b"ok":
            return
        self.checkpoint = None
        if said == b"fenced":
            why = f"epoch {answer[1].decode()} has been seen here"
            raise Fenced(self.partition, self.epoch, why)
        if said == b"moved":
            raise CheckpointMoved("the checkpoint is not where this reader left it")
        raise StoreRefused(f"unexpected answer of a script: {said!r}")
