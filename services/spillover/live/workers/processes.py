"""Worker processes: one for each thread that asks, so that one that dies takes only its own work
with it. They never outlive the node, not even one that was killed.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from spillover.live.orphans import end_with_parent
from spillover.live.workers.calls import Ended

JOIN_S = 5.0
"""For a process whose pipe has broken to be gone."""


class ServerProcesses:
    """The processes of one node's servers, each started at its thread's first call."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._own = threading.local()
        self._lock = threading.Lock()
        self._living: set[BaseProcess] = set()
        self._closed = False
        # multiprocessing waits for its processes at exit, and these do not heed SIGTERM.
        atexit.register(self.close)

    def call(self, work: Callable[..., Ended], *args: object) -> Ended:
        """Run `work(*args)` in this thread's process and wait for it. Does not raise."""
        process: BaseProcess | None = getattr(self._own, "process", None)
        if process is not None and not process.is_alive():
            process = None
        try:
            if process is None:
                process = self._start()
            pipe: Connection = self._own.pipe
            pipe.send((work, args))
            ended: Ended = pipe.recv()
        except (EOFError, OSError) as error:
            if process is None:
                return Ended(problem=f"no worker process could be started: {error}")
            return self._died(process)
        return ended

    def close(self) -> None:
        """Kill all processes, whatever they are at."""
        atexit.unregister(self.close)
        with self._lock:
            self._closed = True
            for process in self._living:
                process.kill()
            for process in self._living:
                process.join(JOIN_S)
            self._living.clear()

    def _start(self) -> BaseProcess:
        self._own.process = None
        with self._lock:
            if self._closed:
                raise OSError("the node ends")
            pipe, theirs = self._context.Pipe()
            process = self._context.Process(target=_serve, args=(theirs,))
            process.start()
            theirs.close()
            self._living = {other for other in self._living if other.is_alive()} | {process}
        self._own.process, self._own.pipe = process, pipe
        return process

    def _died(self, process: BaseProcess) -> Ended:
        self._own.process = None
        process.join(JOIN_S)
        code = process.exitcode
        how = f"signal {-code}" if code is not None and code < 0 else f"exit status {code}"
        return Ended(problem=f"the worker process died ({how})")


def _serve(pipe: Connection) -> None:
    """The life of a worker process: it ends when the node does. Signals are left to the node."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    end_with_parent()
    with contextlib.suppress(EOFError, OSError):
        while True:
            work, args = pipe.recv()
            pipe.send(work(*args))
