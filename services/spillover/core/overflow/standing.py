"""The standing of one place by the work that ends there: of this cluster, or of a neighbor that was
given some.

A place is *degraded* once more of the work fails there than would fail at the best place that the
work can reach (`policy.overflow.degradation`). It is degraded no more after a run of successes that
is too long to come by chance. Work that fails everywhere says nothing, neither for a place nor
against it.

Where one kind of requests alone fails while others do well, that kind is at fault, not the place:
its ends count no more, until one of it succeeds.

Not here: what is done with work then, and which work is tried at a degraded place.
"""

from __future__ import annotations

import math
from collections.abc import Hashable

from spillover.core.share import Share
from spillover.policy.overflow.degradation import (
    ANOTHERS_FAULT,
    DEGRADED_AT,
    FORGET_S,
    RUN_MAX,
    RUN_MIN,
    run_needed,
    weighed,
)

REST_WEIGHT = 3.0
"""The weight of a request to be left alone, in failures: it also says that the next ones would
fail."""

FORGET_SERVICES = 30.0
"""The time in which evidence halves, in services, where that is longer than FORGET_S. Failures of
work that takes a minute come minutes apart, since each occupies its server for as long."""

FAILS_EVERYWHERE = 0.5
"""The usual share of failures from which on a failure at a degraded place says nothing about the
place."""

ENDS_MAX = 64
"""The most ends by which a run of successes is measured: older ones count half each time."""

AT_FAULT_MAX = 16
"""The most kinds of requests that are remembered to be at fault, those that failed last."""

AT_FAULT_S = 60.0
"""The time, in seconds, for which a kind of request is at fault after its last failure."""


class Standing:
    """The standing of one place, which begins with this sum of evidence. It learns from the work
    that ends there."""

    def __init__(self, total: float = 0.0) -> None:
        self.degraded = False
        self.is_calm = not total
        """True where a success changes nothing, as nearly always."""
        self.share = Share()
        """The share of the work that failed."""
        self.run = 0
        """The number of successes in a row at a degraded place."""
        self.strictness = 0
        """The number of times that the run which is asked for is doubled."""
        self._total = total
        self._last_s: float | None = None
        self._failures = 0
        self._ends = 0
        """The number of ends since the sum was last 0, as far as they say anything."""
        self._suspect: Hashable = None
        """The kind of requests that failed last and has not succeeded since."""
        self._suspect_fails = 0
        self._others_run = 0
        """The number of successes of other kinds since then, without a failure in between."""
        self._at_fault: dict[Hashable, float] = {}
        """The kinds at fault, and when each failed last."""

    def failed_share(self, now_s: float) -> float:
        """Returns the share of failures as it counts now: that of a degraded place does not
        fade."""
        return self.share.last if self.degraded else self.share.at(now_s)

    @property
    def run_needed(self) -> int:
        """Returns how many successes in a row end the degradation."""
        run = run_needed(self._failures, self._ends - self.run)
        return min(max(run, RUN_MIN) << self.strictness, RUN_MAX)

    def ended(
        self,
        now_s: float,
        kind: Hashable,
        *,
        failed: bool,
        usual: float = 0.0,
        rest_s: float = 0.0,
        service_s: float = 0.0,
    ) -> bool:
        """Learn from work of this kind that has ended here. Returns whether `degraded` has changed.

        `usual` is the share of such work that fails at the best place that it can reach. `rest_s`
        is for how long the service has asked to be left alone, and `service_s` how long a success
        takes.
        """
        since_last_s = 0.0 if self._last_s is None else max(0.0, now_s - self._last_s)
        since_last_s *= FORGET_S / max(FORGET_S, FORGET_SERVICES * service_s)
        self._last_s = now_s + rest_s  # nothing is forgotten while nothing is tried
        self.share.add(now_s, failed=failed, fades=not self.degraded)
        if self._is_at_fault(now_s, kind, failed=failed):
            return False
        weight = REST_WEIGHT if rest_s else 1.0
        self._total = weighed(self._total, failed, usual, since_last_s, weight)
        self._count(failed=failed, usual=usual)
        was_degraded = self.degraded
        if self._is_anothers_fault(now_s, kind, failed=failed):
            self.acquit()
        else:
            self._judge(failed=failed, usual=usual)
        if not (self._total or self.share.last):
            self._suspect = None
        self.is_calm = not (self._total or self.degraded or self.share.last)
        return self.degraded is not was_degraded

    def acquit(self) -> None:
        """Drop all evidence, as the place seems to do well."""
        self.degraded = False
        self._total = 0.0
        self.run = self._failures = self._ends = 0

    def _count(self, *, failed: bool, usual: float) -> None:
        if not (self._total or self.degraded):
            self._failures = self._ends = 0
        elif usual < FAILS_EVERYWHERE or not failed:
            self._failures += failed
            self._ends += 1
            if self._ends > ENDS_MAX:
                self._failures, self._ends = self._failures // 2, self._ends // 2

    def _judge(self, *, failed: bool, usual: float) -> None:
        if not self.degraded:
            self.degraded = failed and self._total >= DEGRADED_AT
            self.run = 0
        elif not failed:
            self.run += 1
            if self.run >= self.run_needed:
                self.acquit()
        elif usual < FAILS_EVERYWHERE:
            self.run = 0

    def _is_at_fault(self, now_s: float, kind: Hashable, *, failed: bool) -> bool:
        """Returns whether this failure is known to be the fault of its kind. A success of that kind
        clears it."""
        failed_s = self._at_fault.pop(kind, -math.inf)
        if not failed or now_s - failed_s >= AT_FAULT_S:
            return False
        self._at_fault[kind] = now_s
        return True

    def _is_anothers_fault(self, now_s: float, kind: Hashable, *, failed: bool) -> bool:
        """Returns whether this end shows that one kind is at fault, and not the place."""
        if failed:
            is_same = self._suspect_fails > 0 and kind == self._suspect
            self._suspect, self._others_run = kind, self._others_run if is_same else 0
            self._suspect_fails = self._suspect_fails + 1 if is_same else 1
            return False
        if self._suspect is None:
            return False
        if kind == self._suspect:
            self._suspect = None
            return False
        fails = self._suspect_fails
        self._others_run += 1
        if fails < 2 or self._others_run < run_needed(fails, fails, ANOTHERS_FAULT):
            return False
        self._at_fault[self._suspect] = now_s
        if len(self._at_fault) > AT_FAULT_MAX:
            del self._at_fault[next(iter(self._at_fault))]
        self._suspect = None
        return True
