"""Checks of the requests of the queue's clients: bodies, headers and names (docs/queue.md)."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Annotated, TypeVar

import msgspec

from spillover.apps.http.exchange import Exchange
from spillover.apps.http.problems import Problem
from spillover.live.queue.wire import PRODUCERS_MAX, Hops, Id, Name, Share
from spillover.model.errors import UNREADABLE

DEADLINE_S = 30.0
"""The deadline of calls that bring none."""

DEADLINE_S_MAX = 3600.0

ACCESS_ERROR_MAX = 1e-6
"""The sum of probabilities may miss 1 by this: they are decimal fractions."""

CONTENT_TYPE = "application/octet-stream"
"""The content type of objects that come without."""

CONTENT_TYPE_LENGTH_MAX = 200

MilliSeconds = Annotated[float, msgspec.Meta(gt=0.0, le=86_400_000.0)]


class TakeBody(msgspec.Struct, forbid_unknown_fields=True):
    """POST /take."""

    consumer: Name
    probe_id: Name
    max_hops: Hops = 3
    access: Annotated[dict[Id, Share], msgspec.Meta(max_length=PRODUCERS_MAX)] | None = None
    avoid_visited: bool = False


class ExtendBody(msgspec.Struct, forbid_unknown_fields=True):
    """POST /grants/{grant}/extend."""

    visibility_ms: MilliSeconds | None = None


class NackBody(msgspec.Struct, forbid_unknown_fields=True):
    """POST /grants/{grant}/nack: how long the object rests; null: as the producer has it."""

    delay_ms: Annotated[float, msgspec.Meta(ge=0.0, le=86_400_000.0)] | None = None


T = TypeVar("T", TakeBody, ExtendBody, NackBody)


def read_body(body: bytes, model: type[T]) -> T:
    """Returns the body as such a model. Raises Problem `invalid` with the field."""
    try:
        return msgspec.json.decode(body or b"{}", type=model)
    except UNREADABLE as error:
        raise Problem("invalid", f"body: {error}") from None


def check_take(take: TakeBody, producers: Collection[str], own: str) -> dict[str, float]:
    """Returns the access probabilities: those given, else all alike. The probe visits the `own`
    producer first, whatever its probability. Raises Problem `invalid`."""
    access = take.access
    if access is None:
        access = dict.fromkeys(producers, 1.0 / len(producers))
    for name in access:
        if name not in producers:
            known = ", ".join(sorted(producers)[:8])
            raise Problem("invalid", f"body.access: expected producers ({known}), got {name!r}")
    total = math.fsum(access.values())
    if abs(total - 1.0) > ACCESS_ERROR_MAX:
        expected = f"expected probabilities that sum to 1, got {total:.9g}"
        raise Problem("invalid", f"body.access: {expected}")
    reachable = len({own, *(name for name, share in access.items() if share > 0.0)})
    if take.avoid_visited and take.max_hops > reachable:
        expected = (
            f"expected at most {reachable}, as many as there are producers to visit, since "
            f"avoid_visited is set; got {take.max_hops}"
        )
        raise Problem("invalid", f"body.max_hops: {expected}")
    return access


def size_bytes_at_most(exchange: Exchange, limit_bytes: int) -> int:
    """Returns how large a body can be: as it tells, or as large as any if it does not."""
    if _header(exchange, b"transfer-encoding") is not None:
        return limit_bytes
    return exchange.length_bytes


def deadline_s(exchange: Exchange, usual_s: float = DEADLINE_S) -> float:
    """Returns how long the caller waits, by `Spillover-Deadline-Ms`. Raises Problem `invalid`."""
    told = _header(exchange, b"spillover-deadline-ms")
    if told is None:
        return usual_s
    try:
        value_s = float(told) / 1e3
    except ValueError:
        value_s = math.nan
    if not 0.0 < value_s < math.inf or not told.strip().replace(b".", b"", 1).isdigit():
        expected = f"expected milliseconds above 0, got {told.decode('latin-1')!r}"
        raise Problem("invalid", f"Spillover-Deadline-Ms: {expected}")
    return min(value_s, DEADLINE_S_MAX)


def content_type(exchange: Exchange) -> str:
    """Returns the type of an object, as its producer says it. Raises Problem `invalid`."""
    told = _header(exchange, b"content-type")
    if told is None:
        return CONTENT_TYPE
    text = told.decode("latin-1")
    if len(text) > CONTENT_TYPE_LENGTH_MAX or not text.isascii() or not text.isprintable():
        expected = f"expected at most {CONTENT_TYPE_LENGTH_MAX} printable ASCII characters"
        raise Problem("invalid", f"Content-Type: {expected}")
    return text


def _header(exchange: Exchange, name: bytes) -> bytes | None:
    return next((value for key, value in exchange.headers if key == name), None)
