"""The size up to which requests come back from a neighbor. A path may let small packets through and
swallow large ones: then small requests do well there, and large ones are lost for good.

Only a missed request that is larger than all that came back since the first miss says something of
size. It is weighed by the same test as all work of a neighbor (`standing`).
"""

from __future__ import annotations

import math

from spillover.core.overflow.standing import Standing

TRIAL_PAUSE_S = 10.0
"""The time, in seconds, for which no request that is too large is sent there. After it, one is at a
time."""


class Sizes:
    """The sizes of the requests to one neighbor, in bytes."""

    def __init__(self) -> None:
        self.acquit()

    def acquit(self) -> None:
        """Forgets everything: the neighbor has only begun to live, or to live again."""
        self.limit_bytes = math.inf
        """The size in bytes from which on a request is not to be sent there now."""
        self.limited = False
        """Whether there is such a limit, if only between trials."""
        self.is_calm = True
        """Whether a request that comes back would tell nothing new, as nearly always."""
        self._standing = Standing()
        self._came_back = 0
        self._least_missed = math.inf
        self._trial_s = 0.0

    def try_at_once(self, now_s: float) -> None:
        """Lets a large request be tried now: the way there may be another."""
        self._trial_s = now_s

    def missed(self, now_s: float, size_bytes: int, usual: float) -> None:
        """Notes that a request was lost, or is late; `usual` is as in `Standing.ended`."""
        if self.is_calm:
            self._came_back, self._least_missed = 0, math.inf
        if size_bytes <= self._came_back:
            return
        self._least_missed = min(self._least_missed, size_bytes)
        self._standing.ended(now_s, None, failed=True, usual=usual)
        self.is_calm, self.limited = False, self._standing.degraded
        if self.limited:
            self._close(now_s)

    def came_back(self, now_s: float, size_bytes: int) -> None:
        """Notes that a request was answered in time."""
        if size_bytes < self._least_missed:
            self._came_back = max(self._came_back, size_bytes)
        else:
            self._standing.ended(now_s, None, failed=False)
            self.is_calm, self.limited = self._standing.is_calm, self._standing.degraded
            self._trial_s = now_s
            self.try_again(now_s)

    def sent(self, now_s: float, size_bytes: int) -> None:
        """Notes that a request of this size is on its way there, although there is a limit."""
        if size_bytes >= self._least_missed:
            self._close(now_s)

    def try_again(self, now_s: float) -> None:
        """Lets a large request be tried, if it is time for that."""
        if now_s >= self._trial_s:
            self.limit_bytes = math.inf

    def _close(self, now_s: float) -> None:
        self.limit_bytes = self._least_missed
        self._trial_s = now_s + TRIAL_PAUSE_S
