"""Feeds events into a machine and carries its commands out: the whole shell in one screen."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from spillover.core.machine import Machine
from spillover.live.timers import Timers

Interpreter = Callable[[Any], None]


class Driver:
    """Drives one machine in real time.

    What is due rings before an event is handled, so that the machine sees things in the order in
    which they were meant to happen even when the loop comes late. Events that come up while
    commands are carried out wait their turn: the machine is never entered twice.

    `journal`, if given, is called with each (event, instant): a run can be replayed from it.
    """

    def __init__(
        self,
        machine: Machine,
        timers: Timers,
        interpreters: Mapping[type, Interpreter],
        journal: Callable[[Any, float], None] | None = None,
    ) -> None:
        self._machine = machine
        self._timers = timers
        self._interpreters = interpreters
        self._journal = journal
        self._inbox: deque[tuple[Any, float]] = deque()
        self._handling = False
        self._wake_event: Any = None
        self._wake_s = float("inf")

    def start(self, wake_event: Any) -> None:
        """Arm the machine's first deadline; `wake_event` is handed in at each of them."""
        self._wake_event = wake_event
        self._arm()

    def feed(self, event: Any, now_s: float | None = None) -> None:
        """Hand an event in, at `now_s` if it had a meant instant, else now."""
        if now_s is None:
            now_s = time.monotonic()
            self._timers.run_due(now_s)
        self._inbox.append((event, now_s))
        if self._handling:
            return
        self._handling = True
        try:
            while self._inbox:
                self._handle(*self._inbox.popleft())
        finally:
            self._handling = False
        self._arm()

    def _handle(self, event: Any, now_s: float) -> None:
        if self._journal is not None:
            self._journal(event, now_s)
        for command in self._machine.handle(event, now_s):
            self._interpreters[type(command)](command)

    def _arm(self) -> None:
        deadline_s = self._machine.next_deadline()
        if deadline_s is not None and deadline_s < self._wake_s:
            self._wake_s = deadline_s
            self._timers.at(deadline_s, self._wake)

    def _wake(self, due_s: float) -> None:
        if due_s == self._wake_s:
            self._wake_s = float("inf")
            self.feed(self._wake_event, due_s)
