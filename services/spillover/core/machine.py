"""The shape that all machines share."""

from __future__ import annotations

from typing import Any, Protocol


class Machine(Protocol):
    """A state machine. Times are seconds of one monotonic clock, the shell's."""

    def handle(self, event: Any, now_s: float) -> list[Any]:
        """Take one event in; the commands that the shell must carry out, in order."""

    def next_deadline(self) -> float | None:
        """Returns when to hand in the next `TimerFired`, None if only events can change
        anything.
        """

    def check(self) -> None:
        """Raise AssertionError if the state contradicts itself. For tests and for alarms."""
