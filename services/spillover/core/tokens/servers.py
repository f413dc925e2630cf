"""The pool of unlike servers: who gets which token, on which server, and when who waits starts.

Theory of operation. A job takes a token of the classes that its type may join: the longest
available (Comte, section III-C) or one of the least loaded class, by the pool's order. It runs on
the least busy server of that class. Under processor sharing (ps) it runs at once. One after another
(fcfs), it starts if that server is idle, and otherwise has its *seat* there: it waits with its
token. A job that finds no token is *blocked* (`waiting`), until one is released that fits it. Which
tokens there are is the bucket's business, what the servers do all together the sum of theirs.

A job that has failed may *cool*: it has left its server's clock, but not given back its token.

A popped visit starts (`occupy`) or has ended before the next `pop`: the token of its seat, if it
had one, is given back then.

Not here: what runs the jobs, where else they could go, what time it is (`now_s`).
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import Any, Generic

from spillover.core.pauses import Pauses
from spillover.core.tokens.answers import TypeAnswers
from spillover.core.tokens.bucket import Bucket
from spillover.core.tokens.fitting import Fitting
from spillover.core.tokens.jobs import Job, Kind, Layout, VisitPlace, loads_of
from spillover.core.tokens.server import UNLIMITED, UnlikeServer
from spillover.core.tokens.telling import Grant, grant_of, told
from spillover.core.tokens.waiting import V
from spillover.model.ids import ClusterId
from spillover.model.token_orders import LEAST_LOADED
from spillover.model.type_groups import TypeGroups
from spillover.model.unlike_servers import PS, UnlikeServers
from spillover.policy.overflow import admission
from spillover.policy.overflow.base import OwnLoad
from spillover.policy.tokens import BLOCKED, NONE

_order = attrgetter("order")


class TokenServers(Pauses, Generic[V]):
    """The pool (`core.overflow.pool.ServerPool`) of servers that are unlike. `service_s` is the
    first guess of the work of a job, in seconds at rate 1; `delivery_s` is how long an answer takes
    to its client afterwards.

    Jobs may outnumber servers under processor sharing: `total`, `busy` and `working` count servers,
    `jobs` counts jobs.
    """

    is_alike = False
    """Whether any server fits any visit."""
    counts_work = False
    has_seats = True
    lines = 1

    def __init__(
        self,
        pool: UnlikeServers,
        groups: TypeGroups,
        cluster: ClusterId,
        service_s: float,
        delivery_s: float,
        now_s: float,
    ) -> None:
        self.now_s = now_s
        """The time of what is handled. Set by the machine."""
        self.on_block = pool.on_block
        self.discipline, self.order = pool.discipline, pool.order
        self._shares = pool.discipline == PS
        self._ranks = pool.order == LEAST_LOADED  # not by release
        self._delivery_s = delivery_s
        self.class_ids = [each.id for each in pool.classes]
        limits = [(each.id, each.tokens or 0) for each in pool.classes]
        self.bucket = Bucket(limits, now_s, loads_of(pool) if self._ranks else None)
        self.down = False
        self.resting = False
        self.rest_until_s = math.inf
        self.stuck: set[int] = set()
        self.refusals = 0
        self.next_s = math.inf
        self.busy = 0
        """How many servers have a job, or one that cools."""
        self.jobs_by_ref: dict[int, Job[V]] = {}
        """Jobs that run, by the refs of their visits."""
        self.cooled: list[tuple[float, int, Job[V]]] = []
        """A heap of the jobs that cool: until when, and a number."""
        self._cooled = 0
        self._ends = 0
        self.seated = 0
        """How many visits wait in their seats."""
        self._seated_foreign = 0
        self._turned = False
        self._startable: dict[int, None] = {}
        """Servers at which one in a seat may be able to start."""
        self._popped: tuple[V, Job[V]] | None = None
        """The one that was popped last, and may not have started."""
        self._freed: Job[V] | None = None
        """The one that ended last."""
        self.answers = TypeAnswers()
        layout: Layout[V] = Layout(pool, groups, cluster, service_s, self.bucket, self)
        self.servers, self._of_class = layout.servers, layout.of_class
        self.total = len(layout.servers)
        # By class: its servers that take jobs.
        self._taking = [tuple(servers) for servers in layout.of_class]
        self.blocked = layout.blocked
        self.kinds, self._unserved = layout.kinds, layout.unserved
        self._fitting, self._all = layout.by_group, layout.all

    def kind_of(self, visit: V) -> Kind[V]:
        """Returns its type; one that no class takes where the pool does not serve it."""
        return self.kinds.get(visit.request.type, self._unserved)

    # --- all servers together -------------------------------------------------------------------

    @property
    def site_total(self) -> int:
        return self.total

    @property
    def site_busy(self) -> int:
        return self.busy

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
    def site_waiting(self) -> int:
        return self.waiting

    @property
    def site_foreign(self) -> int:
        return self.waiting_foreign

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

    def join(self, visit: V, *, first: bool = False) -> None:
        """Take a seat where `seats` says so; else wait for a token."""
        kind = self.kind_of(visit)
        number = self.blocked.join(kind.number, visit)
        visit.place = VisitPlace(number, kind)
        self._look_for(kind)
        self._seat_blocked()

    def leave(self, visit: V) -> None:
        """Wait no longer. The token of a seat may be for another: `pop` afterwards."""
        place: VisitPlace[V] = visit.place
        visit.place = None
        if place.job is None:
            self.blocked.leave(place.kind.number, place.number)
        else:
            job = self._take_seat(visit, place)
            self.bucket.give_back(job.token, job.ref, served=False, now_s=self.now_s)
            self._seat_blocked()

    def pop(self) -> V | None:
        """Take out the next one that can start now."""
        self._drop_popped()
        if self.down or self.resting:
            return None
        if not self._shares:
            self._seat_blocked()
            return self._pop_seated()
        visit = self._first_blocked()
        if visit is not None:
            self._unblock(visit)
            visit.place = None
        return visit

    def _drop_popped(self) -> None:
        """The one that was popped has ended, if it has not started."""
        if self._popped is not None:
            job, self._popped = self._popped[1], None
            self._startable[job.server] = None
            self.bucket.give_back(job.token, job.ref, served=False, now_s=self.now_s)

    def _look_for(self, kind: Kind[V]) -> None:
        """One more of this type waits, though perhaps there are tokens: nothing starts just now, or
        it has had another."""
        oldest = self.bucket.oldest
        self.bucket.released.update((each, None) for each in kind.classes if oldest[each] != NONE)

    def _first_blocked(self) -> V | None:
        """The first of those that a released token fits. Only what was released since nobody was
        found can fit anyone."""
        released = self.bucket.released
        if not self.blocked.count:
            released.clear()
            return None
        oldest = self.bucket.oldest
        for gone in [kind for kind in released if oldest[kind] == NONE]:
            del released[gone]
        visit = self.blocked.first(released, self.may_join)
        if visit is None:
            released.clear()
        return visit

    def _unblock(self, visit: V) -> None:
        place: VisitPlace[V] = visit.place
        self.blocked.leave(place.kind.number, place.number)

    def _seat_blocked(self) -> None:
        """Give seats to those that a released token fits."""
        if self._shares or self.down or self.resting:
            return
        while (visit := self._first_blocked()) is not None:
            self._unblock(visit)
            place: VisitPlace[V] = visit.place
            job = place.job = self._take(visit, place.kind)
            server = self.servers[job.server]
            server.line[place.number] = visit
            self.seated += 1
            self._seated_foreign += not visit.is_home
            if not server.running:
                self._startable[server.number] = None

    def _take_seat(self, visit: V, place: VisitPlace[V]) -> Job[V]:
        """The job of one that has a seat, which it leaves with its token."""
        job = place.job
        assert job is not None
        del self.servers[job.server].line[place.number]
        self.seated -= 1
        self._seated_foreign -= not visit.is_home
        return job

    def _unseat(self, visit: V) -> None:
        """Let one that has a seat be blocked, as it was before."""
        place: VisitPlace[V] = visit.place
        job = self._take_seat(visit, place)
        place.job = None
        self.blocked.put_back(place.kind.number, place.number, visit)
        self._look_for(place.kind)
        self.bucket.give_back(job.token, job.ref, served=False, now_s=self.now_s)

    def _pop_seated(self) -> V | None:
        while self._startable:
            server = self.servers[next(iter(self._startable))]
            del self._startable[server.number]
            if not server.running and server.line:
                visit = next(iter(server.line.values()))
                place: VisitPlace[V] = visit.place
                self._popped = visit, self._take_seat(visit, place)
                visit.place = None
                return visit
        return None

    def _take(self, visit: V, kind: Kind[V]) -> Job[V]:
        """A token for this visit, for which there is one."""
        bucket, ref, refused_on = self.bucket, visit.ref, visit.refused_on
        chosen = bucket.choose(self.joins(visit) if refused_on else kind.classes)
        server = self.least_busy(chosen, refused_on)
        rank = bucket.ranks[chosen]
        token = bucket.seize(chosen, ref)
        ranks = kind.look(bucket.ranks) if kind.look is not None else ()
        job = Job(ref, kind, token, server.number, rank, ranks, bucket.next_number, self.now_s)
        if refused_on:
            job.refused_on = refused_on
        return job

    # --- jobs start and end -----------------------------------------------------------------------

    def occupy(self, visit: V) -> int:
        """Returns the number of the server, by its place in the list."""
        popped = self._popped
        if popped is not None and popped[0] is visit:
            job, self._popped = popped[1], None
        else:
            job = self._take(visit, self.kinds[visit.request.type])
        self.jobs_by_ref[visit.ref] = job
        server = self.servers[job.server]
        if not server.running:
            self.busy += 1
        server.running += 1
        if self._shares:
            server.clock.add(visit.ref, self.now_s)
        return job.server

    def not_done(self, ref: int, *, failed: bool) -> None:
        """The work of this visit, whose server is not free yet, failed or was stopped."""
        self.jobs_by_ref[ref].end = failed

    def said(self, ref: int, how: str, problem: str | None) -> str:
        """Its work came to nothing by what runs it (`answers`). Returns the id of the server, which
        is not free yet."""
        job = self.jobs_by_ref[ref]
        self.answers.not_done(job.server, job.kind.number, how, problem)
        return self.servers[job.server].id

    def refused(self, visit: V) -> bool:
        """What ran the job of this visit, which was the last to end, has surely not done it: it
        goes to other servers first. Returns whether one takes jobs that has not refused it yet;
        else all may be tried again, that one last."""
        job = self._freed
        assert job is not None
        assert job.ref == visit.ref
        refused_on = visit.refused_on
        if job.server not in refused_on:
            visit.refused_on = refused_on = (*refused_on, job.server)
        taking = [each for kind in job.kind.classes for each in self._taking[kind]]
        if any(each.number not in refused_on for each in taking):
            return True
        visit.refused_on = (job.server,)
        return False

    def vacate(self, ref: int) -> None:
        self._give_back(self._take_off(ref))

    def cool(self, ref: int, until_s: float) -> None:
        """Its token comes back then: a job that fails at once must not draw more of them."""
        job = self._take_off(ref)
        self._cooled += 1
        heapq.heappush(self.cooled, (until_s, self._cooled, job))
        self._find_next()

    def _take_off(self, ref: int) -> Job[V]:
        """The job, which has ended: what that says of its server."""
        job = self._freed = self.jobs_by_ref.pop(ref)
        server = self.servers[job.server]
        if self._shares:
            job.work_s = server.clock.remove(ref, self.now_s)
        if job.end is None:
            if not server.health.is_calm:
                server.health.ended(self.now_s, False, 0.0)
            if server.allowance != UNLIMITED:
                grown = server.allowance + 1
                server.allowance = grown if grown < self.places(server.number) else UNLIMITED
            if self.answers:
                self.answers.done(job.server, job.kind.number)
        elif job.end:
            self._learn_failure(server)
        return job

    def _give_back(self, job: Job[V]) -> None:
        server = self.servers[job.server]
        server.running -= 1
        self._ends += 1
        server.idle_number = self._ends
        if not server.running:
            self.busy -= 1
            if server.line:
                self._startable[server.number] = None
        self.bucket.give_back(job.token, job.ref, job.end is None, self.now_s)

    def served(self, ref: int, service_s: float) -> None:
        """Learn what the job that ended last was worth."""
        job = self._freed
        if job is None or job.ref != ref:
            return
        work_s = job.work_s if self._shares else service_s * self.servers[job.server].rate
        job.kind.work.add(work_s)
        job.kind.fitting.work.add(work_s)
        self._all.work.add(work_s)

    # --- servers come and go ----------------------------------------------------------------------

    def server_changed(self, server: int, up: bool, now_s: float) -> None:
        """Its handler can run nothing for now, or can again: what is there again has not asked to
        be left alone."""
        self.now_s = now_s
        self.servers[server].is_down = not up
        if up:
            self.servers[server].rest_until_s = math.inf
        self._settle(self.servers[server])

    def rest(self, ref: int, until_s: float) -> bool:
        """All rest if no other server takes jobs, until the first comes back."""
        job, was_resting = self._freed, self.resting
        assert job is not None
        assert job.ref == ref
        server = self.servers[job.server]
        server.rest_until_s = max(until_s, server.rest_until_s) if server.is_resting else until_s
        self._settle(server)
        return self.resting and not was_resting

    def end_rest(self) -> None:
        for server in self.servers:
            if server.is_resting:
                server.rest_until_s = math.inf
                self._settle(server)

    def resize(self, _: int) -> bool:
        return False

    def set_tokens(self, limits: Mapping[str, int], servers_in: Mapping[str, bool]) -> None:
        """Changes limits, and which servers are in. `pop` has who can start by that."""
        for id_, limit in limits.items():
            self.bucket.set_limit(self.class_ids.index(id_), limit, self.now_s)
        for server in self.servers:
            if server.id in servers_in:
                server.is_out = not servers_in[server.id]
                self._settle(server)

    def has_turned(self) -> bool:
        turned, self._turned = self._turned, False
        return turned

    def _learn_failure(self, server: UnlikeServer[V]) -> None:
        """The last one that takes jobs of some type goes on, whatever it does: whether the cluster
        fails is not for the pool to say."""
        others_by_group = [each.others(server) for each in self._fitting if server in each]
        rivals = {each.number: each for others in others_by_group for each in others}.values()
        if not rivals:
            return
        now_s = self.now_s
        usual = sum(each.health.failed_share(now_s) for each in rivals) / len(rivals)
        fails = server.health.ended(now_s, True, usual)
        is_spared = all(any(not each.is_closed for each in others) for others in others_by_group)
        if fails and not server.is_closed and is_spared:
            server.health.degrade(now_s)
            self._settle(server)

    def _settle(self, server: UnlikeServer[V]) -> None:
        """What a server is now has changed: so may what it takes."""
        is_closed, was_closed = server.state != "up", server.is_closed
        server.is_closed = is_closed
        self._find_next()
        self._judge_rest()
        if is_closed is was_closed:
            self._refresh()  # one that rested may be down now
            return
        self._turned = True
        for kind in server.classes:
            was_open = bool(self._taking[kind])
            self._taking[kind] = tuple(one for one in self._of_class[kind] if not one.is_closed)
            if was_open and not self._taking[kind]:
                self.bucket.close(kind)
            elif self._taking[kind] and not was_open:
                self.bucket.open(kind, self.now_s)
        if not is_closed:
            server.allowance = 1 if self.places(server.number) > 1 else UNLIMITED
        self._refresh()
        for visit in list(server.line.values()):
            self._unseat(visit)
        if self.blocked.count:  # what was refused here or there may have another choice now
            for served in self.kinds.values():
                self._look_for(served)
        self._seat_blocked()

    def _judge_rest(self) -> None:
        """All rest while none takes jobs and one will by itself."""
        self.resting, self.rest_until_s = False, math.inf
        if any(each.state == "resting" for each in self.servers):
            self.resting = all(each.is_closed for each in self.servers)
        if self.resting:
            self.rest_until_s = min(each.back_s for each in self.servers)

    def _refresh(self) -> None:
        for fitting in (self._all, *self._fitting):
            fitting.refresh()

    # --- pauses -----------------------------------------------------------------------------------

    def wake(self, now_s: float) -> bool:
        """Free what has cooled, try degraded servers again, and end rests that are over. Whether
        that of all was one."""
        self.now_s, was_resting = now_s, self.resting
        while self.cooled and self.cooled[0][0] <= now_s:
            self._give_back(heapq.heappop(self.cooled)[2])
        for server in self.servers:
            if server.health.again_s <= now_s:
                server.health.retry()
                self._settle(server)
            if server.rest_until_s <= now_s:
                server.rest_until_s = math.inf
                self._settle(server)
                self._turned = True
        self._find_next()
        return was_resting and not self.resting

    def _find_next(self) -> None:
        cooled_s = self.cooled[0][0] if self.cooled else math.inf
        again_s = min(min(each.health.again_s, each.rest_until_s) for each in self.servers)
        self.next_s = min(cooled_s, again_s)

    # --- estimates --------------------------------------------------------------------------------

    def own_load(
        self,
        visit: V,
        may_keep: bool,
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

    # --- what is told, and what must hold ---------------------------------------------------------

    def told(self) -> dict[str, Any]:
        """Returns the state of the pool as users read it (/state)."""
        return self.told_here()

    def told_here(self) -> dict[str, Any]:
        """Returns the state of the pool at this node, as metrics tell it."""
        return told(self)

    def check(self) -> None:
        """Raises AssertionError where an invariant does not hold after an event."""
        bucket = self.bucket
        bucket.check()
        self.blocked.check()
        cooled = [job for _, _, job in self.cooled]
        seated = [visit.place.job for server in self.servers for visit in server.line.values()]
        assert len(seated) == self.seated
        on_servers = [*self.jobs_by_ref.values(), *cooled]
        holders = [*on_servers, *seated]
        assert all(job.token.holder == job.ref for job in holders), "a job without its token"
        assert len({id(job.token) for job in holders}) == len(holders), "a token with two jobs"
        held = sum(bucket.counts(kind)["held"] for kind in range(len(self.class_ids)))
        assert held == len(holders), (held, len(holders))
        running = Counter(job.server for job in on_servers)
        for server in self.servers:
            assert server.running == running[server.number], server.id
            assert self.discipline != PS or not server.line, "seats under processor sharing"
            assert self.discipline == PS or server.running <= 1, "two at a time"
            assert not (server.is_closed and server.line), (
                "some wait at a server that takes nothing"
            )
            assert server.is_closed is (server.state != "up"), server.id
        for job in holders:
            assert job.token.kind in job.kind.classes, "a token that the type may not take"
            assert job.token.kind in self.servers[job.server].classes, "a server not of the class"
        assert self.busy == len(running)
        assert self.waiting_foreign == sum(not visit.is_home for visit in self)
        if self.down or self.resting:
            return
        for kind in self.kinds.values():
            blocked = self.blocked.lines[kind.number].visits.values()
            joins = {self.joins(visit) for visit in blocked}
            assert all(bucket.choose(of) == BLOCKED for of in joins), "blocked beside a token"
        for server in self.servers:
            assert server.running or not server.line, "a server idles while some wait at it"
