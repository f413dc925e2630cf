"""What must hold at a cluster with unlike servers, after every event: looked at from outside.

- Conservation: of each class, available + held + out tokens are its limit and those that retire;
  the limit is what the topology and the operator have said, or the share of one node of several. A
  token is held by one job.
- Compatibility: a job runs on a server of its token's class, which its type may join; never on one
  that is out or down, or takes nothing by itself. No job comes from a neighbor to a cluster that
  does not serve its type.
- A job that is started as it comes takes the longest available of the tokens that fit it.
- No job waits while a token that fits it is available, other than one for a server that surely
  has not done it, as long as another one takes jobs.
- One job at a time on a server under `fcfs`, at most as many as there are tokens under `ps`.

That jobs of one type start in the order in which they queued is `checkers`' business.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from spillover.core.overflow import events as ev
from spillover.core.overflow.pools import site_servers
from spillover.core.tokens.servers import TokenServers
from spillover.model.unlike_servers import FCFS, UnlikeServers


class _Running(NamedTuple):
    """One job that has been started and whose end has not been told."""

    class_id: str
    token: str
    server: str


class PoolChecker:
    """Checks one life of one cluster. What it finds wrong is said in words."""

    def __init__(self, pool: UnlikeServers, servers: TokenServers[Any]) -> None:
        self._looked_at = servers
        self._is_site = site_servers(servers) is not None
        self._pool = pool
        self._joins = {kind.id: kind.classes for kind in pool.types}
        self._servers_of = {each.id: each.servers for each in pool.classes}
        self._limits = {each.id: each.tokens for each in pool.classes}
        self._shut: set[tuple[str, str]] = set()
        """Servers that are down or out, with which of the two."""
        self._running: dict[int, _Running] = {}
        self._refused_on: dict[int, set[int]] = {}
        """The numbers of servers that surely have not done a job, by ref."""
        self._oldest: dict[str, int] = {}
        """The number of each class's longest available token before the event."""
        self._ranks: dict[str, float] = {}
        """The rank of each class before the event: the smallest is to be taken."""

    def line_of(self, kind: str) -> str | None:
        """Returns the line in which jobs of this type start in order; None where servers have lines
        of their own."""
        servers = {one for each in self._joins.get(kind, ()) for one in self._servers_of[each]}
        return None if self._pool.discipline == FCFS and len(servers) > 1 else kind

    def before(self, event: Any) -> Iterator[str]:
        """Take note of what the cluster is told."""
        match event:
            case ev.Arrived():
                servers = self._looked_at
                self._oldest = dict(zip(servers.class_ids, servers.bucket.oldest, strict=True))
                self._ranks = dict(zip(servers.class_ids, servers.bucket.ranks, strict=True))
                if event.origin != ev.HOME and event.request.type not in self._joins:
                    yield f"{event.request.id} is of a type that is not served here"
            case ev.TokensSet() if not self._is_site:  # else all nodes go by it with the next view
                self._limits.update(event.limits)
                for server, is_in in event.servers_in.items():
                    self._shut_or_open("out", server, is_open=is_in)
            case ev.ServersDown(server=int(number)):
                self._shut_or_open("down", self._pool.servers[number].id, is_open=False)
            case ev.ServersUp(server=int(number)):
                self._shut_or_open("down", self._pool.servers[number].id, is_open=True)

    def _shut_or_open(self, why: str, server: str, *, is_open: bool) -> None:
        (self._shut.discard if is_open else self._shut.add)((why, server))

    def after(self, event: Any, commands: list[Any]) -> Iterator[str]:
        """Look at what has come of it."""
        servers = self._looked_at
        if isinstance(event, ev.ServiceEnded | ev.NotStarted):
            one = self._running.pop(event.ref, None)
            if one is not None and type(event) is ev.NotStarted and event.refused:
                number = [each.id for each in self._pool.servers].index(one.server)
                self._refused_on.setdefault(event.ref, set()).add(number)
        for command in commands:
            if type(command) is ev.Start:
                yield from self._started(event, command)
            elif type(command) in (ev.Reply, ev.Refuse):
                self._refused_on.pop(command.ref, None)
        yield from self._tokens()
        if not (servers.down or servers.resting):
            yield from self._waiting()

    def _started(self, event: Any, command: ev.Start) -> Iterator[str]:
        servers = self._looked_at
        name, classes = command.request.id, self._joins.get(command.request.type, ())
        job = servers.jobs_by_ref[command.ref]
        class_id, server = servers.class_ids[job.token.kind], self._pool.servers[command.server].id
        one = _Running(class_id, job.token.id, server)
        if class_id not in classes:
            yield f"{name} has a token of {class_id}, which its type may not join"
        if server not in self._servers_of[class_id]:
            yield f"{name} runs on {server}, which is not of its class {class_id}"
        for why in self._why_closed(command.server):
            yield f"{name} runs on {server}, which is {why}"
        others = self._running.values()
        if any(other.token == one.token for other in others):
            yield f"{name} has a token that another job has: {one.token}"
        if self._pool.discipline == FCFS and any(other.server == server for other in others):
            yield f"{name} runs on {server} beside another job"
        if isinstance(event, ev.Arrived) and event.ref == command.ref:
            first, longest = min(self._ranks[each] for each in classes), self._oldest[class_id]
            if self._ranks[class_id] != first:
                yield f"{name} has a token of rank {self._ranks[class_id]}, {first} is there"
            if job.token.number != longest:
                yield f"{name} has token {job.token.number}, {longest} is there for longer"
        self._running[command.ref] = one

    def _why_closed(self, number: int) -> list[str]:
        told = [
            why for why in ("out", "down") if (why, self._pool.servers[number].id) in self._shut
        ]
        state = self._looked_at.servers[number].state
        return told if state == "up" else [*told, state]

    def _without(self, left_out: set[str], classes: tuple[str, ...]) -> tuple[str, ...]:
        """Those of the classes with a server that is up, and none of these; all for want of any."""
        up = {each.id for each in self._looked_at.servers if each.state == "up"} - left_out
        return tuple(one for one in classes if up.intersection(self._servers_of[one])) or classes

    def _tokens(self) -> Iterator[str]:
        servers = self._looked_at
        running = Counter(one.class_id for one in self._running.values())
        held = 0
        for kind, class_id in enumerate(servers.class_ids):
            counts = servers.bucket.counts(kind)
            held += counts["held"]
            there = counts["available"] + counts["held"] + counts["out"]
            if not self._is_site and counts["limit"] != self._limits[class_id]:
                yield f"class {class_id} has a limit of {counts['limit']}, not of what was said"
            if there != counts["limit"] + counts["retiring"]:
                yield f"a token of class {class_id} is lost or doubled: {counts}"
            if counts["held"] < running[class_id]:
                yield f"of class {class_id} more jobs run than have tokens: {counts}"
        engaged = len(self._running) + servers.seated + servers.cooling
        if held != engaged:
            yield f"{held} tokens are held by {engaged} jobs"

    def _waiting(self) -> Iterator[str]:
        servers = self._looked_at
        available = {
            class_id
            for kind, class_id in enumerate(servers.class_ids)
            if servers.bucket.available_now(kind)
        }
        for visit in servers:
            place, classes = visit.place, self._joins.get(visit.request.type, ())
            if visit.refused_on:
                if not self._refused_on.get(visit.ref, set()).issuperset(visit.refused_on):
                    yield f"{visit.request.id} goes without servers that have not refused it"
                left_out = {self._pool.servers[number].id for number in visit.refused_on}
                classes = self._without(left_out, classes)
            if place.job is None and not available.isdisjoint(classes):
                yield f"{visit.request.id} waits beside an available token"
            if place.job is not None and not servers.servers[place.job.server].running:
                yield f"{visit.request.id} waits at a server that has nothing to do"
