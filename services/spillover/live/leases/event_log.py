"""Whom a member of a lease group tells what happens to it: who counts, and a user's function. What
there is to tell is decided elsewhere; nobody who is told can keep a member from its work.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from spillover.live.handlers.calls import one_line
from spillover.live.process.logs import Message, OncePerPeriod

OnEvent: TypeAlias = Callable[[dict[str, Any]], None]
"""Takes one line of the event log (contract section 6)."""

_log = logging.getLogger(__name__)
_log.addFilter(OncePerPeriod())


class Observer(Protocol):
    """Counts what happens to a member; see `metrics`. `renewed` is called in a thread."""

    def told(self, event: str) -> None: ...

    def handler_failed(self) -> None: ...

    def renewed(self, late_s: float) -> None: ...


class EventLog:
    """Of one member, from any thread."""

    def __init__(self, node: str, on_event: OnEvent | None) -> None:
        self._node = node
        self._on_event = on_event

    def tell(self, event: str, **more: Any) -> None:
        """One line: what the contract names is always there, None where an event has none; of the
        rest, what is None is left out. If `on_event` raises, that line is lost to it, and
        the log says so: it is a user's, and only looks on."""
        if self._on_event is None:
            return
        line = {"at_s": round(time.time(), 3), "node": self._node, "event": event}
        line |= {"partition": None, "epoch": None}
        line |= {name: value for name, value in more.items() if value is not None}
        try:
            self._on_event(line)
        except Exception as error:  # noqa: BLE001 - whatever a user's function raises
            _log.error(Message("on_event raised", event=event, reason=one_line(error)))
