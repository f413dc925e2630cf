"""The events of a member of a lease group go to metrics, to a user's function, and to onlookers who
ask later. No listener can keep a member from its work."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from spillover.core.leases import events as ev
from spillover.live.handlers.calls import one_line
from spillover.live.leases.renewal.clock import lease_now_s
from spillover.live.process.logs import Message, OncePerPeriod

OnEvent: TypeAlias = Callable[[dict[str, Any]], None]
"""Takes one line of the event log (docs/lease-handlers.md)."""

LAGS_KEPT = 100

_log = logging.getLogger(__name__)
_log.addFilter(OncePerPeriod())


class Observer(Protocol):
    """Counts what happens to a member; see `metrics`. `renewed` is called in a thread."""

    def told(self, event: str) -> None: ...

    def handler_failed(self) -> None: ...

    def renewed(self, late_s: float) -> None: ...


class EventLog:
    """The events of one member, from any thread."""

    def __init__(self, node: str, on_event: OnEvent | None) -> None:
        self._node = node
        self._on_event = on_event
        self.observer: Observer | None = None
        self.down_since_s: float | None = None
        """The time since which the store has been away, by `lease_now_s`."""
        self._lags_s: deque[float] = deque(maxlen=LAGS_KEPT)

    @property
    def renew_lag_s_max(self) -> float:
        """Returns how late the latest of the last renewals was sent; 0 before the first."""
        return max(list(self._lags_s), default=0.0)

    def renewed(self, late_s: float) -> None:
        """A renewal was sent so late."""
        self._lags_s.append(late_s)
        if self.observer is not None:
            self.observer.renewed(late_s)

    def handler_failed(self) -> None:
        if self.observer is not None:
            self.observer.handler_failed()

    def happened(self, told: ev.Tell, problem: str | None) -> None:
        """Take an event of the machine; `problem` says why the store is away, if it is."""
        more: dict[str, Any] = {"partition": told.partition, "epoch": told.epoch}
        if told.event == ev.REDIS_DOWN:
            self.down_since_s = lease_now_s()
            more["problem"] = problem
        elif told.event == ev.REDIS_UP:
            self.down_since_s = None
        if self.observer is not None:
            self.observer.told(told.event)
        self.tell(told.event, **more)

    def tell(self, event: str, **more: Any) -> None:
        """Write one line. The fields that every line has are None where an event has none; of the
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
