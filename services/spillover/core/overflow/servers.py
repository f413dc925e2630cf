"""The m servers of a cluster as the machine counts them. What they run is the shell's business."""

from __future__ import annotations

import heapq
import math

REFUSED_PAUSE_S = 0.01
"""An attempt that was refused, the work surely not done, counts as at least so long. It doubles
with each round of refusals by all servers, up to REFUSED_PAUSE_S_MAX: else a request with nowhere
else to go would be tried as often as services that take no time can end."""

REFUSED_PAUSE_S_MAX = 0.5


class Servers:
    """How many are free, and which are *stuck*: occupied by work whose request has ended.

    A server whose work has failed *cools*: it counts as busy for as long as a success takes. What
    fails at once would otherwise look idle, and draw work from everywhere.

    `down` means that none can start anything for now, free or not. `resting` means so until a
    given instant: what runs the work has asked to be left alone until then.
    """

    __slots__ = (
        "_cooling_s",
        "down",
        "free",
        "next_s",
        "refusals",
        "rest_until_s",
        "resting",
        "stuck",
        "total",
    )

    def __init__(self, total: int) -> None:
        self.total = total
        self.free = total
        self.stuck: set[int] = set()
        self.down = False
        self.resting = False
        self.rest_until_s = math.inf
        """When the rest ends; infinity without one."""
        self.refusals = 0
        """Attempts in a row that were refused."""
        self.next_s = math.inf
        """When to call `release` next."""
        self._cooling_s: list[float] = []
        """A heap of instants, one for each that cools."""

    @property
    def busy(self) -> int:
        return self.total - self.free

    @property
    def working(self) -> int:
        """Returns how many to count on: a stuck server may never come back."""
        return self.total - len(self.stuck)

    @property
    def ready(self) -> bool:
        """Returns whether a request can start now."""
        return self.free > 0 and not self.down and not self.resting

    @property
    def cooling(self) -> int:
        """Returns how many have failed and count as busy for a while."""
        return len(self._cooling_s)

    def rest_s(self, now_s: float) -> float:
        """Until the rest ends; 0 without one."""
        return max(0.0, self.rest_until_s - now_s) if self.resting else 0.0

    def cool(self, until_s: float) -> None:
        """A server has ended its work and counts as busy until then."""
        heapq.heappush(self._cooling_s, until_s)
        self._find_next()

    def refused_pause_s(self) -> float:
        """One more attempt was refused: how long it counts as at least."""
        rounds = self.refusals // self.total
        self.refusals += 1
        return min(REFUSED_PAUSE_S * 2.0 ** min(rounds, 10), REFUSED_PAUSE_S_MAX)

    def rest(self, until_s: float) -> bool:
        """Start nothing until then, or until a later instant given before. Whether that is new."""
        was_resting, self.resting = self.resting, True
        self.rest_until_s = max(until_s, self.rest_until_s) if was_resting else until_s
        self._find_next()
        return not was_resting

    def end_rest(self) -> None:
        """Something can start again."""
        self.resting = False
        self.rest_until_s = math.inf
        self._find_next()

    def _find_next(self) -> None:
        cooled_s = self._cooling_s[0] if self._cooling_s else math.inf
        self.next_s = min(cooled_s, self.rest_until_s)

    def release(self, now_s: float) -> bool:
        """Free what has cooled, and end a rest that is over. Whether it was one."""
        while self._cooling_s and self._cooling_s[0] <= now_s:
            heapq.heappop(self._cooling_s)
            self.free += 1
        self._find_next()
        if self.rest_until_s > now_s:
            return False
        self.end_rest()
        return True
