"""The events and commands of a client's session: see `client_session`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from spillover.model.ranges import CLUSTERS_MAX
from spillover.model.topology import Topology

SERVERS_MAX = CLUSTERS_MAX
"""The most servers in a list: what is longer is none."""


class SessionServer(NamedTuple):
    """A node as its clients know it. `id` is empty until it or another one has said it."""

    id: str
    url: str

    def is_at(self, other: SessionServer) -> bool:
        """Returns whether the same url leads to both."""
        return self.url.rstrip("/") == other.url.rstrip("/")


def servers_of(topology: Topology) -> tuple[SessionServer, ...]:
    """Returns where clients can be: the clusters with a url."""
    # Of several nodes each is a server, which is known by its url alone.
    each = [one.at(node) for one in topology.clusters for node in range(1, one.node_count + 1)]
    return tuple(
        SessionServer(one.id if one.node_count == 1 else "", one.url)
        for one in each
        if one.url is not None
    )


class Announcement(NamedTuple):
    """A node's message to a client about the federation, and about the client's place at the
    node."""

    cluster: str
    """The node's own; empty where it was read in the store of configurations."""
    version: int
    by: str
    """The cluster whose configuration of this version it is, together with `by_epoch`: of two the
    later one counts."""
    by_epoch: int
    servers: tuple[SessionServer, ...]
    clients: int
    """The number of the node's clients, when it sent this."""
    rank: int
    """The client's among them, from 0, in the order in which they came."""
    surplus: float
    """The share of them that the node has too many."""

    @property
    def stamp(self) -> tuple[int, str, int]:
        """Returns what says which of two is newer."""
        return self.version, self.by, self.by_epoch

    @property
    def can_be_meant(self) -> bool:
        """Returns whether its list is one: not empty, each server once, each with a url."""
        ids = {server.id for server in self.servers}
        urls = {server.url.rstrip("/") for server in self.servers}
        count = len(self.servers)
        is_list = 0 < count <= SERVERS_MAX and len(ids) == len(urls) == count
        return is_list and all(ids) and all(urls)


# --- events: `attempt` is the number of the Connect that they are about -------------------------


@dataclass(slots=True)
class Started:
    """The client has its first servers, and wants one."""


@dataclass(slots=True)
class Connected:
    """The node has let the client in, and has said this."""

    attempt: int
    announcement: Announcement


@dataclass(slots=True)
class NotReached:
    """Nobody answered, or not as a node does, or it lets nobody in for `retry_after_s`."""

    attempt: int
    retry_after_s: float | None = None


@dataclass(slots=True)
class Announced:
    """The node says what has changed."""

    attempt: int
    announcement: Announcement


@dataclass(slots=True)
class Listed:
    """The store of configurations has this one: no node has said it, and it has no rank."""

    announcement: Announcement


@dataclass(slots=True)
class Parting:
    """The node will take nothing more: its clients are to go elsewhere within this time."""

    attempt: int
    within_s: float


@dataclass(slots=True)
class Lost:
    """The session has ended without a word, or has been silent for too long."""

    attempt: int


@dataclass(slots=True)
class Ended:
    """The client needs no server any more."""


@dataclass(slots=True)
class TimerFired:
    """`next_deadline` has come."""


Event: TypeAlias = (
    Started | Connected | NotReached | Announced | Listed | Parting | Lost | Ended | TimerFired
)


# --- commands -----------------------------------------------------------------------------------


@dataclass(slots=True)
class Connect:
    """Ask this server for a session."""

    attempt: int
    server: SessionServer


@dataclass(slots=True)
class Use:
    """New requests go there from now on. What is under way elsewhere ends where it is."""

    server: SessionServer


@dataclass(slots=True)
class Leave:
    """End this session, or the attempt at one. `moved`: it was in use, and another one is now."""

    attempt: int
    moved: bool = False


Command: TypeAlias = Connect | Use | Leave
