"""Who served which stream when, and how long each stood still: from what the members have told.

Input are the event lines of all members (contract section 6) and what was done to them; instants
are wall-clock seconds of one machine. Nothing is asked of anybody here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from spillover.policy.leases import minimum_moves
from spillover.tools.demo.leases.plan import FROZEN, JOINED, KILLED, RESUMED

START, EVENED = "start", "evened"
"""Causes of other moves: the first sharing out, and what evens out between those that stayed."""

CAUSES = (START, KILLED, FROZEN, RESUMED, JOINED, EVENED)
RUNNING = "end"
"""How a span ends that still ran when watching ended."""

_ENDS = ("released", "lost", "fenced")
_RANK = {"acquired": 2}
"""At one and the same millisecond, what ends comes before what begins."""


@dataclass(frozen=True, slots=True)
class Mark:
    """What was done to a member."""

    at_s: float
    kind: str
    node: str


@dataclass(frozen=True, slots=True)
class Span:
    """One member serving one stream at one epoch."""

    partition: int
    node: str
    epoch: int
    from_s: float
    to_s: float
    end: str
    """An event of the member, `killed`, `frozen`, `taken` by another, or `end`."""


@dataclass(frozen=True, slots=True)
class Standstill:
    """Nobody served a stream."""

    partition: int
    cause: str
    from_s: float
    to_s: float
    before: str
    after: str
    applied_gap_s: float | None = None
    """From the last record applied before it to the first one after it, as far as that was seen."""

    @property
    def length_s(self) -> float:
        return self.to_s - self.from_s


@dataclass(frozen=True, slots=True)
class OwnershipStory:
    """All of it, in order of time."""

    spans: list[Span]
    standstills: list[Standstill]
    """Each with an end: the change of owner that ended it."""
    open: list[int]
    """Streams that nobody served at the end."""
    fewest_moves: int
    """How few changes of owner would have evened the counts out after each mark."""

    @property
    def moves(self) -> dict[str, int]:
        """Returns how often owners changed, by cause."""
        causes = [one.cause for one in self.standstills]
        return {cause: causes.count(cause) for cause in CAUSES}

    def held_max(self, node: str) -> int:
        """Returns the most streams that a member served at a time."""
        changes = [
            change
            for span in self.spans
            if span.node == node
            for change in ((span.from_s, 1), (span.to_s, -1))
        ]
        held = most = 0
        for _, by in sorted(changes):
            held += by
            most = max(most, held)
        return most

    def of_cause(self, cause: str) -> list[Standstill]:
        return [one for one in self.standstills if one.cause == cause]


def tell_story(
    lines: Iterable[Mapping[str, Any]], marks: Sequence[Mark], end_s: float, partitions: int
) -> OwnershipStory:
    """Returns everything up to `end_s`; lines may come in any order, as from many pipes."""
    telling = _Telling(marks)
    ordered: list[tuple[float, int, Any]] = [(mark.at_s, 0, mark) for mark in marks]
    ordered += [
        (line["at_s"], _RANK.get(line["event"], 1), line)
        for line in lines
        if line.get("partition") is not None and line.get("epoch") is not None
    ]
    for at_s, _, one in sorted(ordered, key=lambda item: item[:2]):
        if at_s > end_s:
            break
        if isinstance(one, Mark):
            telling.mark(one)
        else:
            telling.line(one)
    return telling.end(end_s, partitions)


def with_applied_gaps(
    standstills: Iterable[Standstill], applied: Mapping[int, Sequence[tuple[float, int]]]
) -> list[Standstill]:
    """Returns each with the longest time without an applied record of which it is a part.
    `applied`, by stream: (instant, records so far) whenever that was seen to have grown."""
    return [replace(one, applied_gap_s=_gap_s(one, applied)) for one in standstills]


def _gap_s(one: Standstill, applied: Mapping[int, Sequence[tuple[float, int]]]) -> float | None:
    seen_s = [at_s for at_s, _ in applied.get(one.partition, ())]
    # What was applied just before it may have been seen only when it had begun.
    gaps_s = [
        after - before
        for before, after in pairwise(seen_s)
        if before <= one.to_s and after >= one.from_s
    ]
    return max(gaps_s, default=None)


class _Telling:
    """The state on the way."""

    def __init__(self, marks: Sequence[Mark]) -> None:
        self._first_s = min((mark.at_s for mark in marks), default=float("inf"))
        self._open: dict[int, Span] = {}
        self._ended: dict[int, Span] = {}
        self._resumed: set[str] = set()
        self._joined: set[str] = set()
        self._spans: list[Span] = []
        self._alive: dict[str, bool] = {}
        """Of those that have been seen: whether they run."""
        self._fewest_moves = 0
        self._standstills: list[Standstill] = []

    def mark(self, mark: Mark) -> None:
        self._alive[mark.node] = mark.kind in {RESUMED, JOINED}
        nodes = list(self._alive)
        owners = [span.node for span in self._open.values()]
        counts = [owners.count(node) for node in nodes]
        self._fewest_moves += minimum_moves(counts, [self._alive[node] for node in nodes])
        if mark.kind in {KILLED, FROZEN}:
            for span in [span for span in self._open.values() if span.node == mark.node]:
                self._close(span, mark.at_s, mark.kind)
        elif mark.kind == RESUMED:
            self._resumed.add(mark.node)
        elif mark.kind == JOINED:
            self._joined.add(mark.node)

    def line(self, line: Mapping[str, Any]) -> None:
        partition, node, at_s = int(line["partition"]), str(line["node"]), float(line["at_s"])
        span = self._open.get(partition)
        if line["event"] in _ENDS:
            if span is not None and (span.node, span.epoch) == (node, line["epoch"]):
                self._close(span, at_s, line["event"])
        elif line["event"] == "acquired":
            if span is not None:
                self._close(span, at_s, "taken")
            self._begin(partition, node, int(line["epoch"]), at_s)

    def end(self, end_s: float, partitions: int) -> OwnershipStory:
        for span in list(self._open.values()):
            self._close(span, end_s, RUNNING)
        served = {p for p, span in self._ended.items() if span.end == RUNNING}
        idle = [partition for partition in range(partitions) if partition not in served]
        spans = sorted(self._spans, key=lambda span: (span.partition, span.from_s))
        return OwnershipStory(spans, self._standstills, idle, self._fewest_moves)

    def _begin(self, partition: int, node: str, epoch: int, at_s: float) -> None:
        before = self._ended.get(partition)
        if before is not None:
            cause = self._cause(before, node, at_s)
            self._standstills.append(
                Standstill(partition, cause, before.to_s, at_s, before.node, node)
            )
        self._alive.setdefault(node, True)
        self._open[partition] = Span(partition, node, epoch, at_s, at_s, RUNNING)

    def _close(self, span: Span, at_s: float, how: str) -> None:
        del self._open[span.partition]
        ended = replace(span, to_s=max(at_s, span.from_s), end=how)
        self._ended[span.partition] = ended
        self._spans.append(ended)

    def _cause(self, before: Span, node: str, at_s: float) -> str:
        if before.end in {KILLED, FROZEN}:
            return before.end
        if at_s < self._first_s:
            return START
        if node in self._joined:
            return JOINED
        return RESUMED if node in self._resumed else EVENED
