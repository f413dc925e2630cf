"""Running synchronous work in threads, or in processes behind them: one call on each server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from functools import partial

from spillover.core.overflow.events import Start
from spillover.live.handlers.base import OnEnd
from spillover.live.handlers.calls import CallResult, failed
from spillover.live.handlers.ends import event_of
from spillover.live.handlers.python.processes import ServerProcesses
from spillover.live.handlers.python.threads import ServerThreads
from spillover.live.process.logs import Message, OncePerPeriod

_log = logging.getLogger(__name__)
_log.addFilter(OncePerPeriod())


class PooledWorkers:
    """Hands work to threads and reports its end. Work that runs cannot be stopped: its server
    stays occupied until it returns, whatever became of the request, or until its process is killed.
    """

    def __init__(self, on_end: OnEnd, processes: ServerProcesses | None = None) -> None:
        self._threads = ServerThreads()
        self._processes = processes
        self._on_end = on_end

    def run(self, command: Start, work: Callable[..., CallResult], *args: object) -> None:
        """Run `work(*args)`, which must not raise, for a started request."""
        loop = asyncio.get_running_loop()
        if self._processes is not None:
            self._processes.announce(command.ref)
            work, args = self._processes.call, (command.ref, work, *args)

        def job() -> None:
            try:
                ended = work(*args)
            except BaseException as error:  # noqa: BLE001 - else a server would be lost for good
                ended = failed(error)
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(self._returned, command, ended)
            # The process may have died: the next one is warm before this thread takes more work.
            if self._processes is not None and (problem := self._processes.warm()) is not None:
                _log.warning(Message("a worker process is not ready", reason=problem))

        try:
            self._threads.submit(job)
        except RuntimeError as error:
            if self._processes is not None:
                self._processes.withdraw(command.ref)
            loop.call_soon(partial(self._ended, command, failed(error)))

    async def warm(self, count: int) -> str | None:
        """Have so many processes ready for calls, each behind a thread of its own; what is wrong
        with one of them, or None. Does nothing where there are none."""
        if (processes := self._processes) is None:
            return None
        loop, all_there = asyncio.get_running_loop(), threading.Barrier(count)
        warmed: list[asyncio.Future[str | None]] = []

        def job(done: asyncio.Future[str | None]) -> None:
            problem: str | None = "no room for more threads"
            with contextlib.suppress(threading.BrokenBarrierError):
                all_there.wait()  # else one thread might take the jobs of two
                problem = processes.warm()
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._warmed, done, problem)

        try:
            for _ in range(count):
                done = loop.create_future()
                self._threads.submit(partial(job, done))
                warmed.append(done)
        except RuntimeError:
            all_there.abort()
        problems = [problem for problem in await asyncio.gather(*warmed) if problem is not None]
        if not problems and len(warmed) < count:
            return "no room for more threads"
        return problems[0] if problems else None

    def _warmed(self, done: asyncio.Future[str | None], problem: str | None) -> None:
        self._threads.ended()
        if not done.done():
            done.set_result(problem)

    async def close(self) -> None:
        """Kill the processes; threads are left to end with the node."""
        if self._processes is not None:
            await asyncio.to_thread(self._processes.close)

    def _returned(self, command: Start, ended: CallResult) -> None:
        self._threads.ended()
        self._ended(command, ended)

    def _ended(self, command: Start, ended: CallResult) -> None:
        self._on_end(event_of(command, ended), None)
