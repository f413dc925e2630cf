"""What must hold in every run, whatever goes wrong: checked by looking on, apart from the traffic.

- Conservation: every request has exactly one ending, and both balances of every ledger hold after
  every event; once all has settled, no cluster holds anything.
- Work without a key starts at most once, in the whole federation and over all lives.
- Work with a key gets exactly one definite answer if its home lives: never `unknown`, and if it is
  `done`, it has been started.
- What is refused or cannot be in time never starts.
- A visit whose answer has begun is neither started nor handed on again, nor refused; one whose
  answer breaks off is never done, and whatever is done has ended well somewhere.
- Requests that queued at a cluster start there in the order in which they queued; where servers
  are unlike, those of one type do. What else must hold there is in `pool_checker`. Only what has
  waited before, and comes back, may stand first.
- The nodes of a cluster have no more servers than it has, and believe in one view, unless one has
  been cut off or has stood still.
- No request takes more hops than its budget, or visits a cluster twice.
- Liveness: what clients of living homes wait for comes to an end within `settle_s` of the last
  disturbance, and if all is healed, neighbors accept from each other again, degraded ones aside.

A checker knows the machines' events, commands and register, and none of their rules.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from spillover.core.overflow import events as ev
from spillover.core.overflow.machine import NodeMachine
from spillover.core.overflow.pools import site_servers, unlike_servers
from spillover.core.overflow.visit import Visit, VisitState
from spillover.model.errors import RunError
from spillover.model.ids import ClusterId
from spillover.model.request import Answer, Outcome, Request
from spillover.sim.overflow.faulty_cluster import FaultyCluster, nodes_of
from spillover.sim.overflow.federation import node_name
from spillover.sim.overflow.pool_checker import PoolChecker

CHECK_EVERY = 64
"""Events of a cluster between two complete checks of its machine, which count all that it holds."""

SETTLE_S = 16.0
"""A cut is given up after 5 s, a silent neighbor after 5 s and two delays, and what is decided
again may meet the next one."""

ROUNDING_S = 1e-6

_PLACING = (
    *(ev.Arrived, ev.ForwardRefused, ev.ForwardLost, ev.ForwardAnswered),
    *(ev.NotStarted, ev.ServiceEnded),
)
"""After these a visit may stand in the queue that did not before."""


_DECIDED = (ev.Start, ev.Forward, ev.Began)
"""What may be said of a visit only before its answer begins."""


class Broken(RunError):
    """Something that must hold does not: what, where, and how to see it again."""


def _stands_first(cluster: FaultyCluster, visit: Visit) -> bool:
    """Whether it is the first in the queue: of all that wait, where servers are alike."""
    return next(iter(cluster.machine.servers), None) is visit


@dataclass(slots=True)
class Client:
    """One request from outside, and what its client was told."""

    request: Request
    home: ClusterId
    life: int
    node: int = 1
    told: int = 0


class _Life:
    """What was seen of one life of one cluster."""

    def __init__(self, cluster: FaultyCluster) -> None:
        self.number = cluster.life
        self.events = 0
        self.answering: set[int] = set()
        """Refs of visits whose answer has begun."""
        self.tickets = 0
        pool, servers = cluster.pool, unlike_servers(cluster.machine.servers)
        self.pool = None if pool is None or servers is None else PoolChecker(pool, servers)
        self.lines: defaultdict[str | None, deque[tuple[int, int]]] = defaultdict(deque)
        """Tickets and refs in the order in which they queued, those that have left included; by
        type where servers are unlike."""
        self.places: dict[int, int] = {}
        """The ticket of each visit, by ref: the newest if it queued again."""
        self.queued: set[int] = set()
        """Refs that have stood in the queue."""
        self.requests: dict[int, tuple[Request, float, bool]] = {}
        """What came, until when, and whether from a client, by ref."""

    def line_of(self, kind: str) -> str | None:
        """Returns the key of the line in which requests of this type stand; None without one."""
        return "" if self.pool is None else self.pool.line_of(kind)

    def queue(self, visit: Visit, *, stands_first: bool) -> None:
        """A visit stands in its line, if there is one; one that has stood there before, perhaps
        first."""
        ref, line = visit.ref, self.line_of(visit.request.type)
        if line is None:
            return
        self.tickets += 1
        place = self.tickets, ref
        if ref in self.queued and stands_first:
            self.lines[line].appendleft(place)
        else:
            self.lines[line].append(place)
        self.places[ref] = self.tickets
        self.queued.add(ref)


class Checker:
    """Looks on at all clusters of a run, and at what clients are told. `replay` is the command
    that repeats the run; `seed` is told in any case. Each cluster's machine checks itself `every`
    so many events. Raises Broken at once."""

    def __init__(
        self, seed: int, max_hops: int, *, replay: str = "", every: int = CHECK_EVERY
    ) -> None:
        self._seed = seed
        self._every = every
        self._max_hops = max_hops
        self._replay = replay
        self._lives: dict[str, _Life] = {}
        self._clients: dict[str, Client] = {}
        self.starts: Counter[str] = Counter()
        self.whole: set[str] = set()
        """What a service has ended well with."""
        self.waiting = 0
        """Clients that have been told nothing yet."""
        self._doubtful: set[ClusterId] = set()
        """Clusters whose nodes may have been taken for dead although they are not."""
        self.seen: Counter[str] = Counter()
        """How often each kind of event was handled."""

    # --- clients ------------------------------------------------------------------------------

    def submitted(self, request: Request, home: FaultyCluster) -> Client:
        """Takes note that a client has sent a request to a home that lives. Names are given once in
        a run.
        """
        client = self._clients[request.id] = Client(request, home.id, home.life, home.node)
        self.waiting += 1
        return client

    def answered(self, client: Client, answer: Answer, now_s: float) -> None:
        name = client.request.id
        self._told(client, now_s)
        if len(set(answer.path)) != len(answer.path) or answer.path[0] != client.home:
            self._fail(f"{name} went {'-'.join(answer.path)} from {client.home}", now_s)
        if len(answer.path) - 1 > self._max_hops:
            hops = len(answer.path) - 1
            self._fail(f"{name} took {hops} hops, at most {self._max_hops} allowed", now_s)
        if answer.outcome is Outcome.UNKNOWN and client.request.keyed:
            self._fail(f"{name} has a key and a home that lives, yet ended unknown", now_s)
        if answer.outcome is Outcome.DONE and not self.starts[name]:
            self._fail(f"{name} is said to be done and never started", now_s)
        if answer.outcome is Outcome.DONE and name not in self.whole:
            self._fail(f"{name} is said to be done and never ended well", now_s)

    def refused(self, client: Client, now_s: float) -> None:
        self._told(client, now_s)
        if self.starts[client.request.id]:
            self._fail(f"{client.request.id} was refused and has been started", now_s)

    def lost(self, client: Client, now_s: float) -> None:
        """Its home has died: all that can be known of it."""
        self._told(client, now_s)

    def _told(self, client: Client, now_s: float) -> None:
        client.told += 1
        self.waiting -= 1
        if client.told > 1:
            self._fail(f"{client.request.id} has come to an end twice", now_s)

    # --- machines -----------------------------------------------------------------------------

    def before(self, cluster: FaultyCluster, event: Any, now_s: float) -> None:
        """Look before an event is handled (`faulty_cluster.Watch`)."""
        self.seen[type(event).__name__] += 1
        if type(event) is ev.NotStarted:
            life = self._life_of(cluster)
            if (known := life.requests.get(event.ref)) and event.ref not in life.answering:
                self.starts[known[0].id] -= 1  # what was refused has not run
        elif type(event) is ev.ServiceEnded and event.outcome is Outcome.DONE:
            if (known := self._life_of(cluster).requests.get(event.ref)) is not None:
                self.whole.add(known[0].id)
        elif type(event) is ev.Arrived:
            path = event.request.path
            if cluster.id in path:
                self._fail(f"{event.request.id} is here again", now_s, cluster)
            if len(path) > self._max_hops:
                self._fail(f"{event.request.id} has come {len(path)} hops", now_s, cluster)
            is_home = event.origin == ev.HOME
            life = self._life_of(cluster)
            life.requests[event.ref] = (event.request, event.deadline_s, is_home)
        if (pool := self._life_of(cluster).pool) is not None:
            for what in pool.before(event):
                self._fail(what, now_s, cluster)

    def after(self, cluster: FaultyCluster, event: Any, now_s: float, commands: list[Any]) -> None:
        """Look at what an event has come to (`faulty_cluster.Watch`)."""
        life = self._life_of(cluster)
        for command in commands:
            kind = type(command)
            if isinstance(command, _DECIDED) and command.ref in life.answering:
                self._fail(f"visit {command.ref} answers, and is decided again", now_s, cluster)
            if kind is ev.Start:
                self._started(cluster, life, command, now_s)
            elif kind is ev.Began:
                life.answering.add(command.ref)
            elif kind is ev.Reply or kind is ev.Refuse:
                self._ended(cluster, life, command, event, now_s)
        if isinstance(event, _PLACING):
            visit = cluster.machine.register.visits.get(event.ref)
            if visit is not None and visit.state is VisitState.QUEUED:
                life.queue(visit, stands_first=_stands_first(cluster, visit))
        if life.pool is not None:
            for what in life.pool.after(event, commands):
                self._fail(what, now_s, cluster)
        life.events += 1
        self._check_machine(cluster, now_s, complete=life.events % self._every == 0)

    def _life_of(self, cluster: FaultyCluster) -> _Life:
        life = self._lives.get(cluster.name)
        if life is None or life.number != cluster.life:
            life = self._lives[cluster.name] = _Life(cluster)
        return life

    def _started(
        self, cluster: FaultyCluster, life: _Life, command: ev.Start, now_s: float
    ) -> None:
        request = command.request
        self.starts[request.id] += 1
        if not request.keyed and self.starts[request.id] > 1:
            self._fail(f"{request.id} has no key and is started again", now_s, cluster)
        if command.deadline_s <= now_s:
            self._fail(f"{request.id} is started after its deadline", now_s, cluster)
        if command.ref in life.places:
            self._leave_line(cluster, life, command, now_s)

    def _leave_line(
        self, cluster: FaultyCluster, life: _Life, command: ev.Start, now_s: float
    ) -> None:
        """Whoever stood before this one must have left the queue, or go without its server."""
        visits, ref = cluster.machine.register.visits, command.ref
        line = life.lines[life.line_of(command.request.type)]
        others = []
        while line:
            ticket, first = line.popleft()
            if life.places.get(first) != ticket:
                continue  # it left, and queued again later
            if first == ref:
                del life.places[first]
                break
            visit = visits.get(first)
            waits = visit is not None and visit.state is VisitState.QUEUED
            if waits and command.server in visits[first].refused_on:
                others.append((ticket, first))
                continue
            del life.places[first]
            if waits:
                late = visits[ref].request.id if ref in visits else ref
                what = f"{late} is started before {visits[first].request.id}, which queued earlier"
                self._fail(what, now_s, cluster)
        line.extendleft(reversed(others))

    def _ended(
        self,
        cluster: FaultyCluster,
        life: _Life,
        command: ev.Reply | ev.Refuse,
        event: Any,
        now_s: float,
    ) -> None:
        known = life.requests.pop(command.ref, None)
        if known is None:
            self._fail(f"visit {command.ref} is answered twice, or never came", now_s, cluster)
            return
        request, deadline_s, is_home = known
        if command.ref in life.answering:
            life.answering.remove(command.ref)
            self._check_end_of_answer(cluster, request, command, event, now_s)
            return
        if type(command) is ev.Reply and is_home and command.answer.outcome is Outcome.DONE:
            at_s = now_s + command.delay_s
            if at_s > deadline_s + ROUNDING_S:
                late_s = at_s - deadline_s
                self._fail(f"{request.id} is done {late_s:g} s too late", now_s, cluster)

    def _check_end_of_answer(
        self,
        cluster: FaultyCluster,
        request: Request,
        command: ev.Reply | ev.Refuse,
        event: Any,
        now_s: float,
    ) -> None:
        """Check the end of an answer that has begun, which the deadline does not bound any more."""
        is_whole = isinstance(event, ev.ServiceEnded | ev.ForwardAnswered)
        if isinstance(command, ev.Refuse):
            self._fail(f"{request.id} is refused although it answers", now_s, cluster)
        elif command.answer.outcome is Outcome.DONE and not is_whole:
            self._fail(f"{request.id} is done although it broke off", now_s, cluster)

    def _check_machine(self, cluster: FaultyCluster, now_s: float, *, complete: bool) -> None:
        machine = cluster.machine
        if cluster.siblings:
            self._check_site(cluster, now_s)
        if machine.ledger.imbalance():
            self._fail(f"the ledger is off: {machine.ledger.as_dict()}", now_s, cluster)
        if complete:
            try:
                machine.check()
            except AssertionError as error:
                self._fail(f"the machine contradicts itself: {error}", now_s, cluster)

    def _check_site(self, node: FaultyCluster, now_s: float) -> None:
        """Check that the nodes of a site have no more servers than it has, and believe in one view,
        if none of them has been taken for dead that was not."""
        nodes = node.faulty_nodes
        self._doubtful |= {node.id for one in nodes if one.paused or one.to_siblings.cut}
        pools = [site_servers(one.machine.servers) for one in nodes if one.alive]
        sites = [pool.siblings for pool in pools if pool is not None]
        views = {one.view for one in sites if one.is_settled}
        # Each node goes by another word of operators until the next view.
        classes = zip(*[one.own.classes for one in sites], strict=True)
        exceeds = any(
            sum(each.share for each in shares) > max(each.servers_most for each in shares)
            for shares in classes
        )
        if node.id not in self._doubtful and (exceeds or len(views) > 1):
            what = f"the shares are {[one.own.by_class for one in sites]}, in views {sorted(views)}"
            self._fail(what, now_s, node)

    # --- the end ------------------------------------------------------------------------------

    def outstanding(self, clusters: Iterable[FaultyCluster]) -> int:
        """Visits at clusters that can do something about them."""
        return sum(
            len(cluster.machine.register.visits)
            for cluster in clusters
            if cluster.alive and not cluster.paused
        )

    def settled(
        self, clusters: Mapping[ClusterId, FaultyCluster], now_s: float, *, healed: bool
    ) -> None:
        """Time enough has passed since the last disturbance."""
        nodes = {node.name: node for node in nodes_of(clusters)}
        for client in self._clients.values():
            home = nodes[node_name(client.home, client.node)]
            lives = home.alive and not home.paused and home.life == client.life
            if lives and not client.told:
                self._fail(f"{client.request.id} has had no answer", now_s, home)
        for cluster in nodes.values():
            if not cluster.alive or cluster.paused:
                continue
            machine = cluster.machine
            self._check_machine(cluster, now_s, complete=True)
            if machine.register.visits:
                self._fail(f"something is left: {machine.ledger.as_dict()}", now_s, cluster)
            if healed and not all(is_used(machine)):
                self._fail("not every neighbor is known to accept", now_s, cluster)

    def _fail(self, what: str, now_s: float, cluster: FaultyCluster | None = None) -> None:
        where = f" at cluster {cluster.name}" if cluster is not None else ""
        again = f"; replay: {self._replay}" if self._replay else ""
        raise Broken(f"seed {self._seed}, {now_s:.6f} s{where}: {what}{again}")


def is_used(machine: NodeMachine) -> list[bool]:
    """Returns whether each neighbor accepts. One that has failed and has had no work since, which
    would tell, may stay degraded."""
    return [neighbor.accepting or neighbor.degraded for neighbor in machine.neighbors]
