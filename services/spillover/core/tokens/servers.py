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
from collections.abc import Mapping
from typing import Any

from spillover.core.tokens.answers import TypeAnswers
from spillover.core.tokens.bucket import Bucket
from spillover.core.tokens.check import check_pool
from spillover.core.tokens.jobs import Job
from spillover.core.tokens.layout import Layout, loads_of
from spillover.core.tokens.lines import TokenLines
from spillover.core.tokens.server import UNLIMITED, UnlikeServer
from spillover.core.tokens.telling import told
from spillover.core.tokens.waiting import V
from spillover.model.ids import ClusterId
from spillover.model.token_orders import LEAST_LOADED
from spillover.model.type_groups import TypeGroups
from spillover.model.unlike_servers import PS, UnlikeServers


class TokenServers(TokenLines[V]):
    """The pool (`core.overflow.pool.ServerPool`) of servers that are unlike. `service_s` is the
    first guess of the work of a job, in seconds at rate 1; `delivery_s` is how long an answer takes
    to its client afterwards.

    Jobs may outnumber servers under processor sharing: `total`, `busy` and `working` count servers,
    `jobs` counts jobs.
    """

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
        self._ranks = pool.order == LEAST_LOADED
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
        self.jobs_by_ref: dict[int, Job[V]] = {}
        self.cooled: list[tuple[float, int, Job[V]]] = []
        self._cooled = 0
        self._ends = 0
        self.seated = 0
        self._seated_foreign = 0
        self._turned = False
        self._startable = {}
        self._popped = None
        self._freed: Job[V] | None = None
        """The one that ended last."""
        self.answers = TypeAnswers()
        layout: Layout[V] = Layout(pool, groups, cluster, service_s, self.bucket, self)
        self.servers, self._of_class = layout.servers, layout.of_class
        self.total = len(layout.servers)
        self._taking = [tuple(servers) for servers in layout.of_class]
        self.blocked = layout.blocked
        self.kinds, self._unserved = layout.kinds, layout.unserved
        self._fitting, self._all = layout.by_group, layout.all

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

    def set_limits(self, limits: Mapping[str, int]) -> None:
        """So many tokens from now on, by the id of the class. `pop` has who can start by that."""
        for id_, limit in limits.items():
            self.bucket.set_limit(self.class_ids.index(id_), limit, self.now_s)

    def put_in(self, servers_in: Mapping[str, bool]) -> None:
        """Servers, by id, are in (True) or out. `pop` has who can start by that."""
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

    def told(self) -> dict[str, Any]:
        """Returns the state of the pool as users read it (/state)."""
        return told(self)

    def check(self) -> None:
        check_pool(self)
