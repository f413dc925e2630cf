"""What is seen while the members run: their lines as they come, and how far each stream has been
applied, looked up in Redis ten times a second.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from spillover.live.leases.redis_values import GroupKeys
from spillover.live.leases.streams.keys import StreamKeys
from spillover.live.leases.streams.records import Checkpoint
from spillover.live.redis.connection import RedisLink
from spillover.model.errors import StoreUnreachable

LOOK_S = 0.1
LOOK_TIMEOUT_S = 5.0
RATE_OVER_S = 1.0
"""Records per second are means over so long."""


@dataclass(frozen=True, slots=True)
class Look:
    """All streams together, at one instant."""

    at_s: float
    written: int
    applied: int


class Watch:
    """Keeps what it has seen."""

    def __init__(self, url: str, group: str, streams: int) -> None:
        self.lines: list[dict[str, Any]] = []
        self.looks: list[Look] = []
        self.applied: dict[int, list[tuple[float, int]]] = {p: [] for p in range(streams)}
        """By stream: (instant, records applied), whenever these were seen to have grown."""
        self.members: set[str] = set()
        """Who has joined, and not left."""
        self._link = RedisLink(url, LOOK_TIMEOUT_S)
        keys = StreamKeys.of(group)
        # In this order: what is applied has been written.
        self._commands = [("HKEYS", GroupKeys.of(group).members), ("HGETALL", keys.checkpoints)]
        self._commands += [("XLEN", keys.stream(partition)) for partition in range(streams)]

    @property
    def applied_total(self) -> int:
        return self.looks[-1].applied if self.looks else 0

    @property
    def written_total(self) -> int:
        return self.looks[-1].written if self.looks else 0

    @property
    def rate_per_s(self) -> float:
        """Returns how many records were applied per second, of late."""
        if not self.looks:
            return 0.0
        last = self.looks[-1]
        first = next(
            (one for one in reversed(self.looks) if last.at_s - one.at_s >= RATE_OVER_S),
            self.looks[0],
        )
        elapsed_s = last.at_s - first.at_s
        return (last.applied - first.applied) / elapsed_s if elapsed_s > 0.0 else 0.0

    async def look_forever(self, on_look: Callable[[], None]) -> None:
        while True:
            await self.look()
            on_look()
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        try:
            members, checkpoints, *lengths = await self._link.calls(*self._commands)
        except StoreUnreachable:
            return  # busy; the next look follows
        at_s = time.time()
        self.members = set(members)
        total = 0
        for partition, value in checkpoints.items():
            handled = Checkpoint.parse(value).handled
            total += handled
            seen = self.applied.get(int(partition))
            if seen is not None and handled > (seen[-1][1] if seen else 0):
                seen.append((at_s, handled))
        self.looks.append(Look(at_s, sum(map(int, lengths)), total))

    async def close(self) -> None:
        await self._link.close()
