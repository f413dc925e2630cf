"""What the demo of streams has seen: each stream as its user saw it, and what must hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class End(StrEnum):
    """How a stream ended for its user."""

    WHOLE = "whole"
    ERROR = "error"
    REFUSED = "refused"
    """Another status than 200."""
    SHORT = "short"
    """As if it were whole, which it was not: the lie that must never be told."""


@dataclass(slots=True)
class Stream:
    """One stream, with times from the start of the show."""

    home: str
    begun_s: float
    ran: str = ""
    """The site whose service gave it; empty if nobody did."""
    first_s: float | None = None
    """When the first event came."""
    events: int = 0
    end: End | None = None
    ended_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsResult:
    """All of it."""

    sites: tuple[str, ...]
    dead: str
    died_s: float
    streams: Sequence[Stream] = field(default_factory=tuple)
    ledgers_balanced: bool

    def is_after(self, stream: Stream) -> bool:
        """Returns whether it began when the site was dead already."""
        return stream.begun_s > self.died_s

    def concerns(self, stream: Stream) -> bool:
        """Returns whether the dead site had to do with it when it died."""
        was_there = stream.begun_s <= self.died_s < stream.ended_s
        return was_there and self.dead in (stream.home, stream.ran)

    def counts(self) -> dict[str, dict[str, int]]:
        """Returns how streams ended: those of the dead site, the others, those begun after."""
        groups = {"dead_site": Counter[str](), "others": Counter[str](), "after": Counter[str]()}
        for stream in self.streams:
            if self.is_after(stream):
                group = "after"
            else:
                group = "dead_site" if self.concerns(stream) else "others"
            groups[group][str(stream.end)] += 1
        return {
            name: {end.value: found[end.value] for end in End} for name, found in groups.items()
        }

    def problems(self) -> list[str]:
        """Returns what was not as it must be."""
        found = []
        for stream in self.streams:
            wanted = End.ERROR if self.concerns(stream) else End.WHOLE
            if stream.end is not wanted:
                where = f"at {stream.home}, run at {stream.ran or 'no site'}"
                found.append(
                    f"a stream that came in {where}, ended {stream.end}: expected {wanted}"
                )
        if not self.ledgers_balanced:
            found.append("a ledger did not balance")
        return found

    def as_json(self) -> dict[str, Any]:
        return {
            "sites": list(self.sites),
            "dead": self.dead,
            "streams": len(self.streams),
            **self.counts(),
            "ran": dict(Counter(stream.ran for stream in self.streams if stream.ran)),
            "ledgers_balanced": self.ledgers_balanced,
            "problems": self.problems(),
        }
