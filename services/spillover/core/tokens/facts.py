"""What may be asked of a pool of unlike servers. Asking changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import Generic

from spillover.core.pauses import Pauses
from spillover.core.tokens.answers import TypeAnswers
from spillover.core.tokens.bucket import Bucket
from spillover.core.tokens.fitting import Fitting
from spillover.core.tokens.grants import Grant, grant_of
from spillover.core.tokens.jobs import Job, Kind
from spillover.core.tokens.server import UnlikeServer
from spillover.core.tokens.waiting import V, Waiting
from spillover.policy.overflow import admission
from spillover.policy.overflow.base import OwnLoad
from spillover.policy.tokens import BLOCKED

_order = attrgetter("order")


class TokenFacts(Pauses, Generic[V]):
    """The readable side of `TokenServers`, which makes the parts."""

    on_block: str
    discipline: str
    order: str
    bucket: Bucket
    servers: list[UnlikeServer[V]]
    answers: TypeAnswers
    class_ids: list[str]
    kinds: dict[str, Kind[V]]
    """By type."""
    blocked: Waiting[V]
    jobs_by_ref: dict[int, Job[V]]
    """Those that run, by the refs of their visits."""
    cooled: list[tuple[float, int, Job[V]]]
    """A heap of those that cool: until when, and a number."""
    seated: int
    """How many wait in their seats."""
    busy: int
    """Servers with a job, or one that cools."""
    down: bool
    stuck: set[int]
    _fitting: list[Fitting[V]]
    _all: Fitting[V]
    _unserved: Kind[V]
    _taking: list[tuple[UnlikeServer[V], ...]]
    """By class: its servers that take jobs."""
    _seated_foreign: int
    _shares: bool
    _ranks: bool
    """Whether the order is by rank, not by release."""
    _delivery_s: float

    def kind_of(self, visit: V) -> Kind[V]:
        """Returns its type; one that no class takes where the pool does not serve it."""
        return self.kinds.get(visit.request.type, self._unserved)

    # --- all servers together -------------------------------------------------------------------

    @property
    def jobs(self) -> int:
        """Returns how many jobs are on the servers, stuck ones and those that cool too. Under
        processor sharing they may be more than the servers."""
        return len(self.jobs_by_ref) + len(self.cooled)

    @property
    def cooling(self) -> int:
        """Returns how many jobs have failed and count as running for a while."""
        return len(self.cooled)

    @property
    def working(self) -> int:
        return self._all.working

    @property
    def waiting(self) -> int:
        return self.blocked.count + self.seated

    @property
    def waiting_foreign(self) -> int:
        return sum([line.foreign for line in self.blocked.lines]) + self._seated_foreign

    @property
    def ahead(self) -> int:
        return self._all.ahead

    @property
    def idle(self) -> int:
        return self._all.idle

    @property
    def service_s(self) -> float:
        return self._all.service_s

    @property
    def departure_s(self) -> float:
        return self._all.departure_s

    @property
    def residual(self) -> float:
        return self._all.residual

    @property
    def ready(self) -> bool:
        return self._all.ready

    def fitting(self, group: int) -> Fitting[V]:
        """Returns the servers that fit this group of types: none where the pool serves none of
        them."""
        return self._fitting[group]

    def stuck_servers(self) -> Iterator[int]:
        """Returns the servers on which no other job can start, since requests that have ended
        occupy all places."""
        counts: dict[int, int] = {}
        for ref in self.stuck:
            number = self.jobs_by_ref[ref].server
            counts[number] = counts.get(number, 0) + 1
        return (number for number, count in counts.items() if count >= self.places(number))

    def places(self, number: int) -> int:
        """Returns how many jobs there can be on a server at a time."""
        if not self._shares:
            return 1
        return sum(self.bucket.limit(kind) for kind in self.servers[number].classes)

    def granted(self, ref: int) -> Grant:
        """Returns which token this visit has, which runs, why, and what else was there."""
        job = self.jobs_by_ref[ref]
        return grant_of(job, self.class_ids, self.servers, by_rank=self._ranks)

    # --- whether one can start ------------------------------------------------------------------

    def may_start(self, visit: V) -> bool:
        """Returns whether a token is there for it, and its server would start it now."""
        if self.down or self.resting:
            return False
        kind, refused_on = self.kind_of(visit), visit.refused_on
        chosen = self.bucket.choose(self.joins(visit) if refused_on else kind.classes)
        if chosen == BLOCKED:
            return False
        return self._shares or not self._is_engaged(self.least_busy(chosen, refused_on))

    def seats(self, visit: V) -> bool:
        """Returns whether there is a token for it, and others before it at its server."""
        if self._shares or self.down or self.resting:
            return False
        chosen = self.bucket.choose(self.joins(visit))
        return chosen != BLOCKED and self._is_engaged(self.least_busy(chosen, visit.refused_on))

    def least_busy(self, kind: int, refused_on: tuple[int, ...] = ()) -> UnlikeServer[V]:
        """Returns the server that a job of this class goes to, one of `refused_on` only for want of
        others."""
        servers = self._taking[kind]
        if len(servers) == 1:
            return servers[0]
        if refused_on:
            servers = tuple(each for each in servers if each.number not in refused_on) or servers
        return min(servers, key=_order)

    def joins(self, visit: V) -> tuple[int, ...]:
        """Returns the classes that it may join now: of those of its type the ones with a server
        that takes jobs and has not refused it; all if there is none."""
        classes, refused_on = self.kind_of(visit).classes, visit.refused_on
        if not refused_on:
            return classes
        taking = self._taking
        return (
            tuple(
                kind
                for kind in classes
                if any(each.number not in refused_on for each in taking[kind])
            )
            or classes
        )

    def may_join(self, visit: V, kind: int) -> bool:
        """Returns whether this class is one of them."""
        return kind in self.joins(visit)

    def _is_engaged(self, server: UnlikeServer[V]) -> bool:
        return server.running > 0 or bool(server.line)

    # --- those that wait --------------------------------------------------------------------------

    def __iter__(self) -> Iterator[V]:
        """Returns those in their seats, then those that are blocked; each in the order in which
        they came."""
        seated = [one for server in self.servers for one in server.line.items()]
        yield from [visit for _, visit in sorted(seated, key=lambda one: one[0])]
        yield from self.blocked

    # --- estimates --------------------------------------------------------------------------------

    def own_load(
        self,
        visit: V,
        may_keep: bool,  # noqa: FBT001 - as `ServerPool`
        load: float,
        now_s: float,
        unreported: tuple[int, ...],
    ) -> OwnLoad:
        """Returns what concerns the servers that fit; N is what waits beyond one job for each."""
        fitting = self.kind_of(visit).fitting
        working = fitting.working
        return OwnLoad(
            max(0, fitting.ahead - (visit.place is not None)),
            max(1, working),
            may_keep and working > 0,
            fitting.service_s,
            fitting.departure_s,
            fitting.residual,
            load,
            visit.request.hops,
            now_s,
            unreported,
        )

    def stay_s(self, visit: V, now_s: float) -> float:
        fitting = self.kind_of(visit).fitting
        ahead, working = max(0, fitting.ahead), max(1, fitting.working)
        if not admission.tells_wait(ahead, working):
            return 0.0
        service_s, spread_s = fitting.service_s, fitting.spread_s
        stay_s = admission.stay_s(ahead, working, service_s, spread_s, self._delivery_s)
        return stay_s + max(self.rest_s(now_s), fitting.rest_s(now_s))

    def retry_after_s(self, visit: V, now_s: float) -> float:
        """Returns when about as many will have been served as are ahead now, and one more."""
        fitting = self.kind_of(visit).fitting
        served_s = (max(0, fitting.ahead) + 1) * fitting.departure_s
        return max(self.rest_s(now_s), fitting.rest_s(now_s)) + served_s
