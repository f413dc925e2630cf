"""The reports of the engines behind a node: their pages are read each second, their headers as they
come. The machine gets all of them together, and headers only where pages do not say the same.

A page has a second, and a size: what is later or longer is not read. The last report counts for a
while; after that nothing is known. The machine gets each look once, since a report that was not
repeated is no second look that found the same.
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
"""The time, in seconds, between two reads of a page: engines begin and end requests in about this
time."""

PAGE_TIMEOUT_S = 1.0

PAGE_LIMIT_BYTES = 1 << 20
"""The largest page, in bytes. vLLM's pages have some 100 KB."""

KEPT_S = 15.0
"""The time, in seconds, for which the last report of an engine counts. An engine that starts anew
is silent for longer."""

READ, UNREAD, FAILED = "read", "unread", "failed"
ENDS = (READ, UNREAD, FAILED)
"""The ends of looks at pages: the page was read, it held nothing that is known, or it did not come
in time."""


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
        """The last report of each page."""
        self._in_headers: dict[str, _Said] = {}
        """The last report in headers of each upstream."""
        self._told_s = -math.inf
        self._is_known = False
        """Whether the machine knows anything of the engines."""
        self._tasks: list[asyncio.Task[None]] = []
        self.ends = dict.fromkeys(ENDS, 0)

    def start(self, group: asyncio.TaskGroup) -> None:
        self._tasks.append(group.create_task(self._tell()))
        for client, page in zip(self._clients, self._pages, strict=True):
            self._tasks.append(group.create_task(self._read(client, page)))

    def stop(self) -> None:
        """Read no more pages."""
        for task in self._tasks:
            task.cancel()

    async def close(self) -> None:
        self.stop()
        for client in self._clients:
            await client.close()

    def heard(self, upstream: str, header: bytes) -> None:
        """Take the header with which an answer of this upstream has come."""
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
        """Tell the machine what is new: if some engine has reported since the last call that told
        something, and each engine that holds requests back has. The news that nothing is known any
        more is told once."""
        said, is_whole = self._counting(now_s)
        news = [one for one in said if one.at_s > self._told_s]
        if said and (not news or any(one.holds_back and one not in news for one in said)):
            return
        if said or self._is_known:
            self._told_s, self._is_known = now_s, bool(said)
            load = together(one.load for one in said) if said else None
            if load is not None and not is_whole:
                load = load._replace(running=None)
            self._feed(EngineSaid(load))

    def _counting(self, now_s: float) -> tuple[list[_Said], bool]:
        """Returns the reports that count: those of all pages, or headers if a page is silent. The
        second value is whether they are of all engines: one that has spoken in headers is silent
        while no answer comes from it."""
        on_pages, in_headers = (
            [one for one in said if now_s - one.at_s <= self._kept_s]
            for said in (self._on_pages.values(), self._in_headers.values())
        )
        if len(on_pages) == len(self._pages) > 0:
            return on_pages, True
        return in_headers, len(in_headers) == len(self._in_headers)
