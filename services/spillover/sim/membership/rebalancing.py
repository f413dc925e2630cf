"""Clients that follow a changing list of servers: how many move, and how even it leaves them.

Shraer & Reed, "Load-Balancing Clients-Server Connections During Membership Change", whose rules,
and ours, are in `policy.membership`; here are the clients that apply them, all at once. Failing
servers and the time that moves take are not here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

from spillover.model.errors import InputError
from spillover.policy.leases import minimum_moves
from spillover.policy.membership import (
    choose_baseline,
    choose_probabilistic,
    choose_stratified,
    even_start,
    hash_point,
    successor,
)
from spillover.sim.engine.world import stream

RULES = ("probabilistic", "stratified", "baseline", "consistent-hash")
STARTS = ("balanced", "random")


@dataclass(frozen=True, slots=True)
class Change:
    """From one list to the next, as the choosers see it: servers by place."""

    before: tuple[str, ...]
    """The survivors in the order of their names, then those that went in theirs."""
    after: tuple[str, ...]
    """The survivors in the same order, then the new ones in theirs."""
    kept: int

    @property
    def gone(self) -> int:
        return len(self.before) - self.kept

    @property
    def added(self) -> int:
        return len(self.after) - self.kept


@dataclass(frozen=True, slots=True)
class Step:
    """The state after a change."""

    servers: tuple[str, ...]
    moved: int
    """Clients that are now on another server."""
    moved_min: int
    """The fewest moves to an even state from the one before, see `least_moves`."""
    clients: dict[str, int]

    @property
    def mean(self) -> float:
        return sum(self.clients.values()) / len(self.servers)

    def as_dict(self) -> dict[str, Any]:
        """One of `steps` in contract section 3."""
        return {
            "servers": list(self.servers),
            "moved": self.moved,
            "moved_min": self.moved_min,
            "clients": dict(self.clients),
            "max_over_mean": max(self.clients.values()) / self.mean,
            "min_over_mean": min(self.clients.values()) / self.mean,
        }


def rebalance(
    clients: int,
    lists: Sequence[Sequence[str]],
    *,
    rule: str = "probabilistic",
    start: str = "balanced",
    virtual_nodes: int = 1,
    seed: int = 1,
    on_progress: Callable[[int], None] | None = None,
) -> list[Step]:
    """Let `clients` clients follow the `lists`, of which the first is the one they start with.

    `start` is "balanced", the counts differing by one
    at most, or "random", every client anywhere; with "consistent-hash" the circle alone decides.
    `virtual_nodes` is how often that rule hashes each server. `on_progress` is told how many
    changes are done. Raises InputError for a list that is empty or names a server twice, no client,
    or an unknown name.
    """
    _check(clients, rule, start, virtual_nodes)
    named = [_checked(servers, number) for number, servers in enumerate(lists)]
    crowd = _crowd_of(rule, clients, named[0], seed, start, virtual_nodes)
    steps = []
    for number, (before, after) in enumerate(pairwise(named), start=1):
        counts = _counts(crowd.servers, before)
        moved = crowd.follow(change_between(before, after))
        after_counts = _counts(crowd.servers, after)
        steps.append(Step(after, moved, least_moves(counts, after), after_counts))
        if on_progress is not None:
            on_progress(number)
    return steps


def change_between(before: Iterable[str], after: Iterable[str]) -> Change:
    """Returns the places of the servers of two lists; the same whatever order the lists are in."""
    old, new = set(before), set(after)
    kept = sorted(old & new)
    return Change((*kept, *sorted(old - new)), (*kept, *sorted(new - old)), len(kept))


def least_moves(counts: dict[str, int], servers: Sequence[str]) -> int:
    """Returns the fewest clients that have to move so that those `servers` have counts that differ
    by one at most, from `counts` at the servers before.

    All of the servers that went, and of survivors what exceeds their share, the larger shares going
    to those that have most already. (`policy.leases` counts partitions the same way.)
    """
    everyone = [*servers, *(server for server in counts if server not in servers)]
    held = [counts.get(server, 0) for server in everyone]
    return minimum_moves(held, [place < len(servers) for place in range(len(everyone))])


class _Crowd(Protocol):
    """All clients under one rule."""

    servers: list[str]
    """By client."""

    def follow(self, change: Change) -> int:
        """Each client decides; how many moved."""


class _Coins:
    """Clients that draw a number of their own for each change."""

    def __init__(
        self,
        choose: Callable[[int, int, int, int, float], int],
        servers: list[str],
        seed: int,
    ) -> None:
        self.servers = servers
        self._choose = choose
        self._random = stream(seed, "draws").random

    def follow(self, change: Change) -> int:
        places = {server: place for place, server in enumerate(change.before)}
        kept, gone, added = change.kept, change.gone, change.added
        choose, draw, after = self._choose, self._random, change.after
        moved = 0
        for client, server in enumerate(self.servers):
            chosen = after[choose(places[server], kept, gone, added, draw())]
            if chosen != server:
                self.servers[client] = chosen
                moved += 1
        return moved


class _Stratified:
    """Clients that keep a position among those of their server."""

    def __init__(self, servers: Sequence[str], points: Iterable[float]) -> None:
        ordered = sorted(servers)
        starts = [even_start(point, len(ordered)) for point in points]
        self.servers = [ordered[place] for place, _ in starts]
        self._positions = [position for _, position in starts]

    def follow(self, change: Change) -> int:
        places = {server: place for place, server in enumerate(change.before)}
        kept, gone, added = change.kept, change.gone, change.added
        positions = self._positions
        moved = 0
        for client, server in enumerate(self.servers):
            place, positions[client] = choose_stratified(
                places[server], kept, gone, added, positions[client]
            )
            chosen = change.after[place]
            if chosen != server:
                self.servers[client] = chosen
                moved += 1
        return moved


class _Circle:
    """Clients on the circle of consistent hashing: each belongs to the server after it."""

    def __init__(self, clients: int, servers: Sequence[str], seed: int, virtual_nodes: int) -> None:
        # Names carry the seed, so that another seed is another draw of all points.
        self._seed = seed
        self._virtual_nodes = virtual_nodes
        self._points = [hash_point(f"{seed}/client/{client}") for client in range(clients)]
        self.servers = self._owners(servers)

    def follow(self, change: Change) -> int:
        before, self.servers = self.servers, self._owners(change.after)
        return sum(map(str.__ne__, before, self.servers))

    def _owners(self, servers: Sequence[str]) -> list[str]:
        circle = sorted(
            (hash_point(f"{self._seed}/server/{server}/{copy}"), server)
            for server in servers
            for copy in range(self._virtual_nodes)
        )
        points = [point for point, _ in circle]
        return [circle[successor(points, point)][1] for point in self._points]


def _crowd_of(
    rule: str, clients: int, servers: Sequence[str], seed: int, start: str, virtual_nodes: int
) -> _Crowd:
    if rule == "consistent-hash":
        return _Circle(clients, servers, seed, virtual_nodes)
    random = stream(seed, "start")
    balanced = start == "balanced"
    if rule == "stratified":
        shift = random.random()
        # An even grid, laid anywhere; or points like those of hashed names.
        points = (
            (client + shift) / clients if balanced else random.random() for client in range(clients)
        )
        return _Stratified(servers, points)
    starts = [
        servers[client % len(servers)] if balanced else random.choice(servers)
        for client in range(clients)
    ]
    choose = choose_baseline if rule == "baseline" else choose_probabilistic
    return _Coins(choose, starts, seed)


def _counts(where: Iterable[str], servers: Iterable[str]) -> dict[str, int]:
    found = Counter(where)
    return {server: found[server] for server in servers}


def _checked(servers: Sequence[str], number: int) -> tuple[str, ...]:
    source = "servers" if number == 0 else f"change {number}"
    if not servers:
        raise InputError(source, "", "expected at least one server, got none")
    (name, times), *_ = Counter(servers).most_common(1)
    if times > 1:
        raise InputError(source, "", f"expected each server once, got {name!r} {times} times")
    return tuple(servers)


def _check(clients: int, rule: str, start: str, virtual_nodes: int) -> None:
    for field, value in (("clients", clients), ("virtual_nodes", virtual_nodes)):
        if value < 1:
            raise InputError(field, "", f"expected a whole number of at least 1, got {value}")
    for field, name, known in (("rule", rule, RULES), ("start", start, STARTS)):
        if name not in known:
            raise InputError(field, "", f"expected one of {', '.join(known)}, got {name!r}")
