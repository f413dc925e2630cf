"""Processes of ours that a tool starts: talked to over a pipe, and never left behind."""

from __future__ import annotations

import asyncio
import inspect
import multiprocessing
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any, Protocol, Self

from spillover.live.process.parent_death import end_with_parent
from spillover.model.errors import RunError, SpilloverError

END_WITHIN_S = 5.0
FILES = 65_536
"""That a process may open, where the system allows that many."""


class Child:
    """`target(*args, connection)` runs in a process, which is there on entry and ended on exit. A
    coroutine function runs in a loop of uvloop; the other side hears a SpilloverError or an OSError
    of it as a RunError. `name` is for messages."""

    def __init__(self, name: str, target: Callable[..., Any], *args: object) -> None:
        # Spawned, not forked: nothing of this process, its threads least of all, is copied.
        context = multiprocessing.get_context("spawn")
        self._name = name
        self.connection, self._there = context.Pipe()
        self._process = context.Process(
            target=_begin, args=(target, *args, self._there), daemon=True
        )
        self._pid: int | None = None
        self._has_ended = False

    @property
    def pid(self) -> int:
        if self._pid is None:
            raise RunError(f"{self._name} was not started")
        return self._pid

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.end()

    def start(self) -> Self:
        with _interrupts_for_us_alone():
            self._process.start()
        self._pid = self._process.pid
        self._there.close()
        return self

    def end(self) -> None:
        """End it, however far it is. The second time nothing is left to do: an interrupt may come
        between the end of a process and the note of it."""
        if self._has_ended:
            return
        self._process.terminate()
        self._process.join(END_WITHIN_S)
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join()
        self._has_ended = True
        self._process.close()
        self.connection.close()

    def send(self, value: object) -> None:
        """Hands it a value. Raises RunError if it is gone."""
        try:
            self.connection.send(value)
        except OSError:
            raise RunError(f"{self._name} died") from None

    async def receive(self, within_s: float | None = None) -> Any:
        """Returns the next value from it. Raises RunError if it dies or takes longer, and if the
        value is one."""
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        loop.add_reader(self.connection.fileno(), readable.set)
        try:
            async with asyncio.timeout(within_s):
                await readable.wait()
            value = self.connection.recv()
        except TimeoutError:
            raise RunError(f"{self._name} said nothing for {within_s:.0f} s") from None
        except (EOFError, OSError):
            raise RunError(f"{self._name} died") from None
        finally:
            loop.remove_reader(self.connection.fileno())
        if isinstance(value, RunError):
            raise value
        return value


class Job(Protocol):
    """One thing for a `Worker` to do."""

    async def run(self, kept: Any, /) -> Any:
        """Does it in the worker's process, and returns what the other side is to hear."""


class Worker(Child):
    """A process does one job after the other. It keeps what `make()` gives there, for jobs to leave
    their connections in: these stay open until the process ends."""

    def __init__(self, name: str, make: Callable[[], object]) -> None:
        super().__init__(name, _do_jobs, make)

    async def do(self, job: Job, within_s: float) -> Any:
        """Returns what the job gives. Raises RunError if it fails or takes longer."""
        self.send(job)
        return await self.receive(within_s)


async def _do_jobs(make: Callable[[], object], connection: Connection) -> None:
    kept = make()
    while True:
        job: Job = await asyncio.to_thread(connection.recv)
        try:
            connection.send(await job.run(kept))
        except (SpilloverError, OSError) as error:
            connection.send(RunError(str(error)))


@contextmanager
def _interrupts_for_us_alone() -> Iterator[None]:
    """Processes started within do not feel Ctrl-C, which goes to all of a terminal's: we end them.

    A process inherits what its parent blocks. An interrupt that comes meanwhile is not lost.
    """
    # Starting it lazily, as the first process would do, unblocks what is blocked here.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(target: Callable[..., Any], *args: Any) -> None:
    """Each process first leaves Ctrl-C to the tool, sees to it that it ends when the tool does, and
    asks to be allowed thousands of connections."""
    signal.signal(signal.SIGINT, lambda *_: None)  # SIG_IGN would outlast an exec
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    end_with_parent()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(hard, FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    if not inspect.iscoroutinefunction(target):
        target(*args)
        return
    import uvloop  # noqa: PLC0415 - those that compute do without

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(target(*args))
        except (SpilloverError, OSError) as error:
            with suppress(OSError):
                args[-1].send(RunError(str(error)))
