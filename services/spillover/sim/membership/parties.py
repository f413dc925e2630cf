"""The nodes and clients of simulated sessions: what is known of each. What happens between them is
in `sessions`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from spillover.core.driver import Driver
from spillover.core.membership.client_session import ClientSession
from spillover.core.membership.letting_in import LettingIn
from spillover.core.membership.node_clients import NodeClients
from spillover.core.membership.session_events import Event


class Life(Enum):
    """The life of a node, as its callers see it."""

    UP = "up"
    DOWN = "down"
    """Its port refuses."""
    SILENT = "silent"
    """Its host is dead, or cannot be reached."""


@dataclass(slots=True, eq=False)
class SessionAttempt:
    """One attempt at a session, or the session that came of it."""

    client: SimClient
    node: SimNode
    attempt: int
    life: int
    """The node's life when it was asked for."""
    is_session: bool = False
    is_heard: bool = False
    """The client knows that it is one."""
    at_client: bool = True
    """The client still wants it."""


class SimNode:
    """One node: whom it has, and what it takes."""

    def __init__(self, name: str, letting_in: Callable[[], LettingIn]) -> None:
        self.name = name
        self._letting_in = letting_in
        self.state = Life.UP
        self.life = self.silences = 0
        self.draining = False
        self.clients = NodeClients[SessionAttempt](name, letting_in())
        self.let_in_s: list[float] = []
        """When it let somebody in, in this life."""
        self.put_off = 0

    @property
    def takes(self) -> bool:
        """Returns whether it would let a client in, but for the limit of connects."""
        return self.state is Life.UP and not self.draining

    def begin(self) -> None:
        """Start anew, and know nothing."""
        self.life += 1
        self.state, self.draining = Life.UP, False
        self.clients = NodeClients(self.name, self._letting_in())
        self.let_in_s.clear()


class SimClient:
    """The shell of one client's machine."""

    def __init__(self, name: str, machine: ClientSession, urls: Sequence[str]) -> None:
        self.name = name
        self.urls = urls
        """It was given these."""
        self.machine = machine
        self.streams: dict[int, SessionAttempt] = {}
        self.session: SessionAttempt | None = None
        """The session that it uses."""
        self.driver: Driver[Event, Any]
        """Set by `sessions`."""
        self.moves = 0

    def use_newest(self) -> None:
        self.session = self.streams[max(self.streams)]

    @property
    def known(self) -> set[str]:
        """Returns the urls where it may ask."""
        return {*self.urls, *(server.url for server in self.machine.servers)}


class Looker:
    """Hears what happens; a checker is one."""

    def connecting(self, client: SimClient, now_s: float) -> None: ...
    def heard(self, client: SimClient, event: Event, now_s: float) -> None: ...
    def let_in(self, node: SimNode, now_s: float) -> None: ...
    def sent(self, client: SimClient, node: SimNode, now_s: float) -> None: ...
    def ended(self, client: SimClient, node: SimNode, *, lost: bool) -> None: ...
