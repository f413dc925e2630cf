"""The user's handler runs while a partition is held, on a thread or on the loop.

A handler is called once for each lease, `F(partition, epoch, stop_event)`, and runs until it is
done or told to stop. Importing it and running it is here; who holds what is decided elsewhere.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from spillover.live.handlers.calls import CallResult, failed
from spillover.live.handlers.python.functions import import_function, is_async
from spillover.live.leases.renewal.lease import Fenced, Lease
from spillover.live.process.logs import Message
from spillover.model.errors import InputError

Handler: TypeAlias = Callable[[int, int, Any], Any]
"""A function handler(partition, epoch, stop_event); `stop_event` is a threading.Event that
coroutines can await with `wait_async()`."""

OnEnd: TypeAlias = Callable[[Lease, str | None], None]
"""A function on_end(lease, problem), called on the loop; `problem` is None unless the handler
raised."""

EXPECTED = "expected python:MODULE:FUNCTION with FUNCTION(partition, epoch, stop_event)"


def load_handler(handler: str, source: str) -> Handler:
    """Returns the function that is named; the working directory is importable. Raises
    InputError."""
    try:
        function: Handler = import_function(handler, EXPECTED)
    except LookupError as error:
        raise InputError(source, "", error.args[0]) from error
    check_handler(function, source)
    return function


def check_handler(function: object, source: str) -> None:
    """Raise InputError unless it can be called as handlers are, and then does something."""
    if inspect.isawaitable(function) or inspect.isgenerator(function):
        kind = f"the {type(function).__name__} that it returns"
        raise InputError(source, "", f"{EXPECTED}; got {kind}: leave out the brackets behind it")
    call = getattr(type(function), "__call__", None)  # noqa: B004 - the method itself is wanted
    for one in (function, call):
        if inspect.isgeneratorfunction(one) or inspect.isasyncgenfunction(one):
            name = getattr(function, "__qualname__", type(function).__name__)
            words = f"{name} is a generator, nothing of which would run: leave out its `yield`"
            raise InputError(source, "", f"{EXPECTED}; {words}")
    try:
        inspect.signature(function).bind(0, 0, None)  # type: ignore[arg-type]
    except TypeError:
        name = getattr(function, "__qualname__", type(function).__name__)
        raise InputError(source, "", f"{EXPECTED}; {name} takes others") from None
    except ValueError:
        return  # one of those of CPython's own that do not tell


_log = logging.getLogger(__name__)


class HandlerRunner:
    """Runs the handler of each lease, at most one for each partition at a time, since nothing is
    granted to a member whose last handler of a partition has not ended."""

    def __init__(self, handler: Handler, on_end: OnEnd) -> None:
        self.is_async = is_async(handler)
        self._handler = handler
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[tuple[int, int], asyncio.Task[None]] = {}
        self._running: dict[tuple[int, int], Lease] = {}

    def start(self, lease: Lease) -> None:
        self._running[lease.partition, lease.epoch] = lease
        if self.is_async:
            name = f"partition-{lease.partition}"
            task = self._loop.create_task(self._await(lease), name=name)
            self._tasks[lease.partition, lease.epoch] = task
            task.add_done_callback(lambda _: self._tasks.pop((lease.partition, lease.epoch), None))
        else:
            name = f"partition-{lease.partition}"
            thread = threading.Thread(target=self._call, args=(lease,), name=name, daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                # No room for more threads: it has failed, as if it had raised. The partition is
                # given up, and another member may have room for it.
                self._loop.call_soon(self._ended, lease, failed(error))

    def cancel(self, partition: int, epoch: int) -> None:
        """It may act no more. What runs on a thread cannot be stopped: it sees that by itself."""
        task = self._tasks.get((partition, epoch))
        if task is not None:
            task.cancel()

    def fence_all(self) -> None:
        """Whatever runs may act no more, without being told by the machine."""
        for (partition, epoch), lease in list(self._running.items()):
            lease.fence()
            self.cancel(partition, epoch)

    def _ended(self, lease: Lease, ended: CallResult) -> None:
        problem, trace = ended.problem, ended.details or None
        if problem is not None:
            where = {"partition": lease.partition, "epoch": lease.epoch}
            _log.error(Message("handler failed", **where, reason=problem, traceback=trace))
        self._running.pop((lease.partition, lease.epoch), None)
        self._on_end(lease, problem)

    async def _await(self, lease: Lease) -> None:
        ended = CallResult()
        try:
            with lease.entered():
                done: Awaitable[Any] = self._handler(lease.partition, lease.epoch, lease.stop_event)
                await done
        except asyncio.CancelledError:
            ended = CallResult(problem=None if lease.is_over else "it cancelled itself")
        except BaseException as error:  # noqa: BLE001 - a handler must not end a member
            ended = _ended_by(error)
        self._ended(lease, ended)

    def _call(self, lease: Lease) -> None:
        ended = CallResult()
        try:
            with lease.entered():
                result = self._handler(lease.partition, lease.epoch, lease.stop_event)
                _check_result(result)
        except BaseException as error:  # noqa: BLE001 - see above
            ended = _ended_by(error)
        try:
            self._loop.call_soon_threadsafe(self._ended, lease, ended)
        except RuntimeError:
            return  # the member has ended; nobody waits for it any more


def _ended_by(error: BaseException) -> CallResult:
    """Being fenced is no fault of the handler's."""
    return CallResult() if isinstance(error, Fenced) else failed(error)


def _check_result(result: object) -> None:
    """Raise TypeError for what a decorator may have made of a coroutine function or a generator."""
    kind = type(result).__name__
    if inspect.iscoroutine(result) or inspect.isgenerator(result) or inspect.isasyncgen(result):
        if not inspect.isasyncgen(result):
            result.close()
        raise TypeError(f"the handler returned a {kind}: nothing of it has run")
