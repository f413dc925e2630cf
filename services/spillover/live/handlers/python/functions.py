"""The function that `python:MODULE:FUNCTION` names: importing it, and how it wants to be called.

Runs in worker processes too, so it imports little.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

from spillover.live.handlers.calls import one_line
from spillover.live.process.logs import keep_own_loggers
from spillover.model.errors import InputError
from spillover.model.topology import HANDLERS_KNOWN


@dataclass(slots=True)
class Context:
    """The facts of the request besides its payload, for the handler."""

    id: str
    type: str
    cluster: str
    remaining_ms: float
    """The milliseconds that remained of the deadline when the handler was called."""
    _cancelled: Event | None = field(default=None, repr=False)

    @property
    def cancelled(self) -> bool:
        """Returns whether the result is no longer wanted. Always False in a worker process."""
        return self._cancelled is not None and self._cancelled.is_set()

    def cancel(self) -> None:
        """Let a handler that looks know that its result is no longer wanted."""
        if self._cancelled is not None:
            self._cancelled.set()


def load_function(handler: str, source: str) -> Callable[..., Any]:
    """Returns the function that `python:MODULE:FUNCTION` names; the working directory is
    importable.

    Raises InputError, naming `source`, if it cannot be imported or called.
    """
    try:
        function = import_function(handler, f"expected {HANDLERS_KNOWN}")
    except LookupError as error:
        raise InputError(source, "handler", error.args[0]) from error
    if not (_accepts(function, 1) or _accepts(function, 2)):
        name = handler.rpartition(":")[2]
        raise InputError(source, "handler", f"expected {name}(payload) or {name}(payload, ctx)")
    return function


def import_function(handler: str, expected: str) -> Callable[..., Any]:
    """Returns what `python:MODULE:FUNCTION` names, made importable from the working directory.

    Raises LookupError, one line, if it cannot be imported or called; `expected` is for other text.
    """
    kind, _, named = handler.partition(":")
    module_name, _, function_name = named.partition(":")
    if kind != "python" or not module_name or not function_name:
        raise LookupError(f"{expected}, got {handler!r}")
    directory = str(Path.cwd())
    if directory not in sys.path:
        sys.path.insert(0, directory)
    keep_own_loggers()
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise LookupError(f"cannot import {module_name!r}: {one_line(error)}") from error
    function: Callable[..., Any] | None = getattr(module, function_name, None)
    if not callable(function):
        what = f"expected a function {function_name!r} in module {module_name!r}"
        raise LookupError(what)  # noqa: TRY004 - it is the name that is wrong
    return function


def is_async(function: Callable[..., Any]) -> bool:
    """Returns whether calling it gives an awaitable: an async function, or an object with such a
    call."""
    call = getattr(type(function), "__call__", None)  # noqa: B004 - the method itself is wanted
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def takes_context(function: Callable[..., Any]) -> bool:
    """Returns whether the function wants a context: it cannot be called without a second argument,
    or has one that is called `ctx` or `context`."""
    if not _accepts(function, 1):
        return True
    signature = _signature(function)
    if signature is None:
        return False
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    second = [p for p in signature.parameters.values() if p.kind in kinds][1:2]
    return bool(second) and second[0].name in ("ctx", "context")


def _accepts(function: Callable[..., Any], count: int) -> bool:
    signature = _signature(function)
    if signature is None:
        return count == 1
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    """Returns the signature, or None for those of CPython's own functions that have none."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None
