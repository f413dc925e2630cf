"""Whether the work of a cluster fails more than others', and its way back.

- *well*: as any cluster.
- *degraded*: neighbors give it nothing, and its own clients' work goes to them. A trickle of its
  own work is tried here: one request at first, again after a pause where it fails, and one more at
  a time with each that succeeds. After a long enough run of successes the cluster is well. Where no
  work of its own comes for a while, or once some has succeeded, neighbors may send such probes too.
- *recovering*: well, and for a moment it tells neighbors of a small P that grows.

The rule by which a cluster becomes degraded is in `policy.overflow.degradation`. What is done with
work while it is degraded is the machine's business.
"""

from __future__ import annotations

import math

from spillover.policy.overflow.degradation import DEGRADED_AT, FORGET_S, UNPROVEN, weighed

PROBE_PAUSE_S = 0.25
"""After a probe has failed; doubles with each that fails, up to PROBE_PAUSE_S_MAX."""

PROBE_PAUSE_S_MAX = 1.0

RUN_LENGTH = 30
"""Successes in a row that end a degradation. A cluster of which 0.2 fails has such a run once in
hundreds of attempts: what fails at a constant share does not go back and forth."""

RELAPSES_MAX = 3
RELAPSE_S = 60.0
"""Degraded again within this time, twice as long a run is asked for, up to 2^RELAPSES_MAX times."""

FOREIGN_RUN = 5
"""Successes in a row after which neighbors may send probes too."""

PATIENCE_S = 15.0
"""Without work of its own for so long, a cluster lets a neighbor's request be the probe. Doubles
with each that fails, up to PATIENCE_S_MAX: it is a client of a healthy cluster who pays for it."""

PATIENCE_S_MAX = 60.0

PATIENCE_NOT_RUN_S = 1.0
"""Where all that failed surely did not run, and so was decided again: such a probe costs little."""

REST_WEIGHT = 3.0
"""What asks to be left alone says more than one failure: that the next ones would fail too."""

FORGET_SERVICES = 30.0
"""Where so many services take longer than FORGET_S, evidence halves in that time: failures of work
that takes a minute come minutes apart, since each occupies its server for as long."""

SLOW_START_S = 1.0
SLOW_START_SHARE = 0.1
"""Of P, that neighbors are told at first."""

OTHERS_FAIL_TOO = 0.5
"""Where this share of the own clients' work fails elsewhere, it is not this cluster that fails."""

OTHERS_DO_WELL = 0.25
"""From there on so little that it is. What nobody tries elsewhere fades from the one to the other
in SHARE_FORGET_S: where all fail, clusters do not go back and forth."""

SHARE_LEAST = 1 / 1024
"""A share below it is none."""

SHARE_WEIGHT = 1 / 8
"""Weight of the newest outcome in a running share."""

SHARE_FORGET_S = 10.0
"""Time in which a share halves if nothing more is heard."""

SHARE_STEP = 0.05
"""To which the share that is told is rounded, so that reports do not differ for nothing."""

WELL = "well"
DEGRADED = "degraded"
RECOVERING = "recovering"


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


