"""The one thing that the emulating handlers read in a payload: {"service_ms": 12.5}."""

from __future__ import annotations

import re

import msgspec

from spillover.model.errors import UNREADABLE

LARGE_BYTES = 4096
"""In a payload longer than that, `service_ms` as the first field is all that is looked at. Reading
64 KiB of JSON to its end takes longer than all the rest of a request."""

SERVICE_MS_MAX = 86_400_000.0
"""A day: what is longer is a mistake in the payload."""


class ServicePayload(msgspec.Struct):
    """A payload of sleep or spin; all other fields, and other payloads, are of no account."""

    service_ms: float | None = None


_FIRST_FIELD = re.compile(rb'\s*\{\s*"service_ms"\s*:\s*(\d{1,15}(?:\.\d{1,15})?)\s*[,}]')

_decode = msgspec.json.Decoder(ServicePayload).decode


class ServiceTimes:
    """Reads service times. A payload is looked at when it comes in, and again when it starts, which
    mostly is at once: the last one is remembered. `default_s` holds where a payload gives none."""

    def __init__(self, default_s: float) -> None:
        self._default_s = default_s
        self._last: msgspec.Raw | None = None
        self._last_s = default_s

    def problem_with(self, payload: msgspec.Raw) -> str | None:
        """Returns what is wrong with the payload's own service time, in one line."""
        service_s, view = self._default_s, memoryview(payload)
        if view[0] == ord("{"):
            first = _FIRST_FIELD.match(view) if len(view) > LARGE_BYTES else None
            try:
                service_ms = _decode(payload).service_ms if first is None else float(first[1])
            except UNREADABLE as error:
                return f"payload.service_ms: {error}"
            if service_ms is not None:
                service_s = service_ms / 1e3
        if not 0.0 <= service_s * 1e3 <= SERVICE_MS_MAX:
            return (
                f"payload.service_ms: expected 0 to {SERVICE_MS_MAX:.0f}, got {service_s * 1e3:g}"
            )
        self._last, self._last_s = payload, service_s
        return None

    def read_s(self, payload: msgspec.Raw) -> float:
        """Returns the service time in seconds, of a payload that has no problem."""
        if payload is not self._last and (problem := self.problem_with(payload)) is not None:
            raise ValueError(problem)
        self._last = None  # nor kept alive
        return self._last_s
