"""An event loop in a thread of its own, for code that never awaits. What runs there is not known
here.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from spillover.live.process.own_threads import start_own

T = TypeVar("T")


class LoopThread:
    """A loop that runs until `close`, which must come before Python itself ends. Calls may come
    from any other thread of the process that made it."""

    def __init__(self, name: str) -> None:
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._process = os.getpid()
        start_own(self._thread)
        self._ready.wait()

    def begin(self, main: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Have it run there, and return the future of what it returns."""
        try:
            self.check_process()
        except RuntimeError:
            main.close()
            raise
        return asyncio.run_coroutine_threadsafe(main, self._loop)

    @property
    def is_of_parent(self) -> bool:
        """Returns whether this process was forked from the one that made it. The thread has not
        followed, and what the loop holds is the parent's."""
        return os.getpid() != self._process

    def check_process(self) -> None:
        """Raises RuntimeError after a fork: to wait would be for ever."""
        if self.is_of_parent:
            raise RuntimeError(f"{self._thread.name}: expected to be made anew after a fork")

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run it there, and return what it returns. Ctrl-C ends the wait, and what runs."""
        future = self.begin(main)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """End the loop, and wait until it has."""
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()

    def _run(self) -> None:
        asyncio.run(self._live())

    async def _live(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        self._ready.set()
        await self._end.wait()
