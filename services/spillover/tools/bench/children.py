"""Processes of ours that a benchmark starts: talked to over a pipe, and never left behind."""

from __future__ import annotations

import asyncio
import multiprocessing
import resource
import signal
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from spillover.live.process.parent_death import end_with_parent
from spillover.model.errors import RunError

END_WITHIN_S = 5.0
FILES = 65_536
"""That a process may open, where the system allows that many."""


class Child:
    """`target(*args, connection)` in a process: there on entry, ended on exit. `name` is for
    messages."""

    def __init__(self, name: str, target: Callable[..., None], *args: object) -> None:
        context = multiprocessing.get_context("spawn")
        self._name = name
        self._here, self._there = context.Pipe()
        self._process = context.Process(target=target, args=(*args, self._there), daemon=True)

    @property
    def pid(self) -> int:
        if self._process.pid is None:
            raise RunError(f"{self._name} was not started")
        return self._process.pid

    async def __aenter__(self) -> Self:
        self._process.start()
        self._there.close()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.terminate()
        self._process.join(END_WITHIN_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._here.close()

    def send(self, value: object) -> None:
        """Hand it a value. Raises RunError if it is gone."""
        try:
            self._here.send(value)
        except OSError:
            raise RunError(f"{self._name} died") from None

    async def receive(self, within_s: float) -> Any:
        """The next value from it. Raises RunError if it dies or takes longer, and if the value is
        one."""
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        loop.add_reader(self._here.fileno(), readable.set)
        try:
            async with asyncio.timeout(within_s):
                await readable.wait()
            value = self._here.recv()
        except TimeoutError:
            raise RunError(f"{self._name} said nothing for {within_s:.0f} s") from None
        except (EOFError, OSError):
            raise RunError(f"{self._name} died") from None
        finally:
            loop.remove_reader(self._here.fileno())
        if isinstance(value, RunError):
            raise value
        return value


def begin_child() -> None:
    """What every target does first: leave Ctrl-C to the benchmark, end when it does however that
    ends, and be allowed thousands of connections."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(hard, FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