class Health:
    """The health of one cluster. Told of what ends; asked whether work may be tried here."""

    __slots__ = (
        "_degraded_s",
        "_home_s",
        "_last_s",
        "_others_fail",
        "_patience_s",
        "_pause_s",
        "_probe_again_s",
        "_probes",
        "_relapses",
        "_run",
        "_since_s",
        "_total",
        "changes",
        "degraded",
        "elsewhere",
        "here",
        "is_calm",
        "start_share",
        "state",
    )

    def __init__(self) -> None:
        self.state = WELL
        """WELL, DEGRADED or RECOVERING."""
        self.degraded = False
        self.is_calm = False
        """Whether a success would tell nothing new, as nearly always."""
        self.start_share = 1.0
        """Of P, that is told to neighbors: below 1 while recovering."""
        self.here = Share()
        """Of failures, in the work that ended here."""
        self.elsewhere = Share()
        """Of failures, in the own clients' work that neighbors answered."""
        self.changes = 0
        """How often `degraded` has changed."""
        self._others_fail = False
        self._total = UNPROVEN
        self._last_s: float | None = None
        self._since_s = float("-inf")
        """Of the last change."""
        self._degraded_s = float("-inf")
        self._home_s = float("-inf")
        """When a request of an own client last came."""
        self._probes: set[int] = set()
        self._probe_again_s = 0.0
        self._pause_s = PROBE_PAUSE_S
        self._patience_s = PATIENCE_NOT_RUN_S
        self._run = 0
        self._relapses = 0

    def failed_share(self, now_s: float) -> float:
        """Returns how much of the work that ended here lately has failed, as others are told it: in
        steps of SHARE_STEP."""
        return round(round(self.here.at(now_s) / SHARE_STEP) * SHARE_STEP, 2)

    # --- what is tried here while it is degraded -----------------------------------------------

    def came(self, now_s: float) -> None:
        """A request of an own client has come."""
        self._home_s = now_s

    def may_probe(self, now_s: float, *, is_home: bool) -> bool:
        """Returns whether such a request may be tried here; it is a probe then, see `probe`."""
        if len(self._probes) > self._run or now_s < self._probe_again_s:
            return False
        return is_home or self._wants_foreign(now_s)

    def invites(self, now_s: float) -> bool:
        """Returns whether a neighbor may send a probe."""
        return self.degraded and self.may_probe(now_s, is_home=False)

    def probe(self, ref: int) -> None:
        """This visit is one; `forget` it when it ends."""
        self._probes.add(ref)

    def forget(self, ref: int) -> None:
        """The visit has ended, however that was."""
        self._probes.discard(ref)

    def _wants_foreign(self, now_s: float) -> bool:
        alone_s = now_s - max(self._home_s, self._degraded_s)
        return self._run >= FOREIGN_RUN or alone_s >= self._patience_s

    # --- what comes of it ---------------------------------------------------------------------

    def ended(
        self,
        now_s: float,
        *,
        failed: bool,
        usual: float,
        is_home: bool,
        not_run: bool = False,
        rest_s: float = 0.0,
        service_s: float = 0.0,
    ) -> bool:
        """Work has ended here; `usual` is the share of its origin's work that fails elsewhere,
        `rest_s` how long what runs it has asked to be left alone, and `service_s` how long a
        success takes. Whether `degraded` has changed by it."""
        since_last_s = 0.0 if self._last_s is None else max(0.0, now_s - self._last_s)
        since_last_s *= FORGET_S / max(FORGET_S, FORGET_SERVICES * service_s)
        self._last_s = now_s + rest_s  # nothing is forgotten while nothing is tried
        weight = REST_WEIGHT if rest_s else 1.0
        self._total = weighed(self._total, failed, usual, since_last_s, weight)
        self.here.add(now_s, failed=failed)
        self.is_calm = not (self._total or self.degraded or self.here.last)
        if self.degraded:
            return self._ended_degraded(now_s, failed=failed, is_home=is_home, not_run=not_run)
        if not failed or self._total < DEGRADED_AT:
            return False
        if self._do_others_fail(now_s):
            # No more than suffices: once all are well again, it is not to be worked off.
            self._total = DEGRADED_AT
            return False
        self._degrade(now_s, not_run=not_run)
        return True

    def answered_elsewhere(self, now_s: float, *, failed: bool) -> bool:
        """Takes note that a neighbor has answered an own client's request, and returns whether
        `degraded` has changed by it: what fails there as well is not this cluster's fault."""
        self.elsewhere.add(now_s, failed=failed)
        if not self.degraded or not self._do_others_fail(now_s):
            return False
        self._recover(now_s)
        return True

    def _do_others_fail(self, now_s: float) -> bool:
        """Whether work fails elsewhere as well: from OTHERS_FAIL_TOO on, down to OTHERS_DO_WELL."""
        least = OTHERS_DO_WELL if self._others_fail else OTHERS_FAIL_TOO
        self._others_fail = self.elsewhere.at(now_s) >= least
        return self._others_fail

    def tick(self, now_s: float) -> None:
        """Time passes: a slow start goes on."""
        if self.start_share < 1.0:
            grown = (now_s - self._since_s) / SLOW_START_S
            self.start_share = min(1.0, max(SLOW_START_SHARE, grown))
            self.state = WELL if self.start_share == 1.0 else RECOVERING

    def check(self) -> None:
        assert self.degraded or not self._probes, "probes of a cluster that is well"
        assert not (self.degraded and self.start_share < 1.0), "degraded, yet on its way back"

    def _ended_degraded(self, now_s: float, *, failed: bool, is_home: bool, not_run: bool) -> bool:
        if not failed:
            self._run += 1
            if self._run < RUN_LENGTH << self._relapses:
                return False
            self._recover(now_s)
            return True
        self._run = 0
        self._probe_again_s = now_s + self._pause_s
        self._pause_s = min(2.0 * self._pause_s, PROBE_PAUSE_S_MAX)
        if not not_run:
            # What was under way when the cluster became degraded was no probe.
            was_probe = not is_home and now_s - self._degraded_s >= self._patience_s
            longer_s = 2.0 * self._patience_s if was_probe else self._patience_s
            self._patience_s = min(max(PATIENCE_S, longer_s), PATIENCE_S_MAX)
        self._degraded_s = now_s
        return False

    def _degrade(self, now_s: float, *, not_run: bool) -> None:
        if now_s - self._since_s > RELAPSE_S:
            self._relapses = 0
        elif self.changes:
            self._relapses = min(self._relapses + 1, RELAPSES_MAX)
        self.degraded = True
        self.state = DEGRADED
        self.changes += 1
        self.start_share = 1.0
        self._since_s = self._degraded_s = now_s
        self._run = 0
        self._pause_s = PROBE_PAUSE_S
        self._probe_again_s = now_s + self._pause_s
        self._patience_s = PATIENCE_NOT_RUN_S if not_run else PATIENCE_S

    def _recover(self, now_s: float) -> None:
        self.degraded = False
        self.state = RECOVERING
        self.changes += 1
        self.start_share = SLOW_START_SHARE
        self._since_s = now_s
        self._total = 0.0
        self._probes.clear()
