"""Code that runs on the workers of a Dask cluster: it is sent there, since Spillover need not be
installed there. So it imports the standard library only, and `results`, which is sent along; a
worker keeps only what the functions here refer to.

A worker remembers, as attributes of its own object, which node has greeted it and what runs.
"""

from __future__ import annotations

import importlib
import inspect
import json
import threading
import traceback
import uuid
from collections.abc import Callable
from typing import Any

from spillover.live.handlers.results import as_json, awaited

DONE = "done"
FAILED = "failed"
NOT_RUN = "not run"
REJECTED = "rejected"
NOT_BEGUN = "not begun"

SAID_BYTES_MAX = 64 * 1024
"""The most that a rejection may say."""


class Context:
    """The facts of the request besides its payload, for the handler."""

    def __init__(self, facts: dict[str, Any], is_cancelled: Callable[[], bool]) -> None:
        self.id: str = facts["id"]
        self.type: str = facts["type"]
        self.cluster: str = facts["cluster"]
        self.remaining_ms: float = facts["remaining_ms"]
        self._is_cancelled = is_cancelled

    @property
    def cancelled(self) -> bool:
        """Returns whether the result is no longer wanted."""
        return self._is_cancelled()


def greet(module: str, function: str, dask_worker: Any = None) -> tuple[str, str]:
    """Make a worker known by a token of its own; (token, why it cannot run the function or "")."""
    if not hasattr(dask_worker, "spillover_token"):
        dask_worker.spillover_token = uuid.uuid4().hex
        dask_worker.spillover_running = {}
    token: str = dask_worker.spillover_token
    try:
        found = getattr(importlib.import_module(module), function, None)
    except BaseException as error:  # noqa: BLE001 - whatever a module does when it is imported
        return token, f"cannot import {module!r}: {_one_line(error)}"
    if not callable(found):
        return token, f"there is no function {function!r} in its module {module!r}"
    return token, ""


def stop(key: str, dask_worker: Any = None) -> bool:
    """Tell what runs under this key that its result is no longer wanted; False if nothing does."""
    cancelled = getattr(dask_worker, "spillover_running", {}).get(key)
    if cancelled is None:
        return False
    cancelled.set()
    return True


def run(
    token: str,
    key: str,
    names: tuple[str, str],
    payload: bytes,
    facts: dict[str, Any],
    limit_bytes: int,
) -> tuple[str, Any, str]:
    """Call the function: (DONE, JSON, ""), (FAILED, problem, details), (NOT_RUN, (problem, pause),
    ""), (REJECTED, (problem, status, JSON or None), ""), or (NOT_BEGUN, "", "") if this is not the
    worker that was greeted, or nobody wants it any more. Never raises.

    JSON of more than `limit_bytes` is refused here: it travels neither to the scheduler nor on."""
    from distributed import get_worker  # noqa: PLC0415 - there is a worker only where this runs

    worker: Any = get_worker()
    if getattr(worker, "spillover_token", None) != token:
        return NOT_BEGUN, "", ""
    cancelled = threading.Event()
    worker.spillover_running[key] = cancelled

    def is_cancelled() -> bool:
        """Returns whether the node has cancelled the call, or the scheduler has dropped it, as it
        does when the node has died."""
        task = worker.state.tasks.get(key)
        return cancelled.is_set() or task is None or task.state == "cancelled"

    try:
        if is_cancelled():
            return NOT_BEGUN, "", ""
        return _ended(_called(names, payload, Context(facts, is_cancelled)), limit_bytes)
    except BaseException as error:  # noqa: BLE001 - also SystemExit: it must not end the worker
        return _failed(error)
    finally:
        worker.spillover_running.pop(key, None)


def _failed(error: BaseException) -> tuple[str, Any, str]:
    """Returns the end that an exception means; see `spillover.handlers`."""
    problem = _one_line(error)
    try:
        if getattr(error, "not_run", None) is True:
            pause_s = getattr(error, "retry_after_s", None)
            return NOT_RUN, (problem, pause_s if type(pause_s) in (int, float) else None), ""
        if getattr(error, "rejected", None) is True:
            status = getattr(error, "status", None)
            said = _said(getattr(error, "body", None))
            status = int(status) if isinstance(status, int) else None
            return REJECTED, (problem, status, said), ""
    except BaseException:  # noqa: BLE001, S110 - its own attributes may do anything
        pass
    return FAILED, problem, "".join(traceback.format_exception(error))[-20_000:]


def _said(body: Any) -> bytes | None:
    """Returns the words of a rejection, or their beginning as text; None for values that JSON
    cannot hold."""
    try:
        said = None if body is None else as_json(body)
    except Exception:  # noqa: BLE001 - whatever it is, the rejection stands
        return None
    if said is not None and len(said) > SAID_BYTES_MAX:
        return json.dumps(said[:SAID_BYTES_MAX].decode("utf-8", "replace")).encode()
    return said


def _ended(result: Any, limit_bytes: int) -> tuple[str, Any, str]:
    body = as_json(result)
    if len(body) > limit_bytes:
        kind = type(result).__name__
        return FAILED, f"the handler returned more than {limit_bytes} bytes of JSON ({kind})", ""
    return DONE, body, ""


def _called(names: tuple[str, str], payload: bytes, context: Context) -> Any:
    function = getattr(importlib.import_module(names[0]), names[1])
    given = (json.loads(payload), context) if _takes_context(function) else (json.loads(payload),)
    return awaited(function(*given), context)


def _takes_context(function: Any) -> bool:
    """Returns whether a function takes the context, as for handlers in the node: the second
    argument is needed, or is called ctx or context."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return False
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    second = [each for each in parameters if each.kind in kinds][1:2]
    if not second:
        return False
    needed = second[0].default is inspect.Parameter.empty
    return needed or second[0].name in ("ctx", "context")


def _one_line(error: BaseException) -> str:
    text = " ".join(traceback.format_exception_only(error)[-1].split())
    return text[:500].encode("utf-8", "replace").decode()
