"""Threads that run synchronous work and never hold up the node's end.

The standard executor joins its threads when the interpreter exits: work that never returns would
keep a node alive that was told to end.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable


class ServerThreads:
    """At most `limit` daemon threads, started as they are needed."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._started = 0
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)

    def submit(self, job: Callable[[], None]) -> None:
        """Run a job, which must not raise, as soon as a thread is free.

        Raises RuntimeError where the system gives no thread.
        """
        if not self._idle.acquire(blocking=False) and self._started < self._limit:
            name = f"server-{self._started}"
            threading.Thread(target=self._work, name=name, daemon=True).start()
            self._started += 1
        self._jobs.put(job)

    def _work(self) -> None:
        while True:
            self._jobs.get()()
            self._idle.release()
