"""The clients of one node: who is let in, in which order they came, and what they are told. Pure.

The nodes of a cluster tell each other how many clients they have (`NodeCount`), and let in no more
than the cluster may have. Where they are behind one address they are one server to clients, whose
ranks then go through all of them: first those of the node with the lowest number.

A session is whatever the shell has of a client. Writing lines, and signs of life, are the shell's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from spillover.core.membership.client_session import CHANGE_WAIT_S
from spillover.core.membership.letting_in import LettingIn
from spillover.core.membership.session_events import Announcement, SessionServer
from spillover.model.ranges import Whole
from spillover.policy.membership import surplus_of

REPEAT_AFTER_S = CHANGE_WAIT_S + 3.0
"""A change that comes while clients wait to act on the one before finds some who have acted and
some who have not, and their ranks are of one order, not of two: it leaves the spread of coins. So
the node says its ranks once more, when all have acted, and the surplus goes."""


class Session(Protocol):
    """The session of a client, as the shell has it."""

    @property
    def attempt(self) -> int | None:
        """Which of the client's attempts at a session it is, if the client said so."""


S = TypeVar("S", bound=Session)


class NodeCount(NamedTuple):
    """What a node tells the others of its cluster."""

    clients: Whole
    """The number of clients that have a session there."""
    let_in: Whole
    """The number of clients that it has let in since its start."""


class NodeClients(Generic[S]):
    """The clients of the node of one cluster, at this url. `shares_server` has its number where it
    is one server to clients together with others."""

    def __init__(
        self,
        cluster: str,
        letting_in: LettingIn,
        shares_server: int | None = None,
        url: str | None = None,
    ) -> None:
        self._cluster, self._url = cluster, url
        self._shares_server = shares_server
        self._others: dict[int, NodeCount] = {}
        """What the other nodes of the cluster tell, by their numbers."""
        self._letting_in = letting_in
        self._sessions: dict[str, S] = {}
        """The sessions by client, in the order in which they came."""
        self.stamp = (0, "", 0)
        self.servers: tuple[SessionServer, ...] = ()
        self._told_s = -math.inf
        self.repeat_s = math.inf
        """When to `repeat` what was told last."""
        self.moves = 0
        """Clients that have left for another server."""
        self.refused = 0
        """Connects that were put off."""

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, client: str) -> bool:
        return client in self._sessions

    @property
    def here(self) -> NodeCount:
        """Returns what other nodes are told."""
        return NodeCount(len(self._sessions), self._letting_in.count)

    @property
    def of_cluster(self) -> int:
        """Returns how many clients the cluster has, as far as is known."""
        return len(self._sessions) + sum(one.clients for one in self._others.values())

    @property
    def of_server(self) -> int:
        """Returns how many clients this server has, as clients see it: all of the cluster where its
        nodes are behind one address."""
        return len(self._sessions) if self._shares_server is None else self.of_cluster

    @property
    def first_rank(self) -> int:
        own = self._shares_server or 0
        return sum(one.clients for number, one in self._others.items() if number < own)

    def hear(self, node: int, told: NodeCount, now_s: float) -> None:
        """Another node tells this. Its first word only tells how things are: whom it let in before
        that was for its own account. It is not believed to have more clients than a cluster may."""
        before = self._others.get(node)
        self._others[node] = told._replace(clients=min(told.clients, self._letting_in.most))
        if before is not None and told.let_in > before.let_in:
            self._letting_in.other_let_in(told.let_in - before.let_in, now_s)

    def lose(self, node: int) -> None:
        """Another node is not heard any more."""
        self._others.pop(node, None)

    @property
    def sessions(self) -> list[S]:
        """Returns them by rank."""
        return list(self._sessions.values())

    @property
    def is_server(self) -> bool:
        """Returns whether clients have been told that they can be here."""
        own = self._cluster, self._url  # one of several nodes is known by its url alone
        return any(one.id == own[0] or one.url == own[1] for one in self.servers)

    def is_full_for(self, client: str) -> bool:
        """Returns whether there is no place for it. One that has a session here, perhaps without
        knowing it, takes that one's place."""
        return self.of_cluster >= self._letting_in.most and client not in self._sessions

    def let_in(self, client: str, now_s: float, full_wait_s: float) -> float | None:
        """Returns None if this client may have a session now; else when to ask again, in
        seconds: after `full_wait_s` where there is no place."""
        full = self.is_full_for(client)
        wait_s = full_wait_s if full else self._letting_in.ask(now_s)
        self.refused += wait_s is not None
        return wait_s

    def put_in(self, client: str, session: S) -> S | None:
        """A client that was let in is the last to have come. Returns the session that it had here
        before, which is over."""
        old = self._sessions.pop(client, None)
        self._sessions[client] = session
        return old

    def drop(self, client: str, session: S) -> bool:
        """It has ended; returns whether it was still the client's."""
        is_there = self._sessions.get(client) is session
        if is_there:
            del self._sessions[client]
        return is_there

    def leave(self, client: str, attempt: int | None, *, moved: bool) -> S | None:
        """A client says that it goes; returns its session here. Where it says which one it means,
        the goodbye to one session does not end a later one."""
        session = self._sessions.get(client)
        if session is None or attempt not in (None, session.attempt):
            return None
        del self._sessions[client]
        self.moves += moved
        return session

    def go_by(
        self,
        stamp: tuple[int, str, int],
        servers: Sequence[SessionServer],
        numbers: Mapping[str, int],
        now_s: float,
    ) -> float:
        """The federation has another configuration. Returns the surplus to tell all clients of, at
        one instant, so that their ranks are of one order; of whom the node has too many is seen
        among the servers before. `numbers` are the clients of neighbors."""
        surplus, _ = self._surplus(numbers)
        is_overlapping = now_s < self._told_s + CHANGE_WAIT_S or self.repeat_s < math.inf
        self._told_s = now_s
        self.repeat_s = now_s + REPEAT_AFTER_S if is_overlapping else math.inf
        self.stamp, self.servers = stamp, tuple(servers)
        return surplus

    def repeat(self, numbers: Mapping[str, int], now_s: float) -> float | None:
        """Returns the surplus to tell all clients of once more, after changes that have overlapped;
        None if it is not the time, or there is nothing to repair."""
        if now_s < self.repeat_s:
            return None
        self.repeat_s = math.inf
        surplus, of_all = self._surplus(numbers)
        # Clients have half of it go, since nodes see a part of the federation. This one sees all.
        return min(1.0, 2.0 * surplus if of_all else surplus) or None

    def _surplus(self, numbers: Mapping[str, int]) -> tuple[float, bool]:
        """Returns the share of its clients that the node has too many, and whether that is of all
        servers."""
        listed = {server.id for server in self.servers} - {self._cluster}
        others = [number for name, number in numbers.items() if name in listed]
        if not others:
            return 0.0, False
        count = self.of_server
        surplus = surplus_of(count, count + sum(others), 1 + len(others))
        return surplus, len(others) == len(listed)

    def told(self, rank: int, surplus: float) -> Announcement:
        place = self.of_server, self.first_rank + rank
        return Announcement(self._cluster, *self.stamp, self.servers, *place, surplus)
