"""Running synchronous work in a pool of threads or processes, one at a time on each server."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor
from typing import Any

import msgspec

from spillover.core.node_events import ServiceEnded, Start
from spillover.live.workers.base import OnEnd
from spillover.model.request import Outcome

_log = logging.getLogger(__name__)


class PooledWorkers:
    """Hands work to a pool and reports its end. Work that runs cannot be stopped: its server
    stays occupied until it returns, whatever became of the request.

    `make_pool` is called at first need, and again after the pool has broken because one of its
    processes died; all that ran in it then has failed.
    """

    def __init__(self, make_pool: Callable[[], Executor], on_end: OnEnd) -> None:
        self._make_pool = make_pool
        self._pool: Executor | None = None
        self._on_end = on_end
        self._running: dict[int, asyncio.Future[bytes]] = {}

    def run(self, command: Start, work: Callable[..., bytes], *args: Any) -> None:
        """Run `work(*args)`, which returns the encoded result, for a started request."""
        loop = asyncio.get_running_loop()
        try:
            running = loop.run_in_executor(self._ready_pool(), work, *args)
        except BrokenExecutor:
            self._pool = None
            running = loop.run_in_executor(self._ready_pool(), work, *args)
        self._running[command.ref] = running
        running.add_done_callback(lambda future: self._ended(command, future))

    def stop(self, ref: int) -> None:
        """Work that waits in the pool for its thread is dropped; what runs, runs on."""
        running = self._running.get(ref)
        if running is not None:
            running.cancel()

    async def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _ready_pool(self) -> Executor:
        if self._pool is None:
            self._pool = self._make_pool()
        return self._pool

    def _ended(self, command: Start, future: asyncio.Future[bytes]) -> None:
        del self._running[command.ref]
        now_s = time.monotonic()
        service_s = max(0.0, now_s - command.at_s)
        if future.cancelled():
            event = ServiceEnded(command.ref, Outcome.CANCELLED, service_s)
        elif (error := future.exception()) is not None:
            event = failed(command, service_s, error)
        else:
            event = ServiceEnded(command.ref, Outcome.DONE, service_s, msgspec.Raw(future.result()))
        self._on_end(event, None)


def failed(command: Start, service_s: float, error: BaseException) -> ServiceEnded:
    """The end of a request whose handler raised: one line for the client, the rest for the log."""
    problem = f"{type(error).__name__}: {error}".split("\n", 1)[0][:500]
    _log.warning("the handler failed on request %s", command.request.id, exc_info=error)
    return ServiceEnded(command.ref, Outcome.FAILED, service_s, problem=problem)
