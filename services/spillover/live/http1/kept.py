"""Connections of one client that carry no request: which of them the next one takes, and which are
closed. The rules are those of `policy.reuse`. Requests, and how connections are opened, are not
known here.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from random import Random

from spillover.live.http1.connection import KINDS, Connection
from spillover.policy.reuse import AT_ONCE_S, IdleLimit, Keeping, Reuse, spread

SWEEP_AT_ONCE = 256
"""Idle connections that one sweep closes at most, so that it never holds up the loop."""
SWEEP_PAUSE_S = 0.01


class Kept:
    """Last in, first out. `len` counts them all."""

    def __init__(self, idle_s_max: float, keeping: Keeping) -> None:
        self.idle: OrderedDict[Connection, None] = OrderedDict()
        """The connections to be used again, longest idle first."""
        self._resting: set[Connection] = set()
        """Not to be used again: whether the server closes them is to be seen."""
        self.limit = IdleLimit(idle_s_max)
        self._keeping = keeping
        self._reuses = tuple(Reuse(is_trusted=keeping.is_trusted) for _ in range(KINDS))
        self._random = Random()  # only spreads ends of connections
        self.sweep: asyncio.TimerHandle | None = None
        """When the next ones have been idle for too long."""

    def __len__(self) -> int:
        return len(self.idle) + len(self._resting)

    def opened(self, connection: Connection, now_s: float) -> None:
        """A connection begins."""
        draw = self._random.random()
        connection.retires_s = now_s + spread(self._keeping.age_s_max, draw)
        connection.uses_left = int(spread(self._keeping.uses_max, draw))

    def take(self, now_s: float) -> Connection | None:
        """Returns one that can carry a request, which is idle no more; None if there is none."""
        oldest_s = now_s - self.limit.limit_s
        while self.idle:
            connection, _ = self.idle.popitem()
            if connection.idle_since_s > oldest_s:
                if connection.is_quiet():
                    return connection
                self.abandoned(connection)
            connection.close()
        return None

    def released(self, connection: Connection) -> None:
        """Keep a connection for the next request, for `connection.Pool`."""
        if connection.keep_s is not None:
            self.limit.said(connection.keep_s)
            connection.keep_s = None
        reuse = self._reuses[connection.kind]
        if connection.idle_since_s >= connection.retires_s or connection.uses_left <= 0:
            connection.close()
        elif reuse.is_trusted or not connection.has_answered:
            self.idle[connection] = None
            if self.sweep is None:
                loop = asyncio.get_running_loop()
                self.sweep = loop.call_later(self.limit.limit_s, self.close_expired)
        elif len(self._resting) < reuse.wanted:
            self._resting.add(connection)
            loop = asyncio.get_running_loop()
            loop.call_later(reuse.rest_s, self._rested, connection, reuse, reuse.closings)
        else:
            connection.close()

    def _rested(self, connection: Connection, reuse: Reuse, closings: int) -> None:
        """It has stayed open, unless it is gone. It is not used even now: a server that does one
        connection after the other may have others waiting for its end."""
        if connection in self._resting:
            if connection.is_quiet():
                reuse.kept(closings, time.monotonic())
            connection.close()

    def abandoned(self, connection: Connection) -> None:
        """The other end has closed it: learn from that when connections can be used again."""
        if not connection.has_answered:
            return
        now_s = time.monotonic()
        idle_s = now_s - connection.idle_since_s
        if idle_s < AT_ONCE_S or connection in self._resting:
            self._reuses[connection.kind].closed(idle_s, now_s)
        else:
            self.limit.closed(idle_s, now_s)

    def lost_on(self, connection: Connection) -> None:
        """A request was lost on it."""
        if connection.has_answered:
            self._reuses[connection.kind].closed(0.0, time.monotonic())

    def dropped(self, connection: Connection) -> None:
        """It is none of these any more."""
        self.idle.pop(connection, None)
        self._resting.discard(connection)

    def close(self) -> None:
        """Sweep no more."""
        if self.sweep is not None:
            self.sweep.cancel()
            self.sweep = None

    def close_expired(self) -> None:
        """Close what has been idle for too long."""
        self.sweep = None
        now_s = time.monotonic()
        self.limit.look(now_s)
        for _ in range(SWEEP_AT_ONCE):
            connection = next(iter(self.idle), None)
            if connection is None:
                return
            rest_s = connection.idle_since_s + self.limit.limit_s - now_s
            if rest_s > 0:
                break
            connection.close()
        loop = asyncio.get_running_loop()
        self.sweep = loop.call_later(max(rest_s, SWEEP_PAUSE_S), self.close_expired)
