"""The m servers of a cluster as the machine counts them. What they run is the shell's business."""

from __future__ import annotations


class Servers:
    """How many are free, and which are *stuck*: occupied by work whose request has ended.

    `down` means that none can start anything for now, free or not.
    """

    __slots__ = ("down", "free", "stuck", "total")

    def __init__(self, total: int) -> None:
        self.total = total
        self.free = total
        self.stuck: set[int] = set()
        self.down = False

    @property
    def busy(self) -> int:
        return self.total - self.free

    @property
    def working(self) -> int:
        """Those to count on: a stuck server may never come back."""
        return self.total - len(self.stuck)

    @property
    def ready(self) -> bool:
        """Whether a request can start now."""
        return self.free > 0 and not self.down
