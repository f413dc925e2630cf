"""When a pool of servers starts nothing although it could: after refusals by what runs the work,
and while that asks to be left alone. The same for servers alike and unlike; who
rests, and waking, is theirs.
"""

from __future__ import annotations

from abc import ABC

REFUSED_PAUSE_S = 0.01
"""An attempt that was refused, the work surely not done, counts as at least so long. It doubles
with each round of refusals by all servers, up to REFUSED_PAUSE_S_MAX: else a request with nowhere
else to go would be tried as often as services that take no time can end."""

REFUSED_PAUSE_S_MAX = 0.5


class Pauses(ABC):
    """The pauses of one pool, which sets the fields."""

    total: int
    """How many servers there are, those too that take nothing now."""
    refusals: int
    resting: bool
    rest_until_s: float
    """When the rest ends; infinity without one."""

    def refused_pause_s(self) -> float:
        rounds = self.refusals // max(1, self.total)
        self.refusals += 1
        return min(REFUSED_PAUSE_S * 2.0 ** min(rounds, 10), REFUSED_PAUSE_S_MAX)

    def rest_s(self, now_s: float) -> float:
        """Returns how long the rest lasts; 0 without one."""
        return max(0.0, self.rest_until_s - now_s) if self.resting else 0.0
