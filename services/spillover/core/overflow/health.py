"""The health of a cluster: does its work fail more than others', and how does it come back?

- *well*: as any cluster.
- *degraded*: neighbors give it nothing, and its own clients' work goes to them. A trickle of work
  is tried here: one request at first, again after a pause where it fails, and one more at a time
  with each that succeeds. After a long enough run of successes the cluster is well. Where no work
  of its own comes for a while, or once some has succeeded, neighbors may send such probes too.
- *recovering*: well, and for a moment it tells neighbors of a small P that grows.

What can be decided again after it has failed is tried soon, since nobody loses by it. All else
costs its client an answer: it is tried the more rarely the longer the failure lasts. Where the
cluster has a request of its own to ask its service by (`probe`), nothing is tried while that fails.

The rule by which a cluster becomes degraded is in `standing`. What is done with work while it is
degraded is the machine's business.
"""

from __future__ import annotations

from collections.abc import Hashable

from spillover.core.overflow.standing import FAILS_EVERYWHERE, Standing
from spillover.policy.overflow.degradation import UNPROVEN

PROBE_PAUSE_S = 0.25
"""The pause, in seconds, after a failed probe that cost nothing. It doubles with each, up to
PROBE_PAUSE_S_MAX."""

PROBE_PAUSE_S_MAX = 1.0

PAID_PAUSE_S = 0.5
"""The shortest pause, in seconds, after a failed probe that cost a client its answer. The pause is
PAID_SHARE of the time that the failure has lasted, and at most PAID_PAUSE_S_MAX."""

PAID_SHARE = 1.0 / 3.0
PAID_PAUSE_S_MAX = 10.0

RELAPSES_MAX = 3
RELAPSE_S = 60.0
"""The time, in seconds, within which a second degradation is a relapse. It doubles the run that is
asked for, up to 2^RELAPSES_MAX times."""

FOREIGN_RUN = 5
"""The number of successes in a row after which neighbors may send probes too."""

FOREIGN_PAUSE_S = 1.0
"""The time, in seconds, without work of its own and without a failure after which a cluster lets a
request of a neighbor's own client be the probe."""

HANDED_ON_PAUSE_S = 15.0
"""The same for a request of a degraded neighbor, or one that has been handed on before: its client
pays for probes there, and of several clusters that are broken at once each would fail it. Unless
the service says that it is well."""

SLOW_START_S = 1.0
SLOW_START_SHARE = 0.1
"""The share of P that neighbors get at first."""

SHARE_STEP = 0.05
"""The share that is reported is rounded to this, so that reports do not differ for nothing."""

WELL = "well"
DEGRADED = "degraded"
RECOVERING = "recovering"


