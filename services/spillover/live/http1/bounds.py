"""The bounds of a server's connections: how long each may take for what, and who looks. One
deadline for a connection, and one look a second at all of them: timers would cost more.
"""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

SWEEP_S = 1.0
"""So often all connections of a listener are looked at: what is due ends by so much later."""


@dataclass(slots=True, kw_only=True)
class Bounds:
    """How long connections of a service may take for what, and how many there may be."""

    head_s: float = 10.0
    """The longest time that a head which has begun may take."""
    body_s: float = 60.0
    """The time over which a body has to come at `body_bytes_per_s` at least, or be whole, again and
    again from the end of its head on."""
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


class Due(Protocol):
    """A connection, as it is looked at."""

    due_s: float
    """When something will have taken too long; infinite while nothing is bounded."""
    cut_s: float
    """When an exchange will have; infinite where that is not bounded."""

    def too_late(self, now_s: float) -> None:
        """It has."""


C = TypeVar("C", bound=Due)


class Swept(Generic[C]):
    """The connections of one listener, which are looked at each second while there are any."""

    def __init__(self, loop: asyncio.AbstractEventLoop, connections: set[C]) -> None:
        self._loop = loop
        self.connections = connections
        self.clock = time.monotonic
        self._sweeps = False

    def add(self, connection: C) -> None:
        """It begins."""
        self.connections.add(connection)
        if not self._sweeps:
            self._sweeps = True
            self._loop.call_later(SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        self._sweeps = bool(self.connections)
        if self._sweeps:  # first: whatever one of them comes to, the others are looked at again
            self._loop.call_later(SWEEP_S, self._sweep)
        now_s = self.clock()
        for connection in [one for one in self.connections if min(one.due_s, one.cut_s) <= now_s]:
            connection.due_s = math.inf
            connection.too_late(now_s)


class Owner(Protocol):
    """What the connections of one listener have in common."""

    bounds: Bounds
    leaving_idle_s: float
    """How long a connection without a request is still kept where clients are to go elsewhere;
    infinite where they may stay."""
    loop: asyncio.AbstractEventLoop

    def clock(self) -> float:
        """Returns the time by which bounds go."""

    def flush(self) -> None:
        """Write what waits to be written together."""
