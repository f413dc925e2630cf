"""Running synchronous work in threads, or in processes behind them: one call on each server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial

from spillover.core.overflow.events import Start
from spillover.live.handlers.base import OnEnd
from spillover.live.handlers.calls import Ended, failed
from spillover.live.handlers.ends import event_of
from spillover.live.handlers.python.processes import ServerProcesses
from spillover.live.handlers.python.threads import ServerThreads


class PooledWorkers:
    """Hands work to threads and reports its end. Work that runs cannot be stopped: its server
    stays occupied until it returns, whatever became of the request, or until its process is killed.
    """

    def __init__(self, on_end: OnEnd, processes: ServerProcesses | None = None) -> None:
        self._threads = ServerThreads()
        self._processes = processes
        self._on_end = on_end

    def run(self, command: Start, work: Callable[..., Ended], *args: object) -> None:
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

        try:
            self._threads.submit(job)
        except RuntimeError as error:
            if self._processes is not None:
                self._processes.withdraw(command.ref)
            loop.call_soon(partial(self._ended, command, failed(error)))

    async def close(self) -> None:
        """Kill the processes; threads are left to end with the node."""
        if self._processes is not None:
            await asyncio.to_thread(self._processes.close)

    def _returned(self, command: Start, ended: Ended) -> None:
        self._threads.ended()
        self._ended(command, ended)

    def _ended(self, command: Start, ended: Ended) -> None:
        self._on_end(event_of(command, ended), None)
