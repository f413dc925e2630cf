"""What is known of the objects of one run: each carries the run's name and a number, so that what
comes back can be checked. What the records come to is the object that `spillover-loadgen queue
--json` prints. Nothing here knows HTTP.
"""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from spillover.model.statistics import summarize

KEPT_UP_LAG_MS = 20.0
"""A generator that sends 1 % of the objects later than this has not offered the load asked for."""

REASONS_MAX = 20

_HEAD = struct.Struct("!8sIQ")

OBJECT_BYTES_MIN = _HEAD.size


class Put(StrEnum):
    """How an object was taken in."""

    OK = "ok"
    REFUSED = "refused"
    """429 or 503: surely not taken."""
    FAILED = "failed"
    """Any other answer that is not 201."""
    UNKNOWN = "unknown"
    """It had left and no answer came."""
    UNREACHABLE = "unreachable"


class Took(StrEnum):
    """What a take came to."""

    OBJECT = "object"
    NOTHING = "nothing"
    """204, or an address where the object was gone."""
    REFUSED = "refused"
    FAILED = "failed"
    """No answer, or one that is none of these."""


def encode_object(run: bytes, target: int, number: int, size_bytes: int) -> bytes:
    """Returns an object of that size, which `decode_object` knows again."""
    return _HEAD.pack(run, target, number).ljust(size_bytes, b".")


def decode_object(run: bytes, body: bytes) -> tuple[int, int] | None:
    """Returns the target and the number of an object; None for one of somebody else's."""
    if len(body) < OBJECT_BYTES_MIN:
        return None
    found, target, number = _HEAD.unpack_from(body)
    return (target, number) if found == run else None


@dataclass
class QueueRecord:
    """One run, as it goes on. Instants are seconds since its start."""

    offered: int = 0
    puts: Counter[Put] = field(default_factory=Counter)
    takes: Counter[Took] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    lag_ms: list[float] = field(default_factory=list)
    put_ms: list[float] = field(default_factory=list)
    wait_ms: list[float] = field(default_factory=list)
    probes: list[int] = field(default_factory=list)
    kept: set[tuple[int, int]] = field(default_factory=set)
    """Objects whose producer said 201."""
    acknowledged: Counter[tuple[int, int]] = field(default_factory=Counter)
    acknowledged_s: list[float] = field(default_factory=list)
    strangers: int = 0
    """Objects that are not of this run; they were given back."""
    redelivered: int = 0
    out_of_order: int = 0
    _newest: dict[tuple[int, str], int] = field(default_factory=dict)

    @property
    def missing(self) -> int:
        """Returns how many were taken in, and not acknowledged."""
        return len(self.kept - self.acknowledged.keys())

    def came(self, consumer: int, object_id: str, deliveries: int) -> None:
        """An object has come to a consumer. Those that one consumer has of one producer come in
        their order, unless they were given out before."""
        if deliveries > 1:
            self.redelivered += 1
            return
        producer, _, number = object_id.rpartition("-")
        newest = self._newest.get((consumer, producer), 0)
        if int(number) < newest:
            self.out_of_order += 1
        self._newest[consumer, producer] = max(newest, int(number))

    def summary(self, *, duration_s: float, seed: int, interrupted: bool) -> dict[str, Any]:
        """Returns the result. Times are in milliseconds; `throughput_per_s` is of what was
        acknowledged within the duration."""
        lag_ms = summarize(self.lag_ms)
        in_time = sum(at_s <= duration_s for at_s in self.acknowledged_s)
        return {
            "offered": self.offered,
            "produced": self.puts[Put.OK],
            "acknowledged": len(self.acknowledged),
            "put_outcomes": {outcome.value: self.puts[outcome] for outcome in Put},
            "take_outcomes": {outcome.value: self.takes[outcome] for outcome in Took},
            "put_ms": summarize(self.put_ms),
            "wait_ms": summarize(self.wait_ms),
            "probes_mean": sum(self.probes) / len(self.probes) if self.probes else None,
            "throughput_per_s": in_time / duration_s,
            "missing": self.missing,
            "duplicates": sum(count - 1 for count in self.acknowledged.values()),
            "redelivered": self.redelivered,
            "out_of_order": self.out_of_order,
            "strangers": self.strangers,
            "reasons": dict(self.reasons.most_common(REASONS_MAX)),
            "schedule_lag_ms": {"p99": lag_ms["p99"], "max": lag_ms["max"]},
            "kept_up": lag_ms["p99"] is None or lag_ms["p99"] <= KEPT_UP_LAG_MS,
            "seed": seed,
            "duration_s": duration_s,
            "interrupted": interrupted,
        }
