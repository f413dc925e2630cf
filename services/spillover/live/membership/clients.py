"""The clients of one node: who has a session here, in the order in which they came, and what they
are told. How a line is written is the business of whoever serves the response; no task and no
timer stands behind a session.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from spillover.core.membership.letting_in import LettingIn
from spillover.core.membership.session_events import Server
from spillover.live.engine.timers import Timers
from spillover.live.membership.session_wire import (
    SIGN_OF_LIFE,
    SIGN_OF_LIFE_S,
    encode_announcement,
    encode_head,
    encode_parting,
)
from spillover.policy.membership import surplus_of

PARTING_S = 1.0
"""Within this time the clients of a node that drains or ends go elsewhere: soon, since it takes
nothing more, and not all at one instant. What others cannot let in at once they put off."""


@dataclass(slots=True, eq=False)
class Session:
    """One client here. `put` writes a line to it, `end` ends the response."""

    client: str
    put: Callable[[bytes], None]
    end: Callable[[], None]


class Clients:
    """`numbers` tells how many clients the neighbors have, as far as they say; `on_count` is told
    how many there are here."""

    def __init__(
        self,
        cluster: str,
        epoch: int,
        letting_in: LettingIn,
        timers: Timers,
        *,
        numbers: Callable[[], Mapping[str, int]] = dict,
        on_count: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._cluster = cluster
        self._epoch = epoch
        self._letting_in = letting_in
        self._timers = timers
        self._numbers = numbers
        self._on_count = on_count
        self._sessions: dict[str, Session] = {}
        self._stamp = (0, "", 0)
        self._servers: tuple[Server, ...] = ()
        self._head = b""
        self.closed = False
        self._is_timed = False
        self.moves = 0
        """Clients that have left for another server."""
        self.refused = 0
        """Connects that were put off."""

    def __len__(self) -> int:
        return len(self._sessions)

    def is_full_for(self, client: str) -> bool:
        """Returns whether there is no place for it. One that has a session here, perhaps without
        knowing it, takes that one's place."""
        return len(self._sessions) >= self._letting_in.most and client not in self._sessions

    def let_in(self, client: str) -> float | None:
        """Returns None if this client may have a session now; else when to ask again, in
        seconds."""
        full = self.is_full_for(client)
        wait_s = SIGN_OF_LIFE_S if full else self._letting_in.ask(time.monotonic())
        self.refused += wait_s is not None
        return wait_s

    def open(self, client: str, put: Callable[[bytes], None], end: Callable[[], None]) -> Session:
        """Have a session for a client that was let in, and say where it is. It is the last to have
        come."""
        old = self._sessions.pop(client, None)
        if old is not None:
            old.end()
        session = self._sessions[client] = Session(client, put, end)
        count = len(self._sessions)
        put(encode_announcement(self._head, count, count - 1, 0.0))
        self._on_count(count)
        if not self._is_timed:
            self._is_timed = True
            self._timers.at(time.monotonic() + SIGN_OF_LIFE_S, self._give_signs_of_life)
        return session

    def drop(self, session: Session) -> None:
        """Its client has gone, or its response has ended."""
        if self._sessions.get(session.client) is session:
            del self._sessions[session.client]
            self._on_count(len(self._sessions))

    def leave(self, client: str, *, moved: bool) -> bool:
        """A client says that it goes; returns whether it was here."""
        session = self._sessions.get(client)
        if session is None:
            return False
        self.moves += moved
        self.drop(session)
        session.end()
        return True

    def announce(self, version: int, by: str, servers: Sequence[Server], by_epoch: int = 0) -> None:
        """The federation has another configuration: tell all clients, at one instant, so that their
        ranks are of one order. Of whom the node has too many is seen among the servers before."""
        before = {server.id for server in self._servers}
        self._stamp, self._servers = (version, by, by_epoch), tuple(servers)
        self._head = encode_head(self._cluster, self._epoch, self._stamp, self._servers)
        count = len(self._sessions)
        numbers = [number for name, number in self._numbers().items() if name in before]
        surplus = surplus_of(count, count + sum(numbers), 1 + len(numbers)) if numbers else 0.0
        for rank, session in enumerate(list(self._sessions.values())):
            session.put(encode_announcement(self._head, count, rank, surplus))

    def part(self) -> None:
        """The node takes nothing more: its clients are to go elsewhere. Where the configuration
        has told them already that this is no server any more, they know when and where to."""
        if self._cluster in {server.id for server in self._servers}:
            line = encode_parting(PARTING_S)
            for session in list(self._sessions.values()):
                session.put(line)

    def close(self) -> None:
        """End all sessions: the node ends."""
        self.closed = True
        for session in list(self._sessions.values()):
            session.end()

    def _give_signs_of_life(self, due_s: float) -> None:
        self._is_timed = bool(self._sessions) and not self.closed
        if self._is_timed:
            for session in list(self._sessions.values()):
                session.put(SIGN_OF_LIFE)
            self._timers.at(due_s + SIGN_OF_LIFE_S, self._give_signs_of_life)
