"""What must hold of clients that follow a federation, while it changes and at the end.

* A client that has a session uses that one; two at most are open, while it goes from one to the
  other. Requests go to nodes that let their client in, and end there unless that node died.
* Nobody spins: there are bounds for how often a client asks, in a second and in twenty.
* No node lets in more than it may.
* No client is without a session for long while a server that it knows takes clients.
* At the end each client has one session, at a server of the newest list, which knows it, and wants
  nothing more.

A checker knows events and what machines show; none of their rules.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import TypeVar

from spillover.core.membership.client_session import CONNECT_S, LONGEST_PAUSE_S
from spillover.core.membership.session_events import Event
from spillover.model.errors import RunError
from spillover.sim.membership.parties import Life, Looker, SimClient, SimNode
from spillover.sim.membership.sessions import Sessions

ASKS_IN_1_S, ASKS_IN_20_S = 6, 14
"""Rounds in which each server is asked once: pauses begin with a fifth of a second, and double."""
ROUNDS_MAX = 4
"""So many may pass without a session while a server takes clients: with lists that change."""


T = TypeVar("T")


class Broken(RunError):
    """Something that must hold does not: what, when, and which history shows it."""


class SessionChecker(Looker):
    """Looks on at one history. Raises `Broken` at once."""

    def __init__(self, seed: int, connects_per_s: float, burst: int) -> None:
        self._seed = seed
        self._rate, self._burst = connects_per_s, burst
        self._sessions: Sessions | None = None
        self._asked: dict[SimClient, deque[float]] = {}
        self._troubled: set[SimNode] = set()
        self._taking: dict[SimNode, float] = {}
        self._without: dict[SimClient, float] = {}
        """Since when."""
        self.asks = 0
        self.longest_without_s = 0.0

    def watch(self, sessions: Sessions) -> None:
        self._sessions = sessions

    @property
    def sessions(self) -> Sessions:
        assert self._sessions is not None
        return self._sessions

    # --- while it goes on ---------------------------------------------------------------------

    def connecting(self, client: SimClient, now_s: float) -> None:
        self.asks += 1
        asked = self._asked.setdefault(client, deque())
        asked.append(now_s)
        while asked[0] < now_s - 20.0:
            asked.popleft()
        known = len(self.sessions.nodes)
        last_s = sum(1 for at_s in asked if at_s >= now_s - 1.0)
        if last_s > ASKS_IN_1_S * known or len(asked) > ASKS_IN_20_S * known:
            self._fail(f"{client.name} spins: {last_s} asks in 1 s, {len(asked)} in 20 s", now_s)

    def after(self, client: SimClient, event: Event, now_s: float) -> None:
        machine = client.machine
        try:
            machine.check()
        except AssertionError as error:
            self._fail(f"{client.name} after {event}: {error}", now_s)
        used = None if client.session is None else client.session.node.name
        said = None if machine.in_use is None else machine.in_use.id
        if used != said:
            self._fail(f"{client.name} says {said} and has a session at {used}", now_s)
        if len(client.streams) > 2:
            self._fail(f"{client.name} has {len(client.streams)} streams", now_s)

    def let_in(self, node: SimNode, now_s: float) -> None:
        for count, at_s in enumerate(reversed(node.let_in_s), start=1):
            if count > self._burst + self._rate * (now_s - at_s) + 1e-6:
                self._fail(f"{node.name} let in {count} in {now_s - at_s:.3f} s", now_s)

    def sent(self, client: SimClient, node: SimNode, now_s: float) -> None:
        one = client.session
        if one is None or one.node is not node or not (one.is_heard and one.at_client):
            self._fail(f"{client.name} sends to {node.name}, where it has no session", now_s)

    def trouble(self, node: SimNode) -> None:
        """From now on what is under way there may be lost."""
        self._troubled.add(node)

    def ended(self, client: SimClient, node: SimNode, *, lost: bool) -> None:
        if lost and node not in self._troubled:
            now_s = self.sessions.world.now_s
            self._fail(f"a request of {client.name} is lost at {node.name}, which lives", now_s)

    def look(self) -> None:
        """Once in a while: who has been without a session for how long."""
        now_s, sessions = self.sessions.world.now_s, self.sessions
        _keep_since(self._taking, [one for one in sessions.nodes.values() if one.takes], now_s)
        without = [client for client in sessions.clients if client.session is None]
        _keep_since(self._without, without, now_s)
        round_s = len(sessions.nodes) * CONNECT_S + LONGEST_PAUSE_S
        bound_s = ROUNDS_MAX * (round_s + len(sessions.clients) / self._rate)
        for client, since_s in self._without.items():
            for server in client.machine.servers:
                name = server.id or server.url.removeprefix("http://")
                taking_s = self._taking.get(sessions.nodes[name], math.inf)
                both_s = now_s - max(since_s, taking_s)
                self.longest_without_s = max(self.longest_without_s, both_s)
                if both_s > bound_s:
                    what = f"{client.name} has had no server for {both_s:.0f} s, and {name} takes"
                    self._fail(what, now_s)

    # --- the end ------------------------------------------------------------------------------

    def unsettled(self) -> str:
        """Returns what is left to be done, in words; empty if that is nothing."""
        sessions = self.sessions
        for client in sessions.clients:
            if left := self._left_of(client):
                return f"{client.name} {left}"
        known = sum(sessions.counts(sessions.nodes).values())
        return "" if known == len(sessions.clients) else f"nodes know of {known} sessions"

    def _left_of(self, client: SimClient) -> str:
        sessions, one, machine = self.sessions, client.session, client.machine
        if one is None:
            return "has no session"
        if one.node.name not in sessions.listed or one.node.state is not Life.UP:
            return f"is at {one.node.name}, which is no server"
        if all(other is not one for other in one.node.clients.sessions):
            return f"is at {one.node.name}, which does not know it"
        if {server.id for server in machine.servers} != set(sessions.listed):
            return f"goes by {machine.servers}"
        return "wants something more" if math.isfinite(machine.next_deadline()) else ""

    def settled(self) -> None:
        """Time enough has passed since the last disturbance."""
        if left := self.unsettled():
            self._fail(f"it does not end: {left}", self.sessions.world.now_s)

    def _fail(self, what: str, now_s: float) -> None:
        raise Broken(f"session history {self._seed} at {now_s:.3f} s: {what}")


def _keep_since(since: dict[T, float], now: Sequence[T], now_s: float) -> None:
    """Those that are, since when; those that are not any more are forgotten."""
    for one in since.keys() - set(now):
        del since[one]
    for one in now:
        since.setdefault(one, now_s)
