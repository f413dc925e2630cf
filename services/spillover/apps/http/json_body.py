"""Bodies of the cold routes: read within limits and checked strictly, unlike FastAPI would."""

from __future__ import annotations

import asyncio
import json
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.requests import ClientDisconnect

from spillover.apps.http.exchange import CLOSE, body_too_slow
from spillover.apps.http.problems import Problem
from spillover.model.nearest import did_you_mean

BODY_READ_S = 10.0
BODY_LIMIT_BYTES = 65_536

DISCARD_LIMIT_BYTES = 1024 * 1024
"""Read and thrown away of a body that is too large, so that its sender gets to read why."""


SHOWN_CHARS = 100
"""Of a name that a client has sent."""


class StrictBody(BaseModel):
    """No field more than those that mean something, no true for 1."""

    model_config = ConfigDict(extra="forbid", strict=True)


T = TypeVar("T", bound=BaseModel)


async def read_json(request: Request, model: type[T], limit_bytes: int = BODY_LIMIT_BYTES) -> T:
    """Returns the body as such a model. Raises Problem: `too_large`, `body_too_slow`, or `invalid`
    with the field."""
    return parse(await _read(request, limit_bytes), model)


def parse(body: bytes, model: type[T]) -> T:
    """Returns the body as such a model. Raises Problem `invalid` with the field."""
    try:
        read = model.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part)[:SHOWN_CHARS] for part in ("body", *first["loc"]))
        told = first["msg"]
        if first["type"] == "extra_forbidden":
            hint = did_you_mean(str(first["loc"][-1]), model.model_fields)
            told = f"unknown field{hint or ', expected one of ' + ', '.join(model.model_fields)}"
        raise Problem("invalid", f"{where}: {told}") from None
    # Of a name that stands there twice, the model has one value: which one was meant?
    json.loads(body, object_pairs_hook=_once)
    return read


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        shown = repr(twice[:SHOWN_CHARS])
        raise Problem("invalid", f"body: expected each name once, got {shown} twice")
    return found


async def _read(request: Request, limit_bytes: int) -> bytes:
    body = bytearray()
    size = 0
    try:
        async with asyncio.timeout(BODY_READ_S):
            async for part in request.stream():
                size += len(part)
                if size <= limit_bytes:
                    body += part
                elif size > limit_bytes + DISCARD_LIMIT_BYTES:
                    break
    except TimeoutError:
        raise body_too_slow(BODY_READ_S) from None
    except ClientDisconnect:  # nobody is there to read it
        raise Problem("malformed", "the client went away") from None
    if size > limit_bytes:
        detail = f"expected a body of at most {limit_bytes} bytes"
        raise Problem("too_large", detail, headers=[CLOSE])
    return bytes(body)
