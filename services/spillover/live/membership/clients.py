"""The clients of one node: who has a session here, in the order in which they came, and what they
are told. How a line is written is the business of whoever serves the response; no task and no
timer stands behind a session.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from spillover.core.membership.letting_in import LettingIn
from spillover.core.membership.node_clients import NodeClients, NodeCount
from spillover.core.membership.session_events import SessionServer
from spillover.live.engine.metric_types import counter, gauges
from spillover.live.engine.timers import Timers
from spillover.live.membership.session_wire import (
    SIGN_OF_LIFE,
    SIGN_OF_LIFE_S,
    encode_announcement,
    encode_head,
    encode_parting,
)
from spillover.model.signals import clients as signals

PARTING_S = 1.0
"""Within this time the clients of a node that drains or ends go elsewhere: soon, since it takes
nothing more, and not all at one instant. What others cannot let in at once they put off."""


@dataclass(slots=True, eq=False)
class Session:
    """One client here. `put` writes a line to it, `end` ends the response."""

    client: str
    attempt: int | None
    put: Callable[[bytes], None]
    end: Callable[[], None]


class Clients(Collector):
    """`numbers` tells how many clients the neighbors have, as far as they say; `on_count` is told
    how many the cluster has whenever there are more or fewer here. `shares_server` and
    `url` are as `NodeClients` has them."""

    def __init__(
        self,
        cluster: str,
        epoch: int,
        letting_in: LettingIn,
        timers: Timers,
        *,
        numbers: Callable[[], Mapping[str, int]] = dict,
        on_count: Callable[[int], None] = lambda _: None,
        shares_server: int | None = None,
        url: str | None = None,
    ) -> None:
        self._cluster = cluster
        self._epoch = epoch
        self.machine = NodeClients[Session](cluster, letting_in, shares_server, url)
        self._timers = timers
        self._numbers = numbers
        self._on_count = on_count
        self._head = b""
        self.closed = False
        self._is_timed = False

    def __len__(self) -> int:
        return len(self.machine)

    def __contains__(self, client: str) -> bool:
        return client in self.machine

    def collect(self) -> Iterator[Metric]:
        """Yields the metrics, at each scrape of `prometheus_client`."""
        yield from gauges(signals.CLIENTS, self._cluster, [((), len(self))])
        yield counter(signals.MOVES, self._cluster, [((), self.machine.moves)])
        yield counter(signals.CONNECTS_REFUSED, self._cluster, [((), self.machine.refused)])

    def hear(self, node: int, told: NodeCount | None) -> None:
        """Another node of the cluster tells this; None where it is not heard any more."""
        if told is None:
            self.machine.lose(node)
        else:
            self.machine.hear(node, told, time.monotonic())

    def let_in(self, client: str) -> float | None:
        """Returns None if this client may have a session now; else when to ask again, in
        seconds."""
        return self.machine.let_in(client, time.monotonic(), SIGN_OF_LIFE_S)

    def open(
        self,
        client: str,
        attempt: int | None,
        put: Callable[[bytes], None],
        end: Callable[[], None],
    ) -> Session:
        """Have a session for a client that was let in, and say where it is. It is the last to have
        come."""
        session = Session(client, attempt, put, end)
        old = self.machine.put_in(client, session)
        if old is not None:
            old.end()
        self._say(session, len(self.machine) - 1, 0.0)
        self._on_count(self.machine.of_cluster)
        if not self._is_timed:
            self._is_timed = True
            self._timers.at(time.monotonic() + SIGN_OF_LIFE_S, self._give_signs_of_life)
        return session

    def drop(self, session: Session) -> None:
        """Its client has gone, or its response has ended."""
        if self.machine.drop(session.client, session):
            self._on_count(self.machine.of_cluster)

    def leave(self, client: str, attempt: int | None, *, moved: bool) -> bool:
        """A client says that it goes; returns whether it was here."""
        session = self.machine.leave(client, attempt, moved=moved)
        if session is None:
            return False
        self._on_count(self.machine.of_cluster)
        session.end()
        return True

    def announce(
        self, version: int, by: str, servers: Sequence[SessionServer], by_epoch: int = 0
    ) -> None:
        """The federation has another configuration: tell all clients, at one instant."""
        stamp = (version, by, by_epoch)
        surplus = self.machine.go_by(stamp, servers, self._numbers(), time.monotonic())
        self._head = encode_head(self._cluster, self._epoch, stamp, servers)
        if self.machine.repeat_s < math.inf:
            self._timers.at(self.machine.repeat_s, self._repeat)
        self._tell(surplus)

    def _repeat(self, due_s: float) -> None:
        surplus = self.machine.repeat(self._numbers(), due_s)
        if surplus is not None and not self.closed:
            self._tell(surplus)

    def _tell(self, surplus: float) -> None:
        for rank, session in enumerate(self.machine.sessions):
            self._say(session, rank, surplus)

    def _say(self, session: Session, rank: int, surplus: float) -> None:
        place = self.machine.of_server, self.machine.first_rank + rank
        session.put(encode_announcement(self._head, *place, surplus))

    def part(self) -> None:
        """The node takes nothing more: its clients are to go elsewhere. Where the configuration
        has told them already that this is no server any more, they know when and where to."""
        if self.machine.is_server:
            line = encode_parting(PARTING_S)
            for session in self.machine.sessions:
                session.put(line)

    def close(self) -> None:
        """End all sessions: the node ends."""
        self.closed = True
        for session in self.machine.sessions:
            session.end()

    def _give_signs_of_life(self, due_s: float) -> None:
        self._is_timed = len(self.machine) > 0 and not self.closed
        if self._is_timed:
            for session in self.machine.sessions:
                session.put(SIGN_OF_LIFE)
            self._timers.at(due_s + SIGN_OF_LIFE_S, self._give_signs_of_life)
