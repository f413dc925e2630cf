"""The results of users' functions become JSON by one rule, for functions that run here and on the
workers of a Dask cluster. This is sent there, so it imports the standard library only."""

from __future__ import annotations

import asyncio
import base64
import inspect
import json
import math
from enum import Enum
from typing import Any

LOOK_EVERY_S = 0.05
"""How soon a coroutine is cancelled once its result is no longer wanted."""


def awaited(result: Any, context: Any) -> Any:
    """Returns what a function has returned, or what comes of that where it is to be awaited, as
    that of a coroutine function that a decorator hides. `context` tells `cancelled`."""
    return asyncio.run(_watched(result, context)) if inspect.isawaitable(result) else result


async def _watched(awaitable: Any, context: Any) -> Any:
    """The result of a coroutine, which is cancelled when nobody wants it any more."""
    task = asyncio.ensure_future(awaitable)
    while not task.done():
        await asyncio.wait([task], timeout=LOOK_EVERY_S)
        if context.cancelled:
            task.cancel()
    return await task


def as_json(result: Any) -> bytes:
    """Returns what a handler has returned as JSON; NaN and infinities become null."""
    try:
        text = json.dumps(result, allow_nan=False, default=_plain, ensure_ascii=False)
    except ValueError:
        text = json.dumps(_without_nan(result), default=_plain, ensure_ascii=False)
    return text.encode()


def _plain(value: Any) -> Any:
    """Returns a value that JSON has no form for in the form that users expect."""
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, set | frozenset):
        return list(value)
    for name in ("isoformat", "tolist"):  # of times, and of numpy
        if hasattr(value, name):
            return getattr(value, name)()
    if hasattr(value, "model_dump"):  # of pydantic
        return value.model_dump(mode="json")
    if isinstance(value, Enum):
        return value.value
    if hasattr(value, "__dataclass_fields__"):
        return {name: getattr(value, name) for name in value.__dataclass_fields__}
    raise TypeError(f"the handler returned what JSON cannot hold: {type(value).__name__}")


def _without_nan(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _without_nan(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(each) for each in value]
    return value
