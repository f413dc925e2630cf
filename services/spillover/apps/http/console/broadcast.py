"""One look for all listeners: a poller that runs only while somebody listens.

Each listener gets the newest update there is when it has taken the last one, so that one who reads
slowly skips some, and nothing ever piles up. What an update says is not known here.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable

from spillover.live.process.logs import OncePerPeriod

LISTENERS_MAX = 32
OF_ONE_MAX = 8
"""The most listeners with one API token: nobody can take the places of all others."""

HEARTBEAT_S = 1.0
"""So often a listener hears something, even if there is nothing new: the page can tell a service
that is silent from one that is gone."""

BEAT = b"event: beat\ndata: {}\n\n"

_log = logging.getLogger(__name__)
_log.addFilter(OncePerPeriod())


class TooManyListeners(Exception):
    """As many listen already as may; it says in words how many that is."""


class Broadcast:
    """Asks `look` for the data of an update (JSON on one line) every `period_s` at most."""

    def __init__(self, look: Callable[[], Awaitable[bytes]], period_s: float) -> None:
        self._look = look
        self._period_s = period_s
        self.listeners = 0
        self._held: Counter[str] = Counter()
        """Places, by the names of API tokens."""
        self._polling: asyncio.Task[None] | None = None
        self._newest = b""
        self._number = 0
        """The number of the newest update. 0: there is none yet since somebody listens."""
        self._news = asyncio.Condition()
        self._closed = False

    @property
    def polling(self) -> bool:
        return self._polling is not None

    def join(self, holder: str | None = None) -> None:
        """Take a place, for whoever has that API token; to be given back by `leave`. Raises
        TooManyListeners."""
        if self.listeners >= LISTENERS_MAX:
            raise TooManyListeners(f"{LISTENERS_MAX} pages that listen at a time")
        if holder is not None:
            if self._held[holder] >= OF_ONE_MAX:
                most = f"{OF_ONE_MAX} pages that listen at a time with this API token"
                raise TooManyListeners(most)
            self._held[holder] += 1
        self.listeners += 1
        if self._polling is None and not self._closed:
            self._number = 0  # what was seen before is old
            self._polling = asyncio.create_task(self._poll(), name="console")

    def leave(self, holder: str | None = None) -> None:
        """The last one to leave ends the poller."""
        self.listeners -= 1
        if holder is not None:
            self._held[holder] -= 1
            self._held += Counter()  # without those that are 0
        if self.listeners == 0:
            self._stop()

    def close(self) -> None:
        """End all streams: an open one holds up the server."""
        self._closed = True
        self._stop()
        # Nobody may be there to be told, and then nothing has to be done.
        if self.listeners:
            self._telling = asyncio.create_task(self._tell(), name="console's end")

    async def events(self) -> AsyncIterator[bytes]:
        """Whenever there is something new, the newest; a beat now and then. Ends with `close`."""
        seen = 0
        while not self._closed:
            try:
                async with asyncio.timeout(HEARTBEAT_S), self._news:
                    await self._news.wait_for(lambda: self._closed or self._number > seen)  # noqa: B023
            except TimeoutError:
                yield BEAT
                continue
            if not self._closed:
                seen = self._number
                yield self._newest

    async def _poll(self) -> None:
        loop = asyncio.get_running_loop()
        next_s = loop.time()
        while True:
            try:
                data = await self._look()
            except Exception:  # noqa: BLE001 - a bug here must not end the stream of beats
                _log.exception("the console has nothing to show")
            else:
                self._newest = b"event: update\ndata: %b\n\n" % data
                await self._tell()
            next_s = max(next_s + self._period_s, loop.time() + self._period_s / 4)
            await asyncio.sleep(next_s - loop.time())

    async def _tell(self) -> None:
        async with self._news:
            self._number += 1
            self._news.notify_all()

    def _stop(self) -> None:
        if self._polling is not None:
            self._polling.cancel()
            self._polling = None
