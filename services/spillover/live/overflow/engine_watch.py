"""What the engines behind a node say of themselves: their pages are read each second, their headers
as they come. The machine hears of all together, of headers where pages do not say it.

A page has a second, and a size: what is later or longer is not read. What was said last counts for
a while, then nothing is known. One look is told once: what has not been said again is no second
look that found the same.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from spillover.core.overflow.events import EngineSaid
from spillover.live.handlers.engine_load import load_in_header, load_on_page, together
from spillover.live.http1.client import HttpClient
from spillover.model.engine_load import EngineLoad
from spillover.model.errors import PeerError
from spillover.model.upstream_urls import UpstreamUrl
from spillover.policy.capacity import holds_back

PERIOD_S = 1.0
"""Pages are read so often: engines begin and end requests in about this time."""

PAGE_TIMEOUT_S = 1.0

PAGE_LIMIT_BYTES = 1 << 20
"""vLLM's pages have some 100 KB."""

KEPT_S = 15.0
"""What was said counts for so long: an engine that starts anew is silent for longer."""

READ, UNREAD, FAILED = "read", "unread", "failed"
ENDS = (READ, UNREAD, FAILED)
"""The ends of looks at pages: nothing that is known stood there, or it did not come in time."""


class _Said(NamedTuple):
    load: EngineLoad
    at_s: float

    @property
    def holds_back(self) -> bool:
        return holds_back(self.load.waiting or 0.0, self.load.held or 0.0)


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
        self._on_pages: dict[UpstreamUrl, _Said] = {}
        """What each page has said last."""
        self._in_headers: dict[str, _Said] = {}
        """What each upstream has said last."""
        self._told_s = -math.inf
        self._is_known = False
        """Whether the machine knows anything."""
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
            self._in_headers[upstream] = _Said(load, time.monotonic())

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
                    self._on_pages[page] = _Said(load, time.monotonic())
            await asyncio.sleep(self._period_s)

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(self._period_s)
            self.tell(time.monotonic())

    def tell(self, now_s: float) -> None:
        """Tell the machine what is new: if some engine has spoken since it was told last, and each
        that holds requests back has. That nothing is known any more it is told once."""
        said = self._counting(now_s)
        news = [one for one in said if one.at_s > self._told_s]
        if said and (not news or any(one.holds_back and one not in news for one in said)):
            return
        if said or self._is_known:
            self._told_s, self._is_known = now_s, bool(said)
            self._feed(EngineSaid(together(one.load for one in said) if said else None))

    def _counting(self, now_s: float) -> list[_Said]:
        """Returns what counts: what all pages say, or headers if a page is silent."""
        on_pages, in_headers = (
            [one for one in said if now_s - one.at_s <= self._kept_s]
            for said in (self._on_pages.values(), self._in_headers.values())
        )
        return on_pages if len(on_pages) == len(self._pages) > 0 else in_headers
