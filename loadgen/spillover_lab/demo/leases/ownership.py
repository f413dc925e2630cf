"""Who served which stream when, and how long each stood still: from what the members have told.

Instants are wall-clock seconds of one machine. Nothing is asked of anybody here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

KILLED, FROZEN, RESUMED, JOINED = "killed", "frozen", "resumed", "joined"
START, EVENED = "start", "evened"
"""Causes of other moves: the first sharing out, and what evens out between those that stayed."""
ACQUIRED = "acquired"
CAUSES = (START, KILLED, FROZEN, RESUMED, JOINED, EVENED)


@dataclass(frozen=True, slots=True)
class Mark:
    """What is done to a member."""

    at_s: float
    kind: str
    node: str


@dataclass(frozen=True, slots=True)
class Span:
    """One member serving one stream at one epoch, or (`cause`) nobody serving it."""

    stream: int
    node: str
    epoch: int
    from_s: float
    to_s: float
    end: str = ""
    """An event of the member, `killed`, `frozen`, or `taken` by another."""
    cause: str = ""

    @property
    def length_s(self) -> float:
        return self.to_s - self.from_s


@dataclass(frozen=True, slots=True)
class Ownership:
    """All of it."""

    spans: list[Span] = field(default_factory=list)
    standstills: list[Span] = field(default_factory=list)

    @property
    def moves(self) -> dict[str, int]:
        """Returns how often owners changed, by cause."""
        causes = [one.cause for one in self.standstills]
        return {cause: causes.count(cause) for cause in CAUSES}

    @property
    def standstills_ms(self) -> dict[str, dict[str, float | int | None]]:
        """Returns, by what the demo has brought about: the longest, the median, and how many."""
        found: dict[str, dict[str, float | int | None]] = {}
        for cause in (KILLED, FROZEN, RESUMED, JOINED):
            own = [1000.0 * one.length_s for one in self.standstills if one.cause == cause]
            found[cause] = {
                "max": round(max(own), 1) if own else None,
                "median": round(median(own), 1) if own else None,
                "count": len(own),
            }
        return found


def ownership(lines: Iterable[Mapping[str, Any]], marks: Sequence[Mark], end_s: float) -> Ownership:
    """Returns everything up to `end_s`; the members' lines may come in any order."""
    told = Ownership()
    first_s = min((mark.at_s for mark in marks), default=end_s)
    came = {mark.node: mark.kind for mark in marks if mark.kind in {RESUMED, JOINED}}
    serving: dict[int, Span] = {}
    ended: dict[int, Span] = {}

    def close(span: Span, at_s: float, how: str) -> None:
        ended[span.stream] = replace(span, to_s=max(at_s, span.from_s), end=how)
        told.spans.append(ended[span.stream])
        serving.pop(span.stream, None)

    for at_s, event, node, stream, epoch in _in_order(lines, marks, end_s):
        if event == ACQUIRED:
            if stream in serving:
                close(serving[stream], at_s, "taken")
            if before := ended.get(stream):
                cause = START if at_s < first_s else came.get(node, EVENED)
                cause = before.end if before.end in {KILLED, FROZEN} else cause
                told.standstills.append(Span(stream, node, 0, before.to_s, at_s, cause=cause))
            serving[stream] = Span(stream, node, epoch, at_s, at_s)
            continue
        for span in list(serving.values()):
            # A kill or a freeze ends all that the member serves, an event of its own one lease.
            if span.node == node and (
                stream is None or (span.stream, span.epoch) == (stream, epoch)
            ):
                close(span, at_s, event)
    for span in list(serving.values()):
        close(span, end_s, "")
    return told


def _in_order(
    lines: Iterable[Mapping[str, Any]], marks: Sequence[Mark], end_s: float
) -> list[tuple[float, str, str, Any, Any]]:
    """(instant, event, node, stream, epoch) of all that begins or ends a span."""
    events = [(m.at_s, m.kind, m.node, None, None) for m in marks if m.kind in {KILLED, FROZEN}]
    events += [
        (line["at_s"], line["event"], line["node"], line.get("partition"), line.get("epoch"))
        for line in lines
        if line["event"] in {ACQUIRED, "released", "lost", "fenced"}
    ]
    # At one and the same millisecond, what ends comes before what begins.
    events.sort(key=lambda event: (event[0], event[1] == ACQUIRED))
    return [event for event in events if event[0] <= end_s]
