"""Whether one server's work fails clearly more than that of the pool's other servers.

The rule is `policy.overflow.degradation`'s. A server that is degraded takes nothing for a while and
is tried again then, few jobs at first: if one of the first fails too, it is left alone for twice as
long. Whether the whole cluster is worse than others is `core.overflow.health`'s business.
"""

from __future__ import annotations

import math

from spillover.policy.overflow.degradation import DEGRADED_AT, UNPROVEN, weighed

PAUSE_S = 1.0
"""How long a degraded server is left alone; doubles each time, up to PAUSE_S_MAX, until so many of
its jobs in a row have succeeded that nothing counts against it any more."""

PAUSE_S_MAX = 30.0

OTHERS_FAIL_TOO = 0.5
"""Where this share of the work fails on the others, it is not this server that fails."""

SHARE_WEIGHT = 1 / 8
"""Weight of the newest outcome in the running share of failures."""

SHARE_LEAST = 1 / 1024
"""A share below it is none."""

SHARE_FORGET_S = 10.0
"""Time in which the share halves if nothing more ends."""


class ServerHealth:
    """Of one server. Told of what ends by itself on it."""

    __slots__ = ("_last_s", "_pause_s", "_share", "_total", "again_s", "is_calm")

    def __init__(self) -> None:
        self._total = UNPROVEN
        self._share = 0.0
        self._last_s: float | None = None
        self._pause_s = PAUSE_S
        self.again_s = math.inf
        """When to try it again; infinity while it is not degraded."""
        self.is_calm = False
        """Whether a success would tell nothing new, as nearly always."""

    @property
    def degraded(self) -> bool:
        return self.again_s < math.inf

    def failed_share(self, now_s: float) -> float:
        """Returns the share of failures as it counts now."""
        return self._share * math.exp2(-self._since_last_s(now_s) / SHARE_FORGET_S)

    def ended(self, now_s: float, failed: bool, usual: float) -> bool:
        """One more job has ended; `usual` is the share that fails on the others. Whether the server
        fails too much more than they do."""
        share = self.failed_share(now_s)
        share += (failed - share) * SHARE_WEIGHT
        self._total = weighed(self._total, failed, usual, self._since_last_s(now_s))
        self._share = share if share > SHARE_LEAST else 0.0
        self._last_s = now_s
        self.is_calm = not (self._total or self._share)
        if not self._total:
            self._pause_s = PAUSE_S
        if self._total < DEGRADED_AT or not failed:
            return False
        if usual >= OTHERS_FAIL_TOO:
            self._total = DEGRADED_AT  # once all do well again, no more is to be worked off
            return False
        return True

    def _since_last_s(self, now_s: float) -> float:
        return 0.0 if self._last_s is None else max(0.0, now_s - self._last_s)

    def degrade(self, now_s: float) -> None:
        """Leave the server alone for a while."""
        self.again_s = now_s + self._pause_s
        self._pause_s = min(2.0 * self._pause_s, PAUSE_S_MAX)

    def retry(self) -> None:
        """Try it again; one more failure suffices at first."""
        self.again_s = math.inf
        self._total = DEGRADED_AT
