"""What a service asks of the connections to it: how long they may take for what, which requests it
takes without a task, and what it writes and counts together. How that is done is in `connection`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from spillover.apps.http.asgi import AsgiApp
from spillover.apps.http.exchange import Exchange
from spillover.apps.http.known_requests import KnownRequests
from spillover.live.engine.moving import Moving
from spillover.live.engine.write_batch import WriteBatch


@dataclass(slots=True, kw_only=True)
class Bounds:
    """How long connections of a service may take for what, and how many there may be."""

    head_s: float = 10.0
    """The longest time that a head which has begun may take."""
    body_s: float = 60.0
    """The time over which a body has to come at `body_bytes_per_s` at least, or be whole, again and
    again from the end of its head on. For one in a pipeline, whose body may not be read before, it
    counts from its turn on."""
    body_bytes_per_s: float = 500.0
    """Less than any upload that somebody waits for, a voice among them, and too much for somebody
    who only wants to hold many connections."""
    idle_s: float = 620.0
    """Longer than any client of ours keeps an idle connection, and than balancers do, clouds' among
    them (600 s), so that it is never the server that closes one which a request is just being
    written to. Counts from a connection's first moment
    on: one that has not said anything yet is idle like one between two requests. Neighbors open
    some ahead of need, and the first request on one must not meet its end."""
    unread_s: float = 60.0
    """The longest time that an answer too large for the transport waits to be read: who has read
    nothing for so long has gone."""
    exchange_s: float | None = None
    """The longest time that an exchange may take, from its first byte (or from the beginning of the
    connection) to the end of its answer; then the connection is cut off. None: no limit."""
    connections_max: int | None = None
    """Requests on more than that are refused."""

    def is_too_slow(self, size_bytes: int) -> bool:
        """Returns whether so much of a body is too little for `body_s`."""
        return size_bytes < self.body_s * self.body_bytes_per_s


Serve: TypeAlias = Callable[[Exchange, bytes], None]
"""Called with a request that came whole, and its body; answers now or later, and does not raise."""


@dataclass(frozen=True, slots=True)
class DirectPost:
    """POST to one path. If it is `of_peers` alone, it needs a task until who is at the other end of
    the connection is settled."""

    path: str
    serve: Serve
    of_peers: bool = False


class Direct:
    """What needs no task: POST to some paths, and GET below others. Of no page: who may ask is for
    the app to check."""

    __slots__ = ("get", "get_below", "posts")

    def __init__(
        self,
        posts: Iterable[DirectPost],
        get_below: tuple[str, ...] = (),
        get: Serve | None = None,
    ) -> None:
        self.posts = {post.path.encode(): post for post in posts}
        """The paths that are served directly, by the bytes that ask for them."""
        self.get_below = get_below
        self.get = get

    def only(self, *, of_peers: bool) -> Direct:
        """Returns what of this is for neighbors, or all the rest."""
        posts = [post for post in self.posts.values() if post.of_peers is of_peers]
        return Direct(posts) if of_peers else Direct(posts, self.get_below, self.get)


@dataclass(frozen=True, slots=True)
class Edge:
    """What an app has to do with its connections besides being called, in an attribute `edge`."""

    direct: Direct | None = None
    writes: WriteBatch | None = None
    """What is written with other things of the app: wakes are saved where all write together."""
    moving: Moving | None = None
    """The count of bytes that are read slowly, or not read; None where nobody counts them."""
    recalled_below: str | None = None
    """Below that path, who closes its half of a connection behind a request wants no answer."""


@dataclass(slots=True)
class Service:
    """What the connections of one server have in common."""

    app: AsgiApp
    bounds: Bounds
    edge: Edge
    loop: asyncio.AbstractEventLoop
    connections: set[Any]
    tasks: set[asyncio.Task[None]]
    known: KnownRequests = field(default_factory=KnownRequests)
    leaving_idle_s: float | None = None
    """Where clients are to go elsewhere: how long a connection without a request is still kept."""

    @property
    def idle_s(self) -> float:
        """Returns how long one is kept."""
        told_s, idle_s = self.leaving_idle_s, self.bounds.idle_s
        return idle_s if told_s is None else min(told_s, idle_s)
