"""A measurement of how many requests per second a service brings to a good end, while as many run
as may. Services that were under way when it began have to end first."""

from __future__ import annotations


class Window:
    """One measurement after the other. Times are in seconds, and never go back."""

    __slots__ = ("_full_since_s", "_settling", "began_s", "done", "full_s", "in_row", "stopped")

    def __init__(self) -> None:
        self._full_since_s: float | None = None
        """The time since which as many run as may; None while they do not."""
        self._settling = 0
        """The number of services that have to end before anything counts."""
        self.in_row = 0
        """The number of services that have ended since fewer ran than may, over measurements of the
        same."""
        self.began_s = 0.0
        self.full_s = 0.0
        """The time, in seconds, in which as many ran as may."""
        self.done = 0
        """The number of good ends in that time."""
        self.stopped = 0
        """The number of services in that time that were stopped, as their time was over or nobody
        wanted the answer."""

    def begin(self, settling: int, now_s: float) -> None:
        """Measure anew, once so many services have ended."""
        self._full_since_s = None
        self._settling = settling
        self.in_row = 0
        self._clear(now_s)

    def go_on(self, now_s: float) -> None:
        """Measure the same anew: nothing has to settle."""
        self._clear(now_s)

    def is_full(self, now_s: float) -> None:
        """Note that as many run as may from now on."""
        if self._full_since_s is None:
            self._full_since_s = now_s

    def ended(
        self, *, is_good: bool, stays_full: bool, now_s: float, is_stopped: bool = False
    ) -> bool:
        """Note that a service has ended. Returns whether it counts: nothing has to settle any
        more."""
        since_s, self._full_since_s = self._full_since_s, now_s if stays_full else None
        if self._settling:
            self._settling -= 1
            self._clear(now_s)
            return False
        self.in_row = self.in_row + 1 if stays_full else 0
        if since_s is not None:
            self.full_s += max(0.0, now_s - since_s)
            self.done += is_good
            self.stopped += is_stopped
        return True

    def _clear(self, now_s: float) -> None:
        self.began_s, self.full_s, self.done, self.stopped = now_s, 0.0, 0, 0
