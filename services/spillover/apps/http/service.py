"""What a service asks of the connections to it: which requests it takes without a task, and what it
writes and counts together. How that is done is in `connection`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from spillover.apps.http.asgi import AsgiApp
from spillover.apps.http.exchange import Exchange
from spillover.apps.http.known_requests import KnownRequests
from spillover.live.engine.moving import Moving
from spillover.live.engine.write_batch import WriteBatch
from spillover.live.http1.bounds import Bounds, Swept

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
class HttpService:
    """What the connections of one server have in common (`bounds.Owner`)."""

    app: AsgiApp
    bounds: Bounds
    edge: Edge
    loop: asyncio.AbstractEventLoop
    swept: Swept[Any]
    tasks: set[asyncio.Task[None]]
    writes: WriteBatch
    clock: Callable[[], float]
    known: KnownRequests = field(default_factory=KnownRequests)
    leaving_idle_s: float = math.inf

    def flush(self) -> None:
        """Write what waits to be written together."""
        self.writes.flush()
