"""The health of one server: does its work fail clearly more than that of the pool's other servers?

The rule is `policy.overflow.degradation`'s. A server that is degraded takes nothing for a while and
is tried again then, few jobs at first: if one of the first fails too, it is left alone for twice as
long. Whether the whole cluster is worse than others is `core.overflow.health`'s business.
"""

from __future__ import annotations

import math

from spillover.core.share import Share
from spillover.policy.overflow.degradation import DEGRADED_AT, UNPROVEN, weighed

PAUSE_S = 1.0
"""How long a degraded server is left alone; doubles each time, up to PAUSE_S_MAX, until so many of
its jobs in a row have succeeded that nothing counts against it any more."""

PAUSE_S_MAX = 30.0

OTHERS_FAIL_TOO = 0.5
"""Where this share of the work fails on the others, it is not this server that fails."""


class ServerHealth:
    """The health of one server, which jobs that end by themselves on it change."""

    def __init__(self) -> None:
        self._total = UNPROVEN
        self._share = Share()
        self._last_s: float | None = None
        self._pause_s = PAUSE_S
        self.again_s = math.inf
        """When to try it again; infinity while it is not degraded."""
        self.is_calm = False
        """True where a success changes nothing, as nearly always."""

    @property
    def degraded(self) -> bool:
        return self.again_s < math.inf

    def failed_share(self, now_s: float) -> float:
        return self._share.at(now_s)

    def ended(self, now_s: float, failed: bool, usual: float) -> bool:
        """Counts one more job that has ended, and returns whether the server fails too much more
        than the others, on which this share is `usual`."""
        since_last_s = 0.0 if self._last_s is None else max(0.0, now_s - self._last_s)
        self._share.add(now_s, failed=failed)
        self._total = weighed(self._total, failed, usual, since_last_s)
        self._last_s = now_s
        self.is_calm = not (self._total or self._share.last)
        if not self._total:
            self._pause_s = PAUSE_S
        if self._total < DEGRADED_AT or not failed:
            return False
        if usual >= OTHERS_FAIL_TOO:
            self._total = DEGRADED_AT  # once all do well again, no more is to be worked off
            return False
        return True

    def degrade(self, now_s: float) -> None:
        self.again_s = now_s + self._pause_s
        self._pause_s = min(2.0 * self._pause_s, PAUSE_S_MAX)

    def retry(self) -> None:
        """Try it again; one more failure suffices at first."""
        self.again_s = math.inf
        self._total = DEGRADED_AT
