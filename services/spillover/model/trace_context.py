"""The place of a request in a client's trace (W3C Trace Context), as it came and as it goes on. The
carriers do not look into it; `live.overflow.tracing` records traces.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

STATE_LENGTH_MAX = 4096
"""The limit of a state: far more than the 512 characters that everybody has to pass on."""

_PARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_STATE = re.compile(rf"[ -~\t]{{0,{STATE_LENGTH_MAX}}}")


@dataclass(slots=True)
class TraceContext:
    """A trace context: `parent` is the header traceparent, and `state` is tracestate, empty where
    there is none."""

    parent: str
    state: str = ""

    def sent_to(self, method: str, url: str) -> TraceContext:  # noqa: ARG002 - for who records
        """Returns what a service is told to which the request is sent now. Whoever records this
        trace notes that, and has another one here."""
        return self

    def follow(self, asked: Any) -> None:
        """Take the call that got this context: a future of its Response."""


def trace_context(parent: str, state: str) -> TraceContext | None:
    """Returns what these headers say. A parent that is none is as if nothing had been sent, a state
    that no header can bear as if it had not (W3C Trace Context, sections 3.2 and 3.3)."""
    if _PARENT.fullmatch(parent) is None:
        return None
    return TraceContext(parent, state if _STATE.fullmatch(state) is not None else "")
