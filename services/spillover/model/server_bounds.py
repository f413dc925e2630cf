"""Servers whose number is learned while they run, between two bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from spillover.model.limits import within

SERVERS_MAX = 10_000
"""The most servers that are learned, as many as the tokens of a class."""

START = 8
"""The number that is begun with, where the bounds allow it: of so many each may be far off, and
none by more than a few doublings."""

AUTO = "auto"
"""The word for the usual bounds in files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerBounds:
    """The bounds of a number of servers that is learned."""

    min: Annotated[int, within(1, SERVERS_MAX)] = 1
    """The least number of requests that run at the same time.

    Why: a service that bears one at a time is found, too. Raise it where you know better: the
    search begins nearer to its end."""
    max: Annotated[int, within(1, SERVERS_MAX)] = 64
    """The most requests that run at the same time.

    Why: one engine on one accelerator rarely does better with more. Raise it for several URLs, or
    for a service that does little but wait."""

    @property
    def start(self) -> int:
        return min(max(START, self.min), self.max)
