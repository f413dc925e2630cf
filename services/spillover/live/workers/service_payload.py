"""The one thing that the emulating handlers read in a payload: {"service_ms": 12.5}."""

from __future__ import annotations

import msgspec

SERVICE_MS_MAX = 86_400_000.0
"""A day: what is longer is a mistake in the payload."""


class ServicePayload(msgspec.Struct):
    """A payload of sleep or spin; all other fields, and other payloads, are of no account."""

    service_ms: float | None = None


_decode = msgspec.json.Decoder(ServicePayload).decode


def service_problem(payload: msgspec.Raw) -> str | None:
    """What is wrong with the payload's own service time, in one line."""
    if not _is_object(payload):
        return None
    try:
        service_ms = _decode(payload).service_ms
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return f"payload.service_ms: {error}"
    if service_ms is not None and not 0.0 <= service_ms <= SERVICE_MS_MAX:
        return f"payload.service_ms: expected 0 to {SERVICE_MS_MAX:.0f}, got {service_ms:g}"
    return None


def read_service_s(payload: msgspec.Raw, default_s: float) -> float:
    """The service time in seconds, of a payload that has no problem."""
    if not _is_object(payload):
        return default_s
    service_ms = _decode(payload).service_ms
    return default_s if service_ms is None else service_ms / 1e3


def _is_object(payload: msgspec.Raw) -> bool:
    return bytes(memoryview(payload)[:1]) == b"{"
