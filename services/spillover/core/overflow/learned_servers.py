"""The pool of servers that are alike and whose number is learned while they run (decision 0052).

`core.capacity.search` finds how many may run; it sees each end of a service here.
"""

from __future__ import annotations

from spillover.core.capacity.engine import EngineBound
from spillover.core.capacity.search import CapacitySearch
from spillover.core.overflow.servers import FifoServers
from spillover.core.overflow.visit import Visit
from spillover.model.engine_load import EngineLoad
from spillover.model.server_bounds import ServerBounds
from spillover.policy.overflow.base import OwnLoad

PATIENT = 0.5
"""The share of a usual service before which a client that hangs up says nothing of the service, as
it would have done so at any."""


class LearnedServers(FifoServers):
    """The pool whose number of servers is learned. `total` is how many may run now; estimates, and
    what neighbors are told, go by `believed`, which changes less often."""

    def __init__(self, bounds: ServerBounds, service_s: float, delivery_s: float) -> None:
        super().__init__(bounds.start, service_s, delivery_s)
        self.search = CapacitySearch(bounds.min, bounds.max, bounds.start)
        self.engine = EngineBound()
        self._is_undone = False
        """Whether the work whose server is about to be free has come to nothing."""
        self._is_stopped = False
        """Whether it came to nothing because the service took too long."""
        self.late: set[int] = set()
        """The visits whose time was over while they ran, until their servers are free."""

    @property
    def believed(self) -> int:
        """Returns the number of requests at a time that is believed to be best."""
        return self.search.base

    @property
    def working(self) -> int:
        return max(0, self.search.base - len(self.stuck))

    @property
    def site_total(self) -> int:
        return self.search.base

    @property
    def departure_s(self) -> float:
        return self.service_s / max(1, self.working)

    @property
    def ahead(self) -> int:
        return self.waiting - max(0, min(self.total, self.search.base) - self.busy)

    @property
    def idle(self) -> int:
        """Returns how many of the believed servers are idle: work is asked for these, and not to
        try more."""
        return max(0, min(super().idle, self.search.base - self.busy))

    def resize(self, _: int) -> bool:
        """Does nothing: operators do not set a number that is learned."""
        return False

    def occupy(self, visit: Visit) -> int:
        self.busy += 1
        if self.busy >= self.total:
            self.search.is_full(self.now_s)
        return 0

    def not_done(self, _: int, *, failed: bool) -> None:
        self._is_undone = True

    def was_stopped(self, ref: int, service_s: float) -> None:
        """Notes that the work which comes to nothing next had been stopped after so long. Clients
        that hang up may have lost patience, unless they do so at once."""
        self._is_stopped = ref in self.late or service_s >= PATIENT * self.service_s

    def vacate(self, ref: int) -> None:
        self.late.discard(ref)
        super().vacate(ref)
        self._ended(is_good=not self._is_undone, is_stopped=self._is_stopped)
        self._is_undone = self._is_stopped = False

    def cool(self, ref: int, until_s: float) -> None:
        self.late.discard(ref)
        self._is_undone = self._is_stopped = False
        super().cool(ref, until_s)

    def wake(self, now_s: float) -> bool:
        were_busy = self.busy
        rested = super().wake(now_s)
        for _ in range(were_busy - self.busy):
            self._ended(is_good=False)
        return rested

    def _ended(self, *, is_good: bool, is_stopped: bool = False) -> None:
        mean_s = self.service_s
        # By the topology, services may take no time.
        spread2 = self._service_variance_s2 / (mean_s * mean_s) if mean_s else 0.0
        # A waiting request starts at once.
        running = self.busy + (self.waiting > 0)
        told = running, self.waiting, spread2, self.now_s
        if self.search.ended(*told, is_good=is_good, is_stopped=is_stopped):
            self._use_limit()

    def engine_said(self, load: EngineLoad | None) -> None:
        """Takes the engines' report of their load; None if they have been silent for long."""
        if self.engine.said(load, self.search, self.busy, self.now_s):
            self._use_limit()

    def _use_limit(self) -> None:
        self.total = self.search.limit
        self.up = self.search.base
        self._busy_max = max(self.total, self.busy)

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
        return own._replace(servers=working, departure_s=self.service_s / working)
