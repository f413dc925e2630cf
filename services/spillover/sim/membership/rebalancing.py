"""Clients that follow a changing list of servers: how many move, and how even it leaves them.

Shraer & Reed, "Load-Balancing Clients-Server Connections During Membership Change", whose rules,
and ours, are in `policy.membership`; here are the clients that apply them, all at once. Failing
servers and the time that moves take are not here.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

from spillover.core.membership.list_change import Change, change_between
from spillover.model.errors import InputError
from spillover.policy import membership as policy
from spillover.policy.leases import minimum_moves
from spillover.sim.engine.world import stream

RULES = ("probabilistic", "stratified", "baseline", "consistent-hash")
STARTS = ("balanced", "random", "uneven")


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
        """Returns one of the `steps` that `sim rebalance --json` prints."""
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
    skip: float = 0.0,
    seed: int = 1,
    on_progress: Callable[[int], None] | None = None,
) -> list[Step]:
    """Let `clients` clients follow the `lists`, of which the first is the one they start with.

    `start` is "balanced", the counts differing by one at most, "random", every client anywhere, or
    "uneven", every other one of them on the first server; with "consistent-hash" the circle alone
    decides. `virtual_nodes` is how often that rule hashes each server. `skip` is the share of
    clients that still wait when the next change comes, and follow from the older list then; they
    may be on servers that went, which no step counts. `on_progress` is told how many changes are
    done. Raises InputError for a list that is empty or names a server twice, no client, or an
    unknown name.
    """
    _check(clients, rule, start, virtual_nodes, skip)
    named = [_checked(servers, number) for number, servers in enumerate(lists)]
    crowd = _crowd_of(
        rule, clients, named, seed=seed, start=start, virtual_nodes=virtual_nodes, skip=skip
    )
    steps = []
    for number, (before, after) in enumerate(pairwise(named), start=1):
        counts = _counts(crowd.servers, before)
        moved = crowd.follow(number)
        after_counts = _counts(crowd.servers, after)
        steps.append(Step(after, moved, least_moves(counts, after), after_counts))
        if on_progress is not None:
            on_progress(number)
    return steps


def least_moves(counts: dict[str, int], servers: Sequence[str]) -> int:
    """Returns the fewest clients that have to move so that those `servers` have counts that differ
    by one at most, from `counts` at the servers before.

    All of the servers that went, and of survivors what exceeds their share, the larger shares going
    to those that have most already. (`policy.leases` counts partitions the same way.)
    """
    everyone = [*servers, *(server for server in counts if server not in servers)]
    held = [counts.get(server, 0) for server in everyone]
    return minimum_moves(held, [place < len(servers) for place in range(len(everyone))])


def reconfigurations(servers: Sequence[str], seed: int) -> list[list[str]]:
    """Returns the lists of the document's experiment: all servers, at least five of them, then its
    four events, drawn by the seed.

    Remove one; remove two; remove one and add the three that went; add that of the third event.
    """
    first, second, third, fourth, *rest = stream(seed, "servers").sample(servers, len(servers))
    return [
        [first, second, third, fourth, *rest],
        [second, third, fourth, *rest],
        [fourth, *rest],
        [first, second, third, *rest],
        [first, second, third, fourth, *rest],
    ]


class _Crowd(Protocol):
    """All clients under one rule."""

    servers: list[str]
    """The server of each client."""

    def follow(self, number: int) -> int:
        """Each client decides about the list of this number; how many moved."""


class _Deciding:
    """Clients that each have a server and the list that they last acted on."""

    def __init__(
        self, servers: list[str], lists: Sequence[tuple[str, ...]], seed: int, skip: float
    ) -> None:
        self.servers = servers
        self.draw = stream(seed, "draws").random
        self._lists = lists
        self._acted_on = [0] * len(servers)
        self._skips = stream(seed, "skips").random
        self._skip = skip

    def deciding(self, number: int) -> list[tuple[int, Change, int]]:
        """Returns who acts on the list of this number: client, its change, its place in that."""
        after = self._lists[number]
        changes = [change_between(before, after) for before in self._lists[:number]]
        places = [{name: place for place, name in enumerate(one.before)} for one in changes]
        found = []
        for client, server in enumerate(self.servers):
            if self._skip and self._skips() < self._skip:
                continue
            acted_on = self._acted_on[client]
            found.append((client, changes[acted_on], places[acted_on][server]))
            self._acted_on[client] = number
        return found


class _Coins(_Deciding):
    """Clients that draw a number of their own for each change."""

    choose: Callable[[int, int, int, int, float], int] = staticmethod(policy.choose_probabilistic)

    def follow(self, number: int) -> int:
        choose, draw, servers = self.choose, self.draw, self.servers
        moved = 0
        for client, change, own in self.deciding(number):
            place = choose(own, change.kept, change.gone, change.added, draw())
            if change.after[place] != servers[client]:
                servers[client] = change.after[place]
                moved += 1
        return moved


class _Baseline(_Coins):
    choose = staticmethod(policy.choose_baseline)


class _Stratified(_Deciding):
    """Clients whose servers tell them their ranks: the order in which they came there. Servers know
    how many clients all others have; live ones know it of their neighbors."""

    def __init__(
        self, servers: list[str], lists: Sequence[tuple[str, ...]], seed: int, skip: float
    ) -> None:
        super().__init__(servers, lists, seed, skip)
        self._lines = defaultdict[str, list[int]](list)
        for client, server in enumerate(servers):
            self._lines[server].append(client)

    def follow(self, number: int) -> int:
        lines, servers = self._lines, self.servers
        ranks = {client: rank for line in lines.values() for rank, client in enumerate(line)}
        counts = {server: len(line) for server, line in lines.items() if line}
        total = len(servers)
        compared = len(set(counts) | set(self._lists[number - 1]))
        surplus = {
            name: policy.surplus_of(count, total, compared) for name, count in counts.items()
        }
        phase = policy.phase_of(number)
        movers = []
        for client, change, own in self.deciding(number):
            server = servers[client]
            place = policy.choose_stratified(
                own, change.kept, change.gone, change.added,
                ranks[client], counts[server], surplus[server], phase,
            )  # fmt: skip
            if change.after[place] != server:
                movers.append((self.draw(), client, change.after[place]))
        leaving = {client for _, client, _ in movers}
        for name, line in lines.items():
            lines[name] = [client for client in line if client not in leaving]
        # They wait, each as long as it draws, and come in that order.
        for _, client, chosen in sorted(movers):
            lines[chosen].append(client)
            servers[client] = chosen
        return len(movers)


class _Circle:
    """Clients on the circle of consistent hashing: each belongs to the server after it."""

    def __init__(
        self, clients: int, lists: Sequence[tuple[str, ...]], seed: int, virtual_nodes: int
    ) -> None:
        # Names carry the seed, so that another seed is another draw of all points.
        self._seed = seed
        self._virtual_nodes = virtual_nodes
        self._points = [policy.hash_point(f"{seed}/client/{client}") for client in range(clients)]
        self._lists = lists
        self.servers = self._owners(lists[0])

    def follow(self, number: int) -> int:
        before, self.servers = self.servers, self._owners(self._lists[number])
        return sum(map(str.__ne__, before, self.servers))

    def _owners(self, servers: Sequence[str]) -> list[str]:
        circle = sorted(
            (policy.hash_point(f"{self._seed}/server/{server}/{copy}"), server)
            for server in servers
            for copy in range(self._virtual_nodes)
        )
        points = [point for point, _ in circle]
        return [circle[policy.successor(points, point)][1] for point in self._points]


def _crowd_of(
    rule: str,
    clients: int,
    lists: Sequence[tuple[str, ...]],
    *,
    seed: int,
    start: str,
    virtual_nodes: int,
    skip: float,
) -> _Crowd:
    if rule == "consistent-hash":
        return _Circle(clients, lists, seed, virtual_nodes)
    random, first = stream(seed, "start"), lists[0]
    if start == "random":
        starts = [random.choice(first) for _ in range(clients)]
    else:
        starts = [first[client % len(first)] for client in range(clients)]
        # They have come in any order.
        random.shuffle(starts)
    if start == "uneven":
        starts[::2] = [first[0]] * len(starts[::2])
    if rule == "stratified":
        return _Stratified(starts, lists, seed, skip)
    return (_Baseline if rule == "baseline" else _Coins)(starts, lists, seed, skip)


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


def _check(clients: int, rule: str, start: str, virtual_nodes: int, skip: float) -> None:
    if not 0 <= skip < 1:
        raise InputError("skip", "", f"expected a share from 0 to below 1, got {skip}")
    if skip and rule == "consistent-hash":
        raise InputError("skip", "", "expected without consistent-hash: its circle decides")
    for field, value in (("clients", clients), ("virtual_nodes", virtual_nodes)):
        if value < 1:
            raise InputError(field, "", f"expected a whole number of at least 1, got {value}")
    for field, name, known in (("rule", rule, RULES), ("start", start, STARTS)):
        if name not in known:
            raise InputError(field, "", f"expected one of {', '.join(known)}, got {name!r}")
