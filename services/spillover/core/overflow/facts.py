"""The questions that a cluster's machine answers. Asking changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillover.core.overflow.admission import Admission
from spillover.core.overflow.decider import Decider
from spillover.core.overflow.decisions import RESTING
from spillover.core.overflow.groups import Group, Groups
from spillover.core.overflow.health import Health
from spillover.core.overflow.held import HeldBytes
from spillover.core.overflow.home_load import HomeLoad
from spillover.core.overflow.ledger import Ledger
from spillover.core.overflow.neighbors import Neighbors
from spillover.core.overflow.pool import ServerPool
from spillover.core.overflow.pulling import Pulling
from spillover.core.overflow.register import Register
from spillover.core.overflow.settings import Carried, NodeSettings
from spillover.core.overflow.visit import QUEUED, Visit
from spillover.model.request import Refusal
from spillover.model.service_statuses import is_failure
from spillover.policy.overflow.degradation import SAME

if TYPE_CHECKING:
    from spillover.core.overflow.evidence import LateHere

BEHIND_IT = frozenset({None, Refusal.QUEUE_FULL, Refusal.TOO_LATE})
"""The objections to joining the end of the queue that are none to standing first."""


class NodeFacts:
    """The readable side of `NodeMachine`, which makes the parts."""

    settings: NodeSettings
    carried: Carried
    servers: ServerPool
    register: Register
    groups: Groups
    neighbors: Neighbors
    """The table of neighbors, and of what each says of itself as a whole."""
    decider: Decider
    admission: Admission
    health: Health
    home_load: HomeLoad
    """The load that own clients bring, in all groups of types."""
    pulling: Pulling
    """The asking for work: of the only group, where there is one; its `ends` are of all groups."""
    truncated: int
    """The number of answers that had begun to pass and broke off; each of them has failed."""
    blocked: dict[str, int]
    """The number of requests, by type, that came and found no token; only where servers are
    unlike."""
    _doubtful: set[int]
    """The visits under way that were lost at a neighbor: they may have run there."""
    late_here: LateHere
    _by_load: bool
    """Whether the policy goes by the load."""

    @property
    def queue_length(self) -> int:
        """Returns N: the number of requests that wait, without those being served."""
        return self.servers.waiting

    @property
    def ahead(self) -> int:
        """Returns N less the idle servers, as neighbors are told. While the cluster recovers, it is
        larger to match the smaller P that they are told."""
        servers = self.servers
        if servers.is_alike:
            fitting = servers.fitting(0)
            return fitting.ahead + self._ahead_besides(fitting.up)
        ahead = servers.site_waiting + servers.site_busy - servers.site_total
        return ahead + self._ahead_besides(servers.site_total)

    def ahead_of(self, group: Group) -> int:
        fitting = group.fitting
        return fitting.ahead + self._ahead_besides(fitting.up)

    def _ahead_besides(self, servers: int) -> int:
        share = self.health.start_share
        return 0 if share == 1.0 else int(servers * (1.0 / share - 1.0))

    @property
    def ledger(self) -> Ledger:
        return self.register.ledger

    @property
    def held(self) -> HeldBytes:
        return self.register.held

    @property
    def policy(self) -> str:
        return self.decider.policy

    @property
    def shadow(self) -> str | None:
        """Returns the policy that is asked along, without a say; None if none is."""
        shadow = self.decider.shadow
        return None if shadow is None else shadow.policy

    @property
    def draining(self) -> bool:
        return self.admission.draining

    @property
    def lame_duck(self) -> bool:
        """Returns whether the cluster drains, but still serves its clients as ever."""
        return self.admission.draining and not self.admission.emptying

    @property
    def drained(self) -> bool:
        return self.admission.emptying and not self.register.visits and not self.servers.stuck

    @property
    def condition(self) -> str:
        """Returns the health of the cluster (`health`), or RESTING."""
        return RESTING if self.servers.resting else self.health.state

    @property
    def accepting(self) -> bool:
        """Returns whether a neighbor's request would be accepted now, of some type."""
        takes = self.admission.takes
        return any(takes(group.fitting) for group in self.groups.all)

    @property
    def accept_probability(self) -> float:
        """Returns P; 0 where nothing is accepted whatever N is. With several groups, it is the
        largest P of them."""
        return max([self.accept_probability_of(group) for group in self.groups.all])

    def accept_probability_of(self, group: Group) -> float:
        fitting = group.fitting
        # With servers alike nothing waits while one is free, so that both say the same, unless work
        # is counted.
        by_count = group.is_alike and not self.servers.counts_work
        waiting = fitting.site_waiting if by_count else max(0, fitting.ahead)
        return self.admission.accept_probability(fitting, waiting)

    @property
    def neighborhood_accept_probability(self) -> float:
        """Returns R, from the newest that is known."""
        return self.neighbors.accept_probability_with(self.accept_probability)

    @property
    def stranded(self) -> int:
        """Returns how many requests that are away, at neighbors that are silent or fail, do not
        count against `away_limit`. Nobody knows when they come back, and other neighbors are
        well."""
        rows = self.neighbors
        count = sum(len(row.away) for row in rows if not row.known or row.there.degraded)
        return min(count, self.settings.away_limit)

    def may_send_away(self, beyond: int = 0) -> bool:
        """Returns whether one more request may be away, while so many wait `beyond` the queue's
        limit."""
        return self.register.away + beyond < self.settings.away_limit + self.stranded

    # --- a visit --------------------------------------------------------------------------------

    def surely_never_ran(self, ref: int) -> bool:
        """Returns whether this visit has surely not run, here or elsewhere. A visit that is away
        may have."""
        visit = self.register.visits.get(ref)
        if visit is None or visit.state is not QUEUED or visit.may_have_run:
            return False
        return ref not in self._doubtful

    def _has_answer(self, visit: Visit) -> bool:
        """Returns whether the service here has refused the visit with an answer to pass on. A
        request that may have run elsewhere must not be answered with it."""
        return visit.refused_with is not None and visit.ref not in self._doubtful

    def _has_its_place(self, visit: Visit, objection: Refusal | None) -> bool:
        """Returns whether the visit takes back the place that it left: it is a client's request
        that has waited here, and nothing is wrong except that many wait behind it."""
        goes_by_age = self._by_load and self.servers.is_alike
        has_waited = visit.is_home and visit.queued_s > 0.0 and goes_by_age
        return has_waited and objection in BEHIND_IT and not self.admission.elsewhere_first

    def is_failure(self, status: int | None) -> bool:
        """Returns whether work that has failed with this status counts against the place where it
        failed."""
        return is_failure(status, self.settings.failure_statuses)

    def is_free(self, visit: Visit) -> bool:
        """Returns whether this visit is decided again if it fails where work is known to fail. With
        a key it may run twice, and no part of its answer has been shown, as it does not pass
        through."""
        return visit.request.keyed and not self.settings.passes

    def _may_do_better(self, visit: Visit, now_s: float) -> bool:
        """Returns whether a request that a neighbor has failed, which is known to fail work, is
        decided again: it was a probe, it may run twice, and there is a better place."""
        if not self.is_free(visit) or visit.answering or visit.cancelling:
            return False
        if visit.deadline_s <= now_s:
            return False
        better = min(self.admission.rank, self.neighbors.knowledge().best)
        return better + SAME < visit.target.rank

    def _goes_back(self, visit: Visit) -> bool:
        """Returns whether a neighbor can have the visit back: it has surely not run, here or
        elsewhere."""
        return not visit.is_home and visit.ref not in self._doubtful
