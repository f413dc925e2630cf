"""The pool of one node of a site of several: its share of the servers and its own FIFO, and
estimates for the site as a whole (decision 0049).

`siblings` decides which node has which share.
"""

from __future__ import annotations

from spillover.core.overflow.servers import FifoServers
from spillover.core.overflow.sibling import WORK_SPREADS, Demand
from spillover.core.overflow.siblings import Siblings
from spillover.core.overflow.visit import Visit
from spillover.policy.overflow import admission
from spillover.policy.overflow.base import OwnLoad


class SiteServers(FifoServers):
    """`total`, `busy` and `waiting` are this node's; `up`, `working` and all estimates are the
    site's, which has one load."""

    has_seats = True

    siblings: Siblings

    def __init__(self, siblings: Siblings, service_s: float, delivery_s: float) -> None:
        super().__init__(0, service_s, delivery_s)
        self.siblings = siblings
        self.up = siblings.own.servers

    @classmethod
    def of(cls, pool: FifoServers, siblings: Siblings) -> SiteServers:
        """Turns a pool into that of one node of several, and returns it. It is the same object, as
        others hold it, with all that waits and runs."""
        pool.__class__ = cls
        assert isinstance(pool, SiteServers)
        pool.siblings = siblings
        pool.take_share()
        return pool

    @property
    def lines(self) -> int:
        return max(1, len(self.siblings.members))

    @property
    def site_total(self) -> int:
        return self.up

    @property
    def site_busy(self) -> int:
        idle = max(0, self.total - self.busy) + self.siblings.idle
        return max(self.busy, self.up - idle)

    @property
    def site_waiting(self) -> int:
        return self.waiting + self.siblings.waiting

    @property
    def site_foreign(self) -> int:
        return self.waiting_foreign + self.siblings.foreign

    @property
    def working(self) -> int:
        return max(0, self.up - len(self.stuck))

    @property
    def ready(self) -> bool:
        """Returns whether a visit can start now, here or once a sibling has given a server."""
        return super().ready or (not self.resting and self.expects)

    @property
    def expects(self) -> bool:
        """Returns whether a sibling has a server for one more visit that waits here."""
        return not self.down and self.siblings.idle > self.waiting

    @property
    def others_stay(self) -> bool:
        """Returns whether a sibling that this node hears, and that hears it, does not drain."""
        return bool(self.siblings.staying)

    @property
    def departure_s(self) -> float:
        return self.service_s / max(1, self.working)

    @property
    def ahead(self) -> int:
        idle = self.total - self.busy if self.total > self.busy else 0
        return self.site_waiting - idle - self.siblings.idle

    def resize(self, total: int) -> bool:
        self.up = total
        self.siblings.use(total, self.now_s)
        self.take_share()
        return True

    def take_share(self) -> bool:
        """Adjusts the pool to its share. Returns whether there are more servers than before."""
        had, self.total = self.total, self.siblings.own.share
        return self.total > had

    def seats(self, _: Visit) -> bool:
        return self.expects

    def pop(self) -> Visit | None:
        while self.waiting and self.may_start(self._oldest()) and self._passes_over():
            self.total = self.siblings.own.share
        return super().pop()

    def _oldest(self) -> Visit:
        return next(iter(self._fifo))

    def _passes_over(self) -> bool:
        age_s = max(0.0, self.now_s - self._oldest().since_s)
        return self.siblings.passes_over(age_s, self.departure_s, self.now_s)

    def note(self, now_s: float) -> bool:
        """Notes what waits and runs now, at a pool of which nothing is down. Returns whether that
        is all there is to do, as after most events."""
        return self.siblings.note(self.waiting, self.busy, now_s)

    def demand(self, load: float, *, leaves: bool) -> Demand:
        """Returns what the siblings are to know of this node, whose clients bring this load, and
        which drains if it `leaves`."""
        age_s = max(0.0, self.now_s - self._oldest().since_s) if self.waiting else 0.0
        work_s = self.service_s + WORK_SPREADS * self.service_spread_s + self._delivery_s
        can_run = not (self.down or self.resting)
        queue = self.waiting, self.waiting_foreign, self.busy, age_s
        closed = () if can_run else (0,)
        return Demand(*queue, load, can_run, leaves, work_s, closed=closed)

    # --- estimates ----------------------------------------------------------------------------

    def own_load(
        self,
        visit: Visit,
        may_keep: bool,  # noqa: FBT001 - as `ServerPool`
        load: float,
        now_s: float,
        unreported: tuple[int, ...],
    ) -> OwnLoad:
        own = super().own_load(visit, may_keep, load, now_s, unreported)
        working = max(1, self.working)
        return own._replace(
            queue_length=own.queue_length + self.siblings.waiting,
            servers=working,
            may_keep=may_keep and self.working > 0,
            departure_s=self.service_s / working,
        )

    def stay_s(self, _: Visit, now_s: float) -> float:
        line, working = self.site_waiting, max(1, self.working)
        if not admission.tells_wait(line, working):
            return 0.0
        told = (self.service_s, self.service_spread_s, self._delivery_s)
        return admission.stay_s(line, working, *told) + self.rest_s(now_s)

    def retry_after_s(self, _: Visit, now_s: float) -> float:
        served_s = (self.site_waiting + 1) * self.service_s / max(1, self.working)
        return self.rest_s(now_s) + served_s

    def check(self) -> None:
        assert self.busy >= 0
        assert len(self._fifo) == self.waiting, (len(self._fifo), self.waiting)
        assert self.total == self.siblings.own.share, (self.total, self.siblings.own.share)
        assert not (super().ready and self.waiting), "a request waits although a server is free"
        self.siblings.check()
