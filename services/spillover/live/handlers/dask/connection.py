"""The connection to one Dask scheduler: opened, watched, opened anew when it is lost, and closed.

Which workers are used, and for which requests, is in `session`; all of this runs on its loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from random import Random
from typing import Any

from spillover.live.handlers.calls import one_line
from spillover.live.process.logs import Message, OncePerPeriod
from spillover.policy.backoff import backoff_s

CONNECT_S = 5.0

LOOK_EVERY_S = 0.5
STATUS_EVERY_S = 0.1
LOOK_LIMIT_S = 10.0
"""A scheduler that says nothing for so long counts as lost. Long, since a busy one is only slow,
and what it runs is then given up."""

AGAIN_FIRST_S = 0.1
AGAIN_LONGEST_S = 2.0

CLOSE_S = 2.0

_log = logging.getLogger(__name__)
_log.addFilter(OncePerPeriod())


class DaskConnection:
    """`client` is None while there is none; `hear` is given what the scheduler tells of workers."""

    def __init__(self, address: str, hear: Callable[[tuple[float, Any]], None]) -> None:
        self._address = address
        self._hear = hear
        self._random = Random()  # only spreads attempts to connect
        self._look_now = asyncio.Event()
        self.client: Any = None

    @property
    def is_up(self) -> bool:
        """Returns whether the scheduler answers, as far as Dask knows."""
        return self.client is not None and self.client.status == "running"

    async def open(self) -> None:
        """Connect. Raises whatever Dask does."""
        import distributed  # noqa: PLC0415 - an extra

        make: Any = distributed.Client  # it has no types for all of itself
        client = make(
            self._address,
            asynchronous=True,
            set_as_default=False,
            timeout=CONNECT_S,
            name="spillover",
        )
        try:
            async with asyncio.timeout(CONNECT_S + 1.0):
                await client
        except BaseException:
            with contextlib.suppress(Exception):
                await client.close(timeout=CLOSE_S)
            raise
        self.client = client
        client.subscribe_topic("all", self._hear)

    async def open_again(self) -> None:
        """Connect, however often that fails."""
        attempt = 0
        while self.client is None:
            draw = self._random.random()
            await asyncio.sleep(backoff_s(attempt, AGAIN_FIRST_S, AGAIN_LONGEST_S, draw))
            attempt += 1
            try:
                await self.open()
            except Exception as error:  # noqa: BLE001 - whatever it is, it is tried again
                told = {"upstream": self._address, "reason": one_line(error)}
                _log.warning(Message("Dask scheduler still away", **told))
        _log.info(Message("Dask scheduler is back", upstream=self._address))

    async def close(self) -> None:
        """Let go of the client, if there is one."""
        client, self.client = self.client, None
        if client is not None:
            with contextlib.suppress(Exception, asyncio.CancelledError):
                async with asyncio.timeout(CLOSE_S):
                    await client.close(timeout=CLOSE_S)

    async def count_slots(self) -> dict[str, int]:
        """Returns the slots of each worker. Raises TimeoutError, and whatever Dask does."""
        counting = asyncio.ensure_future(self.client.nthreads())
        try:
            async with asyncio.timeout(LOOK_LIMIT_S):
                while not counting.done():
                    # Else Dask would go on to connect where nobody is any more.
                    if not self.is_up:
                        raise ConnectionError("the connection broke")
                    await asyncio.wait([counting], timeout=STATUS_EVERY_S)
            return dict(counting.result())
        finally:
            counting.cancel()

    async def watch(self, compare: Callable[[dict[str, int]], None]) -> str:
        """Hand the slots of each worker to `compare`, again and again; return why the scheduler
        counts as lost, once it does."""
        while True:
            try:
                compare(await self.count_slots())
            except TimeoutError:
                return f"it said nothing for {LOOK_LIMIT_S:g} s"
            except Exception as error:  # noqa: BLE001 - Dask raises many
                return one_line(error)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self._look_now.wait()
            self._look_now.clear()

    def look_now(self) -> None:
        self._look_now.set()
