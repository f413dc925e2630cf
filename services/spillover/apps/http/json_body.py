"""Bodies of the cold routes: read within limits and checked strictly, unlike FastAPI would. What is
said of bodies that are no JSON is here for all routes."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect

from spillover.apps.http.exchange import DISCARD_LIMIT_BYTES, body_too_slow
from spillover.apps.http.problems import Problem
from spillover.live.http1.written import CLOSE
from spillover.model.nearest import did_you_mean

BODY_READ_S = 10.0
BODY_LIMIT_BYTES = 65_536

SHOWN_CHARS = 100
"""The most characters of a client's name for a field that are shown."""


_COMPRESSED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
"""Codings of compressed bodies by the bytes that these begin with; other codings have none that
tell."""

_IS_JSON_SO_FAR = re.compile(rb"[ \t\n\r]*[\[{\"]")

_ESCAPE = re.compile(
    rb"""\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}
    |(?P<half>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)|(?P<raw>\xed[\xa0-\xbf])""",
    re.DOTALL | re.VERBOSE,
)
"""In a string of JSON: a surrogate pair, half of one, any other escape. Or half of one as bytes."""


class StrictBody(BaseModel, extra="forbid", strict=True):
    """A body with no unknown fields, and no true for 1."""


def why_no_json(body: bytes, coding: bytes = b"") -> str | None:
    """Returns what is wrong with a body that is no JSON, where parsers do not say it in words that
    help: it is compressed, as its `Content-Encoding` or itself tells, or it has half of a surrogate
    pair. None: what the parser says is as good."""
    told = coding.strip().lower()
    is_told = told not in (b"", b"identity") and _IS_JSON_SO_FAR.match(body) is None
    found = told[:SHOWN_CHARS].decode("latin-1") if is_told else None
    found = found or next(
        (name for magic, name in _COMPRESSED.items() if body[: len(magic)] == magic), None
    )
    if found is not None:
        expected = "body: expected JSON that is not compressed, since no Content-Encoding is read"
        return f"{expected}, got {found}"
    for escape in _ESCAPE.finditer(body):
        if half := escape["half"] or escape["raw"]:
            shown = f"\\{half.decode()}" if escape["half"] else "bytes ED A0 to ED BF"
            where = f"{shown} at byte {escape.start()}"
            return f"body: expected Unicode text, got half of a surrogate pair ({where})"
    return None


T = TypeVar("T", bound=BaseModel)


async def read_json(request: Request, model: type[T], limit_bytes: int = BODY_LIMIT_BYTES) -> T:
    """Returns the body as such a model. Raises Problem: `too_large`, `body_too_slow`, or `invalid`
    with the field."""
    coding = request.headers.get("content-encoding", "").encode("latin-1")
    body = await _read(request, limit_bytes)
    if len(body) > BODY_LIMIT_BYTES:
        return await asyncio.to_thread(parse, body, model, coding)
    return parse(body, model, coding)


def parse(body: bytes, model: type[T], coding: bytes = b"") -> T:
    """Returns the body as such a model. Raises Problem `invalid` with the field."""
    try:
        read = model.model_validate_json(body)
    except ValidationError as error:
        if error.errors()[0]["type"] == "json_invalid" and (why := why_no_json(body, coding)):
            raise Problem("invalid", why) from None
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
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            shown = repr(name[:SHOWN_CHARS])
            raise Problem("invalid", f"body: expected each name once, got {shown} twice")
        found[name] = value
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
