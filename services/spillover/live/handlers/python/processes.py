"""Worker processes: one for each thread that asks, so that one that dies takes only its own work
with it. They never outlive the node, not even one that was killed.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from spillover.live.handlers.calls import CallResult, failed
from spillover.live.process.forks import leave_signals_to_parent
from spillover.live.process.logs import LogSettings, configure_as, log_settings
from spillover.live.process.parent_death import end_with_parent

JOIN_S = 5.0
"""The time within which processes that were killed, or whose pipe has broken, are gone."""

GONE_POLL_S = 0.005

LOOK_S = 0.5
"""How often to see whether a process lives that says nothing. Its pipe and its sentinel do not
break with it where a child that the handler forked holds them too; only the system knows then."""


@dataclass(slots=True)
class _Call:
    """A call that is to be made or under way."""

    process: BaseProcess | None = None
    killed: bool = False


class ServerProcesses:
    """The processes of one node's servers, each started at its thread's first call.

    `memory_limit_bytes` is what each may take, itself included (None: what there is). Linux heeds
    it; elsewhere it may go unheeded. `prepare` is called first in each process: it loads what calls
    need.
    """

    def __init__(
        self,
        memory_limit_bytes: int | None = None,
        prepare: Callable[[], CallResult] | None = None,
    ) -> None:
        self._memory_limit_bytes = memory_limit_bytes
        self._prepare = prepare
        self._context = multiprocessing.get_context("spawn")
        self._own = threading.local()
        self._lock = threading.Lock()
        self._living: set[BaseProcess] = set()
        self._closed = False
        self._calls_lock = threading.Lock()  # the other one is held while a process is started
        self._calls: dict[int, _Call] = {}
        # multiprocessing waits for its processes at exit, and these do not heed SIGTERM.
        atexit.register(self.close)

    def announce(self, ref: int) -> None:
        """A call is to be made; from now on it can be killed."""
        with self._calls_lock:
            self._calls[ref] = _Call()

    def kill(self, ref: int) -> None:
        """End this call, with its process if it has begun. Does nothing if it has ended."""
        with self._calls_lock:
            call = self._calls.get(ref)
            if call is not None:
                call.killed = True
                if call.process is not None:
                    call.process.kill()

    def call(self, ref: int, work: Callable[..., CallResult], *args: object) -> CallResult:
        """Run `work(*args)` in this thread's process and wait for it, as the announced call `ref`.
        Does not raise."""
        try:
            process = self._ready()
        except OSError as error:
            self.withdraw(ref)
            return CallResult(problem=f"no worker process could be started: {error}")
        if not self._begin(ref, process):
            return CallResult(problem="it was ended before it began", killed=True)
        ended: CallResult | None = None
        try:
            with contextlib.suppress(EOFError, OSError):
                pipe: Connection = self._own.pipe
                pipe.send((work, args))
                ended = _received(pipe, process)
        finally:
            killed = self.withdraw(ref)
        if ended is None:
            problem = f"the worker process died ({self._retire(process)})"
            return CallResult(problem=problem, killed=killed)
        if killed or ended.out_of_memory:
            process.kill()
            self._retire(process)
        return ended

    def warm(self) -> str | None:
        """Have this thread's process ready for calls, if it is not; what is wrong, or None."""
        has_one = getattr(self._own, "process", None) is not None
        if has_one or self._prepare is None:
            return None
        try:
            process = self._ready()
        except OSError as error:
            return None if self._closed else f"no worker process could be started: {error}"
        with contextlib.suppress(EOFError, OSError):
            pipe: Connection = self._own.pipe
            pipe.send((self._prepare, ()))
            return _received(pipe, process).problem
        problem = f"the worker process died ({self._retire(process)})"
        return None if self._closed else problem

    def close(self) -> None:
        """Kill all processes, whatever they are at, and see them off within JOIN_S. Blocks."""
        atexit.unregister(self.close)
        with self._lock:
            self._closed = True
            for process in self._living:
                process.kill()
            _await_gone(self._living)
            self._living.clear()

    def _begin(self, ref: int, process: BaseProcess) -> bool:
        """Returns whether the call is still to be made."""
        with self._calls_lock:
            call = self._calls[ref]
            call.process = process
            if call.killed:
                del self._calls[ref]
            return not call.killed

    def withdraw(self, ref: int) -> bool:
        """Keep the call from being killed from now on. Returns whether it was."""
        with self._calls_lock:
            return self._calls.pop(ref).killed

    def _ready(self) -> BaseProcess:
        """This thread's process. Raises OSError if none can be started."""
        process: BaseProcess | None = getattr(self._own, "process", None)
        if process is not None and _lives(process):
            return process
        self._own.process = None
        with self._lock:
            if self._closed:
                raise OSError("the node ends")
            pipe, theirs = self._context.Pipe()
            arguments = (theirs, self._memory_limit_bytes, log_settings())
            process = self._context.Process(target=_serve, args=arguments)
            process.start()
            theirs.close()
            self._living = {other for other in self._living if _lives(other)} | {process}
        self._own.process, self._own.pipe = process, pipe
        return process

    def _retire(self, process: BaseProcess) -> str:
        """See a process off; how it ended."""
        self._own.process = None
        _await_gone([process])
        code = process.exitcode
        if code is None:  # it has no end, or another part of the program was told of it
            return "how is not known"
        return f"signal {-code}" if code < 0 else f"exit status {code}"


def _received(pipe: Connection, process: BaseProcess) -> CallResult:
    """Returns the message of the process. Raises EOFError or OSError if it dies before that."""
    while not pipe.poll(LOOK_S):
        if not _lives(process) and not pipe.poll():
            raise EOFError
    ended: CallResult = pipe.recv()
    return ended


def _lives(process: BaseProcess) -> bool:
    """Returns whether the process has not ended. `is_alive` alone cannot tell where the handler's
    module has SIGCHLD ignored: the system then forgets processes at their end."""
    if not process.is_alive() or process.pid is None:
        return False
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return False
    return True


def _await_gone(processes: Iterable[BaseProcess]) -> None:
    """Wait for them, JOIN_S in all. Not by `join`, which goes by the sentinel."""
    until_s = time.monotonic() + JOIN_S
    while any(_lives(process) for process in processes) and time.monotonic() < until_s:
        time.sleep(GONE_POLL_S)


def _serve(pipe: Connection, memory_limit_bytes: int | None, logs: LogSettings | None) -> None:
    """The life of a worker process: it ends when the node does. Signals are left to the node, and
    it logs as the node does."""
    leave_signals_to_parent()
    end_with_parent()
    if logs is not None:
        configure_as(logs)
    if memory_limit_bytes is not None:
        _limit_memory(memory_limit_bytes)
    with contextlib.suppress(EOFError, OSError, MemoryError):
        own = os.getpid()
        while True:
            work, args = pipe.recv()
            ended = work(*args)
            if os.getpid() != own:  # a child that the handler forked came back with it
                os._exit(0)  # else the next request would be given what it says
            try:
                pipe.send(ended)
            except MemoryError as error:  # encoded before any of it is sent
                pipe.send(failed(error))


def _limit_memory(limit_bytes: int) -> None:
    """Limit the data, not the address space: libraries map far more than they ever touch."""
    import resource  # noqa: PLC0415 - not there on every system

    _, hard_bytes = resource.getrlimit(resource.RLIMIT_DATA)
    if hard_bytes != resource.RLIM_INFINITY:
        limit_bytes = min(limit_bytes, hard_bytes)
    resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, limit_bytes))
