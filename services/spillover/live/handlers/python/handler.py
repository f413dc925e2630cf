"""The handler `python:MODULE:FUNCTION`: calls F(payload) or F(payload, ctx).

An async function runs on the node's loop and is cancelled when its result is no longer wanted. A
plain function runs in a thread (or process) per server and cannot be stopped; in a thread it may
look at `ctx.cancelled`, a process may be killed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import cache, partial
from threading import Event
from typing import Any

import msgspec

from spillover.core.overflow.events import ServiceEnded, Start
from spillover.live.engine.timers import Timer, Timers
from spillover.live.handlers.base import OnEnd
from spillover.live.handlers.calls import CallResult, arguments, call, encoded, failed
from spillover.live.handlers.ends import event_of
from spillover.live.handlers.python.functions import Context, is_async, load_function, takes_context
from spillover.live.handlers.python.pooled import PooledWorkers
from spillover.live.handlers.python.processes import ServerProcesses
from spillover.live.process.logs import Message, OncePerPeriod, about
from spillover.model.errors import InputError
from spillover.model.ids import ClusterId, told_inside
from spillover.model.request import Outcome
from spillover.model.topology import Cluster

END_S = 1.0
"""The time that async handlers have to heed that the node ends."""

_log = logging.getLogger(__name__)
_log.addFilter(OncePerPeriod())


def python_workers(
    cluster: Cluster, source: str, timers: Timers, on_end: OnEnd
) -> AsyncWorkers | SyncWorkers:
    """Returns the servers of a cluster whose handler is a python function.

    Raises InputError, naming `source`, if it cannot be imported or called, or not be held to the
    limits that the cluster sets.
    """
    function = load_function(cluster.handler, source)
    if not is_async(function):
        return SyncWorkers(function, cluster, timers, on_end)
    for name in ("memory_limit_bytes", "kill_after_ms"):
        if getattr(cluster, name) is not None:
            expected = f"expected a plain function for it, {cluster.handler} is async"
            raise InputError(source, name, expected)
    return AsyncWorkers(function, cluster.id, on_end)


class AsyncWorkers:
    """Runs an async function on the node's own loop."""

    def __init__(self, function: Callable[..., Any], cluster: ClusterId, on_end: OnEnd) -> None:
        self._function = function
        self._takes_context = takes_context(function)
        self._cluster = cluster
        self._on_end = on_end
        self._running: dict[int, tuple[asyncio.Task[CallResult], Context]] = {}

    def problem_with(self, payload: msgspec.Raw) -> str | None:  # noqa: ARG002 - any JSON will do
        return None

    def start(self, command: Start) -> None:
        context = _context(command, self._cluster, Event())
        task = asyncio.get_running_loop().create_task(self._call(command, context))
        self._running[command.ref] = task, context
        task.add_done_callback(lambda done: self._ended(command, context, done))

    def stop(self, ref: int) -> None:
        task, context = self._running[ref]
        context.cancel()
        task.cancel()

    async def close(self) -> None:
        """Cancel all, and wait a moment for them to let go of what they hold."""
        for ref in self._running:
            self.stop(ref)
        tasks = [task for task, _ in self._running.values()]
        for task, context in self._running.values():
            task.set_name(f"request {context.id}")  # told should it outlast the node
        if tasks:
            await asyncio.wait(tasks, timeout=END_S)

    async def _call(self, command: Start, context: Context) -> CallResult:
        try:
            given = arguments(command.request.work, context, self._takes_context)
            return encoded(await self._function(*given))
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - SystemExit in a task would end the loop
            return failed(error)

    def _ended(self, command: Start, context: Context, task: asyncio.Task[CallResult]) -> None:
        del self._running[command.ref]
        if not task.cancelled():
            event = event_of(command, task.result())
        elif context.cancelled:
            service_s = max(0.0, time.monotonic() - command.at_s)
            event = ServiceEnded(command.ref, Outcome.CANCELLED, service_s)
        else:
            event = event_of(command, failed(asyncio.CancelledError("by the handler itself")))
        self._on_end(event, None)


