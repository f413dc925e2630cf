"""The shape that all machines share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

E_contra = TypeVar("E_contra", contravariant=True)
C_co = TypeVar("C_co", covariant=True)


class Machine(Protocol[E_contra, C_co]):
    """A state machine. Times are seconds of one monotonic clock, the shell's."""

    def handle(self, event: E_contra, now_s: float, /) -> Sequence[C_co]:
        """Takes one event in, and returns the commands that the shell has to carry out, in
        order."""

    def next_deadline(self) -> float:
        """Returns when to hand in the next `TimerFired`, infinity if only events can change
        anything.
        """

    def check(self) -> None:
        """Raise AssertionError if the state contradicts itself. For tests and for alarms."""