class Health:
    """The health of one cluster. It learns from work that ends, and says whether work may be tried
    here. `asks` says whether the cluster asks its service, by a request of its own, while it is
    degraded."""

    def __init__(self, *, asks: bool = False) -> None:
        self.state = WELL
        """WELL, DEGRADED or RECOVERING."""
        self.here = Standing(UNPROVEN)
        """The standing of this place, by the work that ended here."""
        self.start_share = 1.0
        """The share of P that neighbors hear of: below 1 while recovering."""
        self.changes = 0
        """The number of times that `degraded` has changed."""
        self._since_s = float("-inf")
        """The instant of the last change of state."""
        self._begun_s = float("-inf")
        """The instant of the last degradation."""
        self._degraded_s = float("-inf")
        """The instant of the last failure while degraded."""
        self._home_s = float("-inf")
        """The instant at which a request of an own client last came."""
        self._probes: set[int] = set()
        self._probe_again_s = self._paid_again_s = 0.0
        self._pause_s = PROBE_PAUSE_S
        self._asks = asks
        self._asked = False
        """True while the service has been asked, and has not answered."""
        self._says_well = False
        """Whether the last answer of the service was that it is well."""

    @property
    def degraded(self) -> bool:
        return self.here.degraded

    def failed_share(self, now_s: float) -> float:
        """Returns how much of the work that ended here lately has failed, as others are told it: in
        steps of SHARE_STEP."""
        return told_share(self.here.failed_share(now_s))

    # --- what is tried here while it is degraded -----------------------------------------------

    def came(self, now_s: float) -> None:
        """Note that a request of an own client has come."""
        self._home_s = now_s

    def may_probe(
        self, now_s: float, *, is_home: bool, is_free: bool = False, is_handed_on: bool = False
    ) -> bool:
        """Returns whether such a request may be tried here; it is then a probe (see `probe`). A
        request that `is_free` is decided again if it fails. One that `is_handed_on` is of no own
        client of a neighbor that is well."""
        if len(self._probes) > self.here.run or now_s < self._probe_again_s:
            return False
        if self._asks and not self._says_well:
            return False
        if not is_free and now_s < self._paid_again_s:
            return False
        return is_home or self._wants_foreign(now_s, is_handed_on=is_handed_on and not is_free)

    def invites(self, now_s: float) -> bool:
        """Returns whether a neighbor may send a probe."""
        return self.degraded and self.may_probe(now_s, is_home=False)

    def probe(self, ref: int) -> None:
        """Note that this visit is a probe; `forget` is to be called when it ends."""
        self._probes.add(ref)

    def is_probe(self, ref: int) -> bool:
        return ref in self._probes

    def forget(self, ref: int) -> None:
        """Forget a probe that has ended, in whatever way."""
        self._probes.discard(ref)

    def wants_to_ask(self, now_s: float) -> bool:
        """Returns whether to ask the service now; `asked` takes its answer."""
        if not (self._asks and self.degraded) or self._asked or now_s < self._probe_again_s:
            return False
        self._asked = not self._says_well
        return self._asked

    def asked(self, now_s: float, *, is_well: bool) -> None:
        """Take the answer of the service: it is well, or it is not."""
        self._asked = False
        if not self.degraded:
            return
        self._says_well = is_well
        if is_well:
            self._paid_again_s = now_s
        else:
            self._pause(now_s)

    def _wants_foreign(self, now_s: float, *, is_handed_on: bool) -> bool:
        alone_s = now_s - max(self._home_s, self._degraded_s)
        is_rare = is_handed_on and not self._says_well
        pause_s = HANDED_ON_PAUSE_S if is_rare else FOREIGN_PAUSE_S
        return self.here.run >= FOREIGN_RUN or alone_s >= pause_s

    # --- what comes of it ---------------------------------------------------------------------

    def ended(
        self,
        now_s: float,
        *,
        failed: bool,
        usual: float,
        not_run: bool = False,
        is_free: bool = False,
        rest_s: float = 0.0,
        service_s: float = 0.0,
        kind: Hashable = None,
    ) -> bool:
        """Learn from work that has ended here (see `Standing.ended`). Work that has failed is
        decided again if it surely did `not_run`, or `is_free`. Returns whether `degraded` has
        changed."""
        here = self.here
        was_degraded = here.degraded
        told = {"usual": usual, "rest_s": rest_s, "service_s": service_s}
        changed = here.ended(now_s, kind, failed=failed, **told)
        if changed:
            self.changes += 1
            if here.degraded:
                self._degrade(now_s)
            else:
                self._recover(now_s)
        elif was_degraded and failed and usual < FAILS_EVERYWHERE:
            self._pause(now_s)
            if is_free:
                self._paid_again_s = now_s + PAID_PAUSE_S_MAX
            elif not not_run:
                self._paid(now_s)
            self._degraded_s = now_s
        return changed

    def tick(self, now_s: float) -> None:
        """Go on with a slow start, as time has passed."""
        if self.start_share < 1.0:
            grown = (now_s - self._since_s) / SLOW_START_S
            self.start_share = min(1.0, max(SLOW_START_SHARE, grown))
            self.state = WELL if self.start_share == 1.0 else RECOVERING

    def check(self) -> None:
        assert self.degraded or not self._probes, "probes of a cluster that is well"
        assert not (self.degraded and self.start_share < 1.0), "degraded, yet on its way back"
        assert self.degraded == (self.state == DEGRADED), "degraded in one word and not in another"

    def _paid(self, now_s: float) -> None:
        """Note that a client got the failure of a probe."""
        lasted_s = now_s - self._begun_s
        pause_s = min(max(PAID_PAUSE_S, PAID_SHARE * lasted_s), PAID_PAUSE_S_MAX)
        self._paid_again_s = now_s + pause_s

    def _pause(self, now_s: float) -> None:
        self._says_well = False
        self._probe_again_s = now_s + self._pause_s
        self._pause_s = min(2.0 * self._pause_s, PROBE_PAUSE_S_MAX)

    def _degrade(self, now_s: float) -> None:
        here = self.here
        if now_s - self._since_s > RELAPSE_S:
            here.strictness = 0
        elif self.changes > 1:
            here.strictness = min(here.strictness + 1, RELAPSES_MAX)
        self.state = DEGRADED
        self.start_share = 1.0
        self._since_s = self._begun_s = self._degraded_s = now_s
        self._pause_s = PROBE_PAUSE_S
        self._probe_again_s = now_s + self._pause_s
        self._paid_again_s = now_s
        self._says_well = False

    def _recover(self, now_s: float) -> None:
        self.state = RECOVERING
        self.start_share = SLOW_START_SHARE
        self._since_s = now_s
        self._probes.clear()


def told_share(share: float) -> float:
    """Returns a share as others are told it."""
    return round(round(share / SHARE_STEP) * SHARE_STEP, 2)
