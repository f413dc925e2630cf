"""The handler `python:MODULE:FUNCTION`: calls F(payload) or F(payload, context).

An async function runs on the node's loop and is cancelled when its result is no longer wanted. A
plain function runs in a thread (or process) per server and cannot be stopped; it may look at
`context.cancelled` from a thread.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import sys
import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

import msgspec

from spillover.core.node_events import ServiceEnded, Start
from spillover.live.workers.base import OnEnd
from spillover.live.workers.pooled import PooledWorkers, failed
from spillover.live.workers.process_pool import make_process_pool
from spillover.model.errors import InputError
from spillover.model.request import Outcome


@dataclass(slots=True)
class Context:
    """What a handler may know of the request besides its payload."""

    id: str
    type: str
    cluster: str
    remaining_ms: float
    """What remained of the deadline when the handler was called."""
    _cancelled: Event | None = field(default=None, repr=False)

    @property
    def cancelled(self) -> bool:
        """Whether the result is no longer wanted. Always False in a worker process."""
        return self._cancelled is not None and self._cancelled.is_set()


def load_handler(handler: str, source: str) -> Callable[..., Any]:
    """The function that `python:MODULE:FUNCTION` names; the working directory is importable.

    Raises InputError, naming `source`, if it cannot be imported or called.
    """
    _, module_name, function_name = handler.split(":")
    directory = str(Path.cwd())
    if directory not in sys.path:
        sys.path.insert(0, directory)
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        line = f"{type(error).__name__}: {error}".split("\n", 1)[0]
        raise InputError(source, "handler", f"cannot import {module_name!r}: {line}") from error
    function = getattr(module, function_name, None)
    if not callable(function):
        expected = f"expected a function {function_name!r} in module {module_name!r}"
        raise InputError(source, "handler", expected)
    if not _is_callable_with_payload(function):
        expected = f"expected {function_name}(payload) or {function_name}(payload, context)"
        raise InputError(source, "handler", expected)
    return function  # type: ignore[no-any-return]


def python_workers(
    function: Callable[..., Any], *, cluster: str, servers: int, workers: str, on_end: OnEnd
) -> AsyncWorkers | SyncWorkers:
    """The servers for a function, as it is async or not; `workers` is `thread` or `process`."""
    if inspect.iscoroutinefunction(function):
        return AsyncWorkers(function, cluster, on_end)
    return SyncWorkers(function, cluster, servers, on_end, in_processes=workers == "process")


class AsyncWorkers:
    """Runs an async function on the node's own loop."""

    def __init__(self, function: Callable[..., Any], cluster: str, on_end: OnEnd) -> None:
        self._function = function
        self._takes_context = takes_context(function)
        self._cluster = cluster
        self._on_end = on_end
        self._running: dict[int, asyncio.Task[bytes]] = {}

    def problem_with(self, payload: msgspec.Raw) -> str | None:  # noqa: ARG002 - any JSON will do
        return None

    def start(self, command: Start) -> None:
        context = _context(command, self._cluster)
        task = asyncio.get_running_loop().create_task(self._call(command, context))
        self._running[command.ref] = task
        task.add_done_callback(lambda done: self._ended(command, done))

    def stop(self, ref: int) -> None:
        task = self._running.get(ref)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _call(self, command: Start, context: Context) -> bytes:
        payload = msgspec.json.decode(command.request.work)
        return _encode(await self._function(*_arguments(payload, context, self._takes_context)))

    def _ended(self, command: Start, task: asyncio.Task[bytes]) -> None:
        del self._running[command.ref]
        service_s = max(0.0, time.monotonic() - command.at_s)
        if task.cancelled():
            event = ServiceEnded(command.ref, Outcome.CANCELLED, service_s)
        elif (error := task.exception()) is not None:
            event = failed(command, service_s, error)
        else:
            result = msgspec.Raw(task.result())
            event = ServiceEnded(command.ref, Outcome.DONE, service_s, result)
        self._on_end(event, None)


class SyncWorkers(PooledWorkers):
    """Runs a plain function, in a thread or a process per server."""

    def __init__(
        self,
        function: Callable[..., Any],
        cluster: str,
        servers: int,
        on_end: OnEnd,
        *,
        in_processes: bool,
    ) -> None:
        def make_pool() -> Executor:
            if in_processes:
                return make_process_pool(servers)
            return ThreadPoolExecutor(servers, thread_name_prefix="server")

        super().__init__(make_pool, on_end)
        self._function = function
        self._takes_context = takes_context(function)
        self._cluster = cluster
        self._in_processes = in_processes
        self._contexts: dict[int, Context] = {}

    def problem_with(self, payload: msgspec.Raw) -> str | None:  # noqa: ARG002 - any JSON will do
        return None

    def start(self, command: Start) -> None:
        context = _context(command, self._cluster)
        if not self._in_processes:
            context._cancelled = Event()  # noqa: SLF001 - the field is this module's own
        self._contexts[command.ref] = context
        payload = bytes(memoryview(command.request.work))
        self.run(command, call, self._function, payload, context, self._takes_context)

    def stop(self, ref: int) -> None:
        context = self._contexts.get(ref)
        if context is not None and context._cancelled is not None:  # noqa: SLF001 - as above
            context._cancelled.set()  # noqa: SLF001 - as above

    def _ended(self, command: Start, future: asyncio.Future[bytes]) -> None:
        del self._contexts[command.ref]
        super()._ended(command, future)


def call(
    function: Callable[..., Any],
    payload: bytes,
    context: Context,
    with_context: bool,  # noqa: FBT001 - executors pass positions only
) -> bytes:
    """Decode, call, encode: all of it where the function runs, off the node's loop."""
    arguments = _arguments(msgspec.json.decode(payload), context, with_context)
    return _encode(function(*arguments))


def _arguments(
    payload: object,
    context: Context,
    with_context: bool,  # noqa: FBT001 - see `call`
) -> tuple[object, ...]:
    return (payload, context) if with_context else (payload,)


def takes_context(function: Callable[..., Any]) -> bool:
    """Whether the function wants a context: it has a second argument that is required, or that
    is called `ctx` or `context`."""
    second = _positional(function)[1:2]
    return bool(second) and (
        second[0].default is inspect.Parameter.empty or second[0].name in ("ctx", "context")
    )


def _is_callable_with_payload(function: Callable[..., Any]) -> bool:
    positional = _positional(function)
    required = [p for p in positional if p.default is inspect.Parameter.empty]
    return len(positional) >= 1 and len(required) <= 2


def _positional(function: Callable[..., Any]) -> list[inspect.Parameter]:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p for p in inspect.signature(function).parameters.values() if p.kind in kinds]


def _context(command: Start, cluster: str) -> Context:
    request = command.request
    remaining_ms = (command.deadline_s - time.monotonic()) * 1e3
    return Context(request.id, request.type, cluster, remaining_ms)


def _encode(result: object) -> bytes:
    try:
        return msgspec.json.encode(result)
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        kind = type(result).__name__
        raise TypeError(f"the handler returned what JSON cannot hold ({kind}): {error}") from error
