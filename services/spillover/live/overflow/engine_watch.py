"""What the engines behind a node say of themselves: their pages are read each second, their headers
as they come. The machine hears of all together.

A page has a second, and a size: what is later or longer is not read. What was said last counts for
a while, then nothing is known.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from spillover.core.overflow.events import EngineSaid
from spillover.live.handlers.engine_load import load_in_header, load_on_page, together
from spillover.live.http1.client import HttpClient
from spillover.model.engine_load import EngineLoad
from spillover.model.errors import PeerError
from spillover.model.upstream_urls import UpstreamUrl

PERIOD_S = 1.0
"""Pages are read so often: engines begin and end requests in about this time."""

PAGE_TIMEOUT_S = 1.0

PAGE_LIMIT_BYTES = 4 * 1024 * 1024
"""vLLM's pages have some 100 KB."""

KEPT_S = 15.0
"""What was said counts for so long: an engine that starts anew is silent for longer."""

READ, UNREAD, FAILED = "read", "unread", "failed"
ENDS = (READ, UNREAD, FAILED)
"""The ends of looks at pages: nothing that is known stood there, or it did not come in time."""


class EngineWatch:
    """The engines of one cluster. `feed` hands events to the machine."""

    def __init__(
        self,
        pages: tuple[UpstreamUrl, ...],
        feed: Callable[[Any], None],
        *,
        period_s: float = PERIOD_S,
        timeout_s: float = PAGE_TIMEOUT_S,
        kept_s: float = KEPT_S,
    ) -> None:
        self._pages = pages
        self._feed = feed
        self._period_s, self._timeout_s, self._kept_s = period_s, timeout_s, kept_s
        self._clients = [
            HttpClient(page.origin, connections_max=2, body_limit_bytes=PAGE_LIMIT_BYTES)
            for page in pages
        ]
        self._said: dict[str, tuple[EngineLoad, float]] = {}
        """What each has said last, and when: pages, and upstreams by header."""
        self._tasks: list[asyncio.Task[None]] = []
        self.ends = dict.fromkeys(ENDS, 0)

    def start(self, group: asyncio.TaskGroup) -> None:
        """Begin to read."""
        self._tasks.append(group.create_task(self._tell()))
        for client, page in zip(self._clients, self._pages, strict=True):
            self._tasks.append(group.create_task(self._read(client, page)))

    def stop(self) -> None:
        """Read no more."""
        for task in self._tasks:
            task.cancel()

    async def close(self) -> None:
        """Let go of everything."""
        self.stop()
        for client in self._clients:
            await client.close()

    def heard(self, upstream: str, header: bytes) -> None:
        """An answer of this upstream has come with the header."""
        load = load_in_header(header)
        if load is not None:
            self._said[upstream] = load, time.monotonic()

    async def _read(self, client: HttpClient, page: UpstreamUrl) -> None:
        while True:
            try:
                answer = await client.request("GET", page.target, timeout_s=self._timeout_s)
            except PeerError:
                self.ends[FAILED] += 1
            else:
                load = load_on_page(answer.body) if answer.status == 200 else None
                self.ends[UNREAD if load is None else READ] += 1
                if load is not None:
                    self._said[page.name] = load, time.monotonic()
            await asyncio.sleep(self._period_s)

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(self._period_s)
            self._feed(EngineSaid(self._known(time.monotonic())))

    def _known(self, now_s: float) -> EngineLoad | None:
        """Returns what all say together; None if nobody does, or a page is silent."""
        self._said = {
            name: (load, said_s)
            for name, (load, said_s) in self._said.items()
            if now_s - said_s <= self._kept_s
        }
        if not self._said or any(page.name not in self._said for page in self._pages):
            return None
        return together(load for load, _ in self._said.values())
