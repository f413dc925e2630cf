"""Reading the body of a request within its limits of size and time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from spillover.apps.node.problems import Problem

Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]

DISCARD_LIMIT_BYTES = 16 * 1024 * 1024
"""What is read and thrown away of a body that is too large, so that its sender, who may not look
up before all is sent, gets to read why. Beyond that the connection is simply closed."""


CLOSE = (b"connection", b"close")


class ClientGone(Exception):
    """The client went away before its request was read."""


@dataclass(slots=True)
class Framing:
    """What the headers tell of the body."""

    length_bytes: int = 0
    """0 also where it is not told."""
    awaits_continue: bool = False
    """The client sends the body only once it is asked to."""

    @classmethod
    def of(cls, headers: Mapping[bytes, bytes]) -> Framing:
        awaits_continue = headers.get(b"expect", b"").lower() == b"100-continue"
        return cls(int(headers.get(b"content-length", 0)), awaits_continue)


async def read_body(
    receive: Receive, framing: Framing, limit_bytes: int, timeout_s: float
) -> bytes:
    """The whole body. Raises Problem `too_large` or `deadline_exceeded`, and ClientGone."""
    try:
        async with asyncio.timeout(timeout_s):
            return await _read(receive, framing, limit_bytes)
    except TimeoutError:
        detail = "the deadline passed before the request was read"
        raise Problem("deadline_exceeded", detail, headers=[CLOSE]) from None


async def _read(receive: Receive, framing: Framing, limit_bytes: int) -> bytes:
    if framing.length_bytes > limit_bytes and framing.awaits_continue:
        raise _too_large(limit_bytes, whole=False)
    parts: list[bytes] = []
    size = 0
    more = True
    while more and size <= limit_bytes + DISCARD_LIMIT_BYTES:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        part: bytes = message.get("body", b"")
        more = message.get("more_body", False)
        size += len(part)
        if size <= limit_bytes:
            parts.append(part)
        else:
            parts.clear()
    if size > limit_bytes:
        raise _too_large(limit_bytes, whole=not more)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large(limit_bytes: int, *, whole: bool) -> Problem:
    """A connection on which not the whole body was read cannot be used again."""
    detail = f"expected a body of at most {limit_bytes} bytes"
    return Problem("too_large", detail, headers=[] if whole else [CLOSE])
