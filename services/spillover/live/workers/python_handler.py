"""The handler `python:MODULE:FUNCTION`: calls F(payload) or F(payload, ctx).

An async function runs on the node's loop and is cancelled when its result is no longer wanted. A
plain function runs in a thread (or process) per server and cannot be stopped; from a thread it may
look at `ctx.cancelled`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import cache
from threading import Event
from typing import Any

import msgspec

from spillover.core.node_events import ServiceEnded, Start
from spillover.live.workers.base import OnEnd
from spillover.live.workers.calls import Ended, arguments, call, encoded, failed
from spillover.live.workers.functions import Context, is_async, load_function, takes_context
from spillover.live.workers.pooled import PooledWorkers, service_ended
from spillover.model.errors import InputError
from spillover.model.ids import ClusterId
from spillover.model.request import Outcome
from spillover.model.topology import Cluster

END_S = 1.0
"""For async handlers to heed that the node ends."""


def python_workers(cluster: Cluster, source: str, on_end: OnEnd) -> AsyncWorkers | SyncWorkers:
    """The servers of a cluster whose handler is a python function.

    Raises InputError, naming `source`, if it cannot be imported or called.
    """
    function = load_function(cluster.handler, source)
    if is_async(function):
        return AsyncWorkers(function, cluster.id, on_end)
    return SyncWorkers(function, cluster, on_end)


class AsyncWorkers:
    """Runs an async function on the node's own loop."""

    def __init__(self, function: Callable[..., Any], cluster: ClusterId, on_end: OnEnd) -> None:
        self._function = function
        self._takes_context = takes_context(function)
        self._cluster = cluster
        self._on_end = on_end
        self._running: dict[int, tuple[asyncio.Task[Ended], Context]] = {}

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
        if tasks:
            await asyncio.wait(tasks, timeout=END_S)

    async def _call(self, command: Start, context: Context) -> Ended:
        try:
            given = arguments(command.request.work, context, self._takes_context)
            return encoded(await self._function(*given))
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - SystemExit in a task would end the loop
            return failed(error)

    def _ended(self, command: Start, context: Context, task: asyncio.Task[Ended]) -> None:
        del self._running[command.ref]
        if not task.cancelled():
            event = service_ended(command, task.result())
        elif context.cancelled:
            service_s = max(0.0, time.monotonic() - command.at_s)
            event = ServiceEnded(command.ref, Outcome.CANCELLED, service_s)
        else:
            event = service_ended(command, failed(asyncio.CancelledError("by the handler itself")))
        self._on_end(event, None)


class SyncWorkers(PooledWorkers):
    """Runs a plain function, in a thread or a process per server."""

    def __init__(self, function: Callable[..., Any], cluster: Cluster, on_end: OnEnd) -> None:
        in_processes = cluster.workers == "process"
        super().__init__(cluster.servers, on_end, in_processes=in_processes)
        self._function = function
        self._takes_context = takes_context(function)
        self._cluster = cluster
        self._contexts: dict[int, Context] = {}

    def problem_with(self, payload: msgspec.Raw) -> str | None:  # noqa: ARG002 - any JSON will do
        return None

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
        """What runs, runs on; it may look whether it should."""
        context = self._contexts.get(ref)
        if context is not None:
            context.cancel()

    def _ended(self, command: Start, ended: Ended) -> None:
        self._contexts.pop(command.ref, None)
        super()._ended(command, ended)


def call_named(handler: str, payload: bytes, context: Context) -> Ended:
    """In a worker process: by name, since not every function can be sent to one."""
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
    return Context(request.id, request.type, cluster, remaining_ms, cancelled)