class SyncWorkers(PooledWorkers):
    """Runs a plain function, in a thread or a process per server."""

    def __init__(
        self, function: Callable[..., Any], cluster: Cluster, timers: Timers, on_end: OnEnd
    ) -> None:
        in_processes = cluster.workers == "process"
        prepare = partial(prepare_named, cluster.handler)
        limit_bytes = cluster.memory_limit_bytes
        processes = ServerProcesses(limit_bytes, prepare) if in_processes else None
        super().__init__(on_end, processes)
        self._function = function
        self._takes_context = takes_context(function)
        self._cluster = cluster
        self._timers = timers
        self._contexts: dict[int, Context] = {}
        self._stopped: dict[int, Timer] = {}

    def problem_with(self, payload: msgspec.Raw) -> str | None:  # noqa: ARG002 - any JSON will do
        return None

    async def be_ready(self, count: int, source: str) -> None:
        """Return when so many worker processes have imported the function. Raises InputError,
        naming `source`, if one cannot."""
        problem = await self.warm(count)
        if problem is not None:
            raise InputError(source, "handler", f"in a worker process: {problem}")

    def start(self, command: Start) -> None:
        payload = bytes(memoryview(command.request.work))
        if self._processes is not None:
            context = _context(command, self._cluster.id, None)
            self.run(command, call_named, self._cluster.handler, payload, context)
        else:
            context = _context(command, self._cluster.id, Event())
            self._contexts[command.ref] = context
            self.run(command, call, self._function, payload, context, self._takes_context)

    def stop(self, ref: int) -> None:
        """Stop a call. It runs on, and may look whether it should; a process that does so for too
        long is killed, where the cluster says how long that is."""
        context = self._contexts.get(ref)
        if context is not None:
            context.cancel()
        kill_after_ms = self._cluster.kill_after_ms
        if kill_after_ms is not None:
            due_s = time.monotonic() + kill_after_ms / 1e3
            self._stopped[ref] = self._timers.at(due_s, lambda _: self._kill(ref))

    def _kill(self, ref: int) -> None:
        if self._processes is not None:
            self._processes.kill(ref)

    def _ended(self, command: Start, ended: CallResult) -> None:
        ref = command.ref
        self._contexts.pop(ref, None)
        timer = self._stopped.pop(ref, None)
        if timer is not None:
            timer.cancel()
        if not ended.killed:
            super()._ended(command, ended)
            return
        request = command.request
        _log.warning(Message("killed what ran on", **about(request), reason=ended.problem))
        service_s = max(0.0, time.monotonic() - command.at_s)
        self._on_end(ServiceEnded(ref, Outcome.CANCELLED, service_s), None)


def prepare_named(handler: str) -> CallResult:
    """Prepare a handler in a worker process, before it is called."""
    try:
        _loaded(handler)
    except InputError as error:
        return CallResult(problem=error.expected)
    except BaseException as error:  # noqa: BLE001 - whatever a module does when it is imported
        return failed(error)
    return CallResult()


def call_named(handler: str, payload: bytes, context: Context) -> CallResult:
    """Call a handler in a worker process: by name, since not every function can be sent to one."""
    try:
        function, with_context = _loaded(handler)
    except InputError as error:
        return failed(error)
    return call(function, payload, context, with_context)


@cache
def _loaded(handler: str) -> tuple[Callable[..., Any], bool]:
    function = load_function(handler, "worker process")
    return function, takes_context(function)


def _context(command: Start, cluster: ClusterId, cancelled: Event | None) -> Context:
    request = command.request
    remaining_ms = (command.deadline_s - time.monotonic()) * 1e3
    return Context(told_inside(request.id), request.type, cluster, remaining_ms, cancelled)
