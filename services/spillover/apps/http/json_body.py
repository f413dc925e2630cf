"""Bodies of the cold routes: read within limits and checked strictly, unlike FastAPI would."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from fastapi import Request
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.requests import ClientDisconnect

from spillover.apps.http.exchange import CLOSE, body_too_slow
from spillover.apps.http.problems import Problem

BODY_READ_S = 10.0
BODY_LIMIT_BYTES = 65_536

DISCARD_LIMIT_BYTES = 1024 * 1024
"""Read and thrown away of a body that is too large, so that its sender gets to read why."""


class StrictBody(BaseModel):
    """No field more than those that mean something, no true for 1."""

    model_config = ConfigDict(extra="forbid", strict=True)


T = TypeVar("T", bound=BaseModel)


async def read_json(request: Request, model: type[T], limit_bytes: int = BODY_LIMIT_BYTES) -> T:
    """Returns the body as such a model. Raises Problem: `too_large`, `body_too_slow`, or `invalid`
    with the field."""
    body = await _read(request, limit_bytes)
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in ("body", *first["loc"]))
        raise Problem("invalid", f"{where}: {first['msg']}") from None


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
