"""The pool of m servers that are alike, and the FIFO of the visits that wait for them.

What its servers run is the shell's business, who may join the FIFO `admission`'s.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping

from spillover.core.fifo import Fifo
from spillover.core.overflow.visit import Visit
from spillover.core.pauses import Pauses
from spillover.model.unlike_servers import OVERFLOW
from spillover.policy.overflow import admission
from spillover.policy.overflow.base import OwnLoad
from spillover.policy.overflow.estimate import learned, residual


class FifoServers(Pauses):
    """The pool (`pool.ServerPool`) in which any server fits any visit, first come, first served.

    A server whose work has failed *cools* for as long as a success takes: what fails at once would
    otherwise look idle, and draw work from everywhere.

    `service_s` is the running mean of the service times, from the first guess given; `delivery_s`
    is how long an answer takes to its client afterwards.
    """

    on_block = OVERFLOW
    """The rule for blocked requests: they wait here or go to a neighbor, as the policy says."""
    is_alike = True
    has_seats = False
    counts_work = False
    """Whether waiting visits are counted by how long they are expected to run (`sized_servers`)."""

    def __init__(self, total: int, service_s: float, delivery_s: float) -> None:
        self.now_s = 0.0
        self.total = total
        self.up = total
        """The servers that are up, as in `FittingServers`: any server fits."""
        self.busy = 0
        self._busy_max = total
        """The value of `total`, or more for a while after it has become smaller."""
        self.waiting = 0
        """The number of visits in the FIFO. It is kept apart, since every request asks."""
        self.waiting_foreign = 0
        self.service_s = service_s
        self._service_variance_s2 = 0.0
        self._served = 0
        self._delivery_s = delivery_s
        self._fifo: Fifo[Visit] = Fifo()
        self.stuck: set[int] = set()
        self.down = False
        self.resting = False
        self.rest_until_s = math.inf
        self.refusals = 0
        self.next_s = math.inf
        self._cooling_s: list[float] = []
        """A heap of the times when cooling ends, one for each cooling server."""

    @property
    def lines(self) -> int:
        return 1

    @property
    def site_waiting(self) -> int:
        return self.waiting

    @property
    def site_foreign(self) -> int:
        return self.waiting_foreign

    @property
    def working(self) -> int:
        """Returns how many servers to count on: a stuck one may never come back."""
        return max(0, self.total - len(self.stuck))

    @property
    def ready(self) -> bool:
        """Returns whether a visit can start now."""
        return self.busy < self.total and not self.down and not self.resting

    @property
    def site_total(self) -> int:
        return self.total

    @property
    def site_busy(self) -> int:
        return self.busy

    @property
    def jobs(self) -> int:
        return self.busy

    @property
    def cooling(self) -> int:
        """Returns how many servers have failed and count as busy for a while."""
        return len(self._cooling_s)

    @property
    def departure_s(self) -> float:
        return self.service_s / max(1, self.total - len(self.stuck))

    @property
    def residual(self) -> float:
        return residual(self.service_s, self._service_variance_s2)

    @property
    def service_spread_s(self) -> float:
        """Returns the running standard deviation of the service times."""
        return math.sqrt(self._service_variance_s2)

    # --- servers ------------------------------------------------------------------------------

    def resize(self, total: int) -> bool:
        """Has so many servers from now on. A visit that runs keeps its server, which is gone after
        it."""
        self._busy_max = max(total, self.busy)
        self.total = self.up = total
        return True

    def set_tokens(self, limits: Mapping[str, int], servers_in: Mapping[str, bool]) -> None:
        """Does nothing: there are no tokens, and no server is named."""

    def has_turned(self) -> bool:
        return False

    def fitting(self, _: int) -> FifoServers:
        """Returns itself: any server fits."""
        return self

    @property
    def ahead(self) -> int:
        return self.waiting + self.busy - self.total

    @property
    def idle(self) -> int:
        return 0 if self.down or self.resting else max(0, self.total - self.busy)

    def may_start(self, _: Visit) -> bool:
        return self.busy < self.total and not self.down and not self.resting

    def seats(self, _: Visit) -> bool:
        return False

    def occupy(self, _: Visit) -> int:
        self.busy += 1
        return 0

    def granted(self, _: int) -> None:
        """Returns None: one server is as good as another."""

    def server_changed(self, _: int, up: bool, now_s: float) -> None:  # noqa: FBT001 - as `ServerPool`
        """Does nothing: the servers are up and down together."""

    def not_done(self, _: int, *, failed: bool) -> None:
        """Does nothing: whether work fails is the cluster's health."""

    def said(self, ref: int, how: str, problem: str | None) -> None:
        """Returns None: one server is as good as another."""

    def refused(self, _: Visit) -> bool:
        return False

    def vacate(self, _: int) -> None:
        self.busy -= 1

    def cool(self, _: int, until_s: float) -> None:
        heapq.heappush(self._cooling_s, until_s)
        self._find_next()

    def served(self, _: int, service_s: float) -> None:
        """Move the running mean and variance."""
        self._served += 1
        self.service_s, self._service_variance_s2 = learned(
            self.service_s, self._service_variance_s2, self._served, service_s
        )

    def rest(self, _: int, until_s: float) -> bool:
        was_resting, self.resting = self.resting, True
        self.rest_until_s = max(until_s, self.rest_until_s) if was_resting else until_s
        self._find_next()
        return not was_resting

    def end_rest(self) -> None:
        self.resting = False
        self.rest_until_s = math.inf
        self._find_next()

    def wake(self, now_s: float) -> bool:
        """Free servers that have cooled, and end a rest that is over. Returns whether one was."""
        while self._cooling_s and self._cooling_s[0] <= now_s:
            heapq.heappop(self._cooling_s)
            self.busy -= 1
        self._find_next()
        if self.rest_until_s > now_s:
            return False
        self.end_rest()
        return True

    def _find_next(self) -> None:
        cooled_s = self._cooling_s[0] if self._cooling_s else math.inf
        self.next_s = min(cooled_s, self.rest_until_s)

    # --- the FIFO -----------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Visit]:
        return iter(self._fifo)

    def join(self, visit: Visit, *, first: bool = False) -> None:
        visit.place = (self._fifo.prepend if first else self._fifo.append)(visit)
        self.waiting += 1
        if not visit.is_home:
            self.waiting_foreign += 1

    def leave(self, visit: Visit) -> None:
        self._fifo.discard(visit.place)
        visit.place = None
        self.waiting -= 1
        if not visit.is_home:
            self.waiting_foreign -= 1

    def pop(self) -> Visit | None:
        """Take out the visit that has waited longest, if a server is free."""
        if not self.waiting or self.busy >= self.total or self.down or self.resting:
            return None
        self.waiting -= 1
        visit = self._fifo.popleft()
        visit.place = None
        if not visit.is_home:
            self.waiting_foreign -= 1
        return visit

    # --- estimates ----------------------------------------------------------------------------

    def own_load(
        self,
        visit: Visit,
        may_keep: bool,  # noqa: FBT001 - as `ServerPool`
        load: float,
        now_s: float,
        unreported: tuple[int, ...],
    ) -> OwnLoad:
        working = self.total - len(self.stuck)
        # At a drain the visit stands in the queue: it does not wait for itself.
        waiting = self.waiting - (visit.place is not None)
        return OwnLoad(
            waiting,
            max(1, working),
            may_keep and working > 0,
            self.service_s,
            self.service_s / max(1, working),
            residual(self.service_s, self._service_variance_s2),
            load,
            len(visit.request.path),
            now_s,
            unreported,
            now_s - visit.group.started_s,
        )

    def stay_s(self, _: Visit, now_s: float) -> float:
        waiting = self.waiting
        if not admission.tells_wait(waiting, self.total):
            return 0.0
        working, spread_s = max(1, self.working), self.service_spread_s
        stay_s = admission.stay_s(waiting, working, self.service_s, spread_s, self._delivery_s)
        return stay_s + self.rest_s(now_s)

    def retry_after_s(self, _: Visit, now_s: float) -> float:
        """Returns the seconds until about as many have been served as wait now, and one more."""
        served_s = (self.waiting + 1) * self.service_s / max(1, self.working)
        return self.rest_s(now_s) + served_s

    def check(self) -> None:
        assert 0 <= self.busy <= self._busy_max, "more requests run than there are servers"
        assert len(self._fifo) == self.waiting, (len(self._fifo), self.waiting)
        assert self.waiting_foreign == sum(not visit.is_home for visit in self._fifo)
        assert not (self.ready and self.waiting), "a request waits although a server is free"
