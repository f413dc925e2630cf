"""Threads that run synchronous work and never hold up the node's end.

The standard executor joins its threads when the interpreter exits: work that never returns would
keep a node alive that was told to end.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable


class ServerThreads:
    """Daemon threads, started as they are needed: as many as there ever were jobs at a time."""

    def __init__(self) -> None:
        self._started = 0
        self._under_way = 0
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def submit(self, job: Callable[[], None]) -> None:
        """Run a job, which must not raise, as soon as a thread is free. It is under way until
        `ended` is called.

        Raises RuntimeError where the system gives no thread.
        """
        if self._started == self._under_way:
            name = f"server-{self._started}"
            threading.Thread(target=self._work, name=name, daemon=True).start()
            self._started += 1
        self._under_way += 1
        self._jobs.put(job)

    def ended(self) -> None:
        """A job is not under way any more: its thread is free, or about to be."""
        self._under_way -= 1

    def _work(self) -> None:
        while True:
            self._jobs.get()()
