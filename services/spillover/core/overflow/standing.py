"""What comes of work at one place: at this cluster, or at a neighbor that was given some.

A place is *degraded* once more of the work fails there than the best place that the work can reach
would fail (`policy.overflow.degradation`), and no more after a run of successes that is too long to
come by chance. What fails everywhere tells nothing, neither for a place nor against it.

Where one kind of requests alone fails while others do well, that kind is at fault, not the place:
what comes of it counts no more, until one of it succeeds.

Not here: what is done with work then, and which work is tried at a degraded place.
"""

from __future__ import annotations

import math
from collections.abc import Hashable

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
"""What asks to be left alone says more than one failure: that the next ones would fail too."""

FORGET_SERVICES = 30.0
"""Where so many services take longer than FORGET_S, evidence halves in that time: failures of work
that takes a minute come minutes apart, since each occupies its server for as long."""

FAILS_EVERYWHERE = 0.5
"""From this usual share on a failure at a degraded place tells nothing."""

ENDS_MAX = 64
"""Of those that a run of successes is measured by: older ones count half each time."""

AT_FAULT_MAX = 16
"""Kinds of requests that are remembered to be at fault, the newest ones."""

SHARE_LEAST = 1 / 1024
"""A share below it is none."""

SHARE_WEIGHT = 1 / 8
"""Weight of the newest outcome in a running share."""

SHARE_FORGET_S = 10.0
"""Time in which a share halves if nothing more is heard."""


class Share:
    """A running share of failures, which fades while nothing ends."""

    __slots__ = ("_last_s", "last")

    def __init__(self) -> None:
        self.last = 0.0
        """What it was when something ended last."""
        self._last_s = 0.0

    def add(self, now_s: float, *, failed: bool) -> None:
        """One more outcome."""
        value = self.at(now_s)
        value += (failed - value) * SHARE_WEIGHT
        self.last = value if value > SHARE_LEAST else 0.0
        self._last_s = now_s

    def at(self, now_s: float) -> float:
        """Returns the share as it counts now."""
        if not self.last:
            return 0.0
        return self.last * math.exp2(-max(0.0, now_s - self._last_s) / SHARE_FORGET_S)


class Standing:
    """Of one place, from this sum of evidence on. Told of what ends there."""

    __slots__ = (
        "_at_fault",
        "_ends",
        "_failures",
        "_last_s",
        "_others_run",
        "_suspect",
        "_total",
        "degraded",
        "is_calm",
        "run",
        "share",
        "strictness",
    )

    def __init__(self, total: float = 0.0) -> None:
        self.degraded = False
        self.is_calm = not total
        """Whether a success would tell nothing new, as nearly always."""
        self.share = Share()
        """Of failures."""
        self.run = 0
        """Successes in a row, of a degraded place."""
        self.strictness = 0
        """How often the run that is asked for is doubled."""
        self._total = total
        self._last_s: float | None = None
        self._failures = 0
        self._ends = 0
        """Since the sum was 0 last, as far as they tell anything."""
        self._suspect: Hashable = None
        """The one kind of requests that has failed since then; None if there are several."""
        self._others_run = 0
        """Successes of other kinds in a row since then."""
        self._at_fault: dict[Hashable, None] = {}

    def failed_share(self, now_s: float) -> float:
        """Returns the share as it counts now: that of a degraded place does not fade."""
        return self.share.last if self.degraded else self.share.at(now_s)

    @property
    def run_needed(self) -> int:
        """Returns how many successes in a row end the degradation."""
        run = run_needed(self._failures, self._ends)
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
        """Work of this kind has ended here; `usual` is the share of it that fails at the best place
        that it can reach, `rest_s` how long what runs it has asked to be left alone, and
        `service_s` how long a success takes. Whether `degraded` has changed by it."""
        since_last_s = 0.0 if self._last_s is None else max(0.0, now_s - self._last_s)
        since_last_s *= FORGET_S / max(FORGET_S, FORGET_SERVICES * service_s)
        self._last_s = now_s + rest_s  # nothing is forgotten while nothing is tried
        self.share.add(now_s, failed=failed)
        if kind in self._at_fault:
            if failed:
                return False
            del self._at_fault[kind]
        weight = REST_WEIGHT if rest_s else 1.0
        self._total = weighed(self._total, failed, usual, since_last_s, weight)
        self._count(kind, failed=failed, usual=usual)
        changed = self._judge(failed=failed, usual=usual)
        self.is_calm = not (self._total or self.degraded or self.share.last or self._at_fault)
        return changed

    def acquit(self) -> None:
        """It does well, as it seems: nothing counts against it any more."""
        self.degraded = False
        self._total = 0.0
        self.run = self._failures = self._ends = 0

    def _count(self, kind: Hashable, *, failed: bool, usual: float) -> None:
        if not (self._total or self.degraded):
            self._failures = self._ends = 0
        elif usual < FAILS_EVERYWHERE or not failed:
            if failed and kind != self._suspect:
                self._suspect = None if self._failures else kind
            is_anothers = self._suspect is not None and kind != self._suspect
            self._others_run = self._others_run + is_anothers if self._failures else 0
            self._failures += failed
            self._ends += 1
            if self._ends > ENDS_MAX:
                self._failures, self._ends = self._failures // 2, self._ends // 2

    def _judge(self, *, failed: bool, usual: float) -> bool:
        if self._is_anothers_fault():
            was_degraded = self.degraded
            self._at_fault[self._suspect] = None
            if len(self._at_fault) > AT_FAULT_MAX:
                del self._at_fault[next(iter(self._at_fault))]
            self.acquit()
            return was_degraded
        if not self.degraded:
            self.degraded = failed and self._total >= DEGRADED_AT
            self.run = 0
            return self.degraded
        if failed:
            self.run = self.run if usual >= FAILS_EVERYWHERE else 0
            return False
        self.run += 1
        if self.run < self.run_needed:
            return False
        self.acquit()
        return True

    def _is_anothers_fault(self) -> bool:
        if self._suspect is None or not self._others_run or self._failures < 2:
            return False
        of_suspect = self._ends - self._others_run
        return self._others_run >= run_needed(self._failures, of_suspect, ANOTHERS_FAULT)
