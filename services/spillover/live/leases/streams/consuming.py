"""A handler over one partition's records, as steps: order, attempts, what becomes of poison.

The handler is called with a record and an `Effects` of its own, record by record. Effects of a
batch happen at once with the checkpoint behind it. A record at which the handler fails is tried
again a few times, with pauses; what follows waits, so that order holds. Then it is set aside in a
stream of its own, together with what the handler said and with the same script that moves the
checkpoint, or the partition is given up, as `on_poison` says. So many set aside in a row are no
poison but a fault of something that all records need: then the partition is given up as well, and
those of this batch are not set aside.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from time import monotonic
from typing import Any, Literal

from spillover.live.leases.renewal.lease import Fenced
from spillover.live.leases.streams.effects import Effects
from spillover.live.leases.streams.keys import SOURCE
from spillover.live.leases.streams.reading import SetAside, StreamReading
from spillover.live.leases.streams.records import Batch, CheckpointMoved, PoisonRecord, Record
from spillover.live.leases.streams.steps import Call, Pause, Steps
from spillover.model.errors import InputError, PeerError
from spillover.policy.backoff import backoff_s

OnPoison = Literal["set-aside", "give-up"]
OnRecord = Callable[[Record, Effects], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """The number of attempts at a record, their end, and how often is committed. Raises
    InputError."""

    attempts: int = 3
    pause_first_s: float = 0.1
    pause_longest_s: float = 2.0
    on_poison: OnPoison = "set-aside"
    aside_in_a_row_max: int = 10
    commit_s: float = 1.0
    """A batch is committed in parts if it takes longer than this."""

    def __post_init__(self) -> None:
        for name in ("attempts", "aside_in_a_row_max"):
            if getattr(self, name) < 1:
                raise InputError(SOURCE, name, f"expected at least 1, got {getattr(self, name)}")
        if self.on_poison not in {"set-aside", "give-up"}:
            expected = f"expected set-aside or give-up, got {self.on_poison!r}"
            raise InputError(SOURCE, "on_poison", expected)


@dataclass(slots=True)
class Consumed:
    """The counts of one run: records that were committed."""

    handled: int = 0
    set_aside: int = 0
    batches: int = 0
    reclaims: int = 0
    """The number of times that the checkpoint was not where it was left, see
    `records.CheckpointMoved`."""


@dataclass(slots=True)
class _Done:
    """The work on one batch, as far as it got."""

    records: int = 0
    effects: Effects = field(default_factory=Effects)
    aside: list[SetAside] = field(default_factory=list)


class _Failed(Exception):
    """Handling ends with that error, once what was handled before is committed."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


def _failed(poison: PoisonRecord, cause: Exception) -> _Failed:
    poison.__cause__ = cause
    return _Failed(poison)


class Consuming:
    """One run over one partition. `on_batch` is called after each commit."""

    def __init__(
        self,
        reading: StreamReading,
        on_record: OnRecord,
        attempts: Attempts,
        random: Random,
        on_batch: Callable[[Consumed], object] = lambda _: None,
    ) -> None:
        self.consumed = Consumed()
        self._reading = reading
        self._on_record = on_record
        self._attempts = attempts
        self._random = random
        self._on_batch = on_batch
        self._aside_in_a_row = 0

    def run(self, wait_s: float, *, to_end: bool) -> Steps[Consumed]:
        """Handle records until the stop, or with `to_end` until there are no more. Then everything
        handled is committed. The lease gets progress before each record and each try: a handler may
        take as long for one as the member lets it be silent. The load is counted in records.

        Raises Fenced, PoisonRecord, RecordsTrimmed, StoreUnreachable, StoreRefused.
        """
        self._reading.guard.reports = True
        while not self._reading.guard.stop.is_set():
            self._reading.guard.check()
            try:
                batch = yield from self._reading.read(0.0 if to_end else wait_s, read_ahead=True)
                if batch is not None:
                    yield from self._handle(batch)
                elif to_end:
                    break
            except CheckpointMoved:
                self.consumed.reclaims += 1
                yield Pause(self._pause_s(0))
                yield from self._reading.claim()
        return self.consumed

    def _handle(self, batch: Batch) -> Steps[None]:
        """Handle a batch. Records that were handled before something went wrong are committed, if
        that is still allowed."""
        done, since_s = _Done(), monotonic()
        try:
            for record in batch.records:
                if self._reading.guard.stop.is_set():
                    break
                if not (yield from self._handle_record(record, done)):
                    break
                done.records += 1
                if monotonic() - since_s >= self._attempts.commit_s:
                    yield from self._commit(batch, done)
                    batch = batch.after(done.records)
                    done, since_s = _Done(), monotonic()
        except _Failed as failed:
            yield from self._commit(batch, done)
            raise failed.error from failed.error.__cause__
        yield from self._commit(batch, done)

    def _commit(self, batch: Batch, done: _Done) -> Steps[None]:
        part = batch.upto(done.records)
        if not part.records:
            return
        yield from self._reading.apply(part, done.effects, done.aside)
        self._reading.guard.report_load(done.records)
        self.consumed.handled += done.records - len(done.aside)
        self.consumed.set_aside += len(done.aside)
        self.consumed.batches += 1
        self._on_batch(self.consumed)

    def _handle_record(self, record: Record, done: _Done) -> Steps[bool]:
        """Handle a record, and return whether it counts as handled: not if a stop comes while it
        fails."""
        attempt = 0
        while True:
            self._reading.guard.check()
            effects = Effects()
            try:
                yield Call(self._on_record, (record, effects))
            except Fenced:
                raise
            except Exception as error:  # noqa: BLE001 - the handler is the user's
                attempt += 1
                if self._reading.guard.stop.is_set():
                    return False
                if attempt >= self._attempts.attempts:
                    if isinstance(error, PeerError):
                        raise _Failed(error) from None  # not the record is to blame
                    self._set_aside(record, error, done)
                    return True
            else:
                self._aside_in_a_row = 0
                done.effects.extend(effects)
                return True
            yield Pause(self._pause_s(attempt - 1))

    def _set_aside(self, record: Record, error: Exception, done: _Done) -> None:
        why = f"{type(error).__name__}: {error}"
        partition = self._reading.partition
        if self._attempts.on_poison == "give-up":
            tried = f"tried {self._attempts.attempts} times, {why}"
            raise _failed(PoisonRecord(partition, record.id, tried), error)
        if self._aside_in_a_row >= self._attempts.aside_in_a_row_max:
            self._spare(done)
            row = f"so did {self._aside_in_a_row} before it: not poison, but {why}"
            raise _failed(PoisonRecord(partition, record.id, row), error)
        self._aside_in_a_row += 1
        done.aside.append(SetAside(record, why))

    def _spare(self, done: _Done) -> None:
        """Leave the records that were set aside last: the next holder of the partition handles them
        anew."""
        count = min(len(done.aside), self._aside_in_a_row)
        done.records -= count
        del done.aside[len(done.aside) - count :]

    def _pause_s(self, attempt: int) -> float:
        limits = self._attempts
        draw = self._random.random()
        return backoff_s(attempt, limits.pause_first_s, limits.pause_longest_s, draw)
