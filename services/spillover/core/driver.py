"""Feeds events into a machine and carries its commands out: what all shells have in common, those
in real time and those in virtual time. Clocks, sockets and what commands mean are the shell's.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from spillover.core.machine import Machine

E = TypeVar("E")
C = TypeVar("C")

Interpreters: TypeAlias = Mapping[type[C], Callable[[Any], None]]
"""The function that carries out each kind of command."""

LATE_S_MIN = 0.25
"""A busy machine does less to a loop. Well below the time for which a neighbor may be silent."""

CATCH_UP_S_MAX = 1.0
"""A machine that is woken later than this is told the true time, so that periods slept through
(a stopped process, a machine that hung) are left out and not made up for one by one."""


class Timer(Protocol):
    """A call that is to come."""

    def cancel(self) -> None:
        """Make sure that nobody is called any more. A shell may call all the same: the driver
        knows."""


class Timers(Protocol):
    """The clock of a shell, and its timers."""

    @property
    def clock(self) -> Callable[[], float]:
        """Returns what tells the time; all instants of the driver are of this clock."""

    @property
    def next_s(self) -> float:
        """Returns an instant before which nothing is due."""

    def at(self, due_s: float, ring: Callable[[float], None]) -> Timer:
        """Have `ring(due_s)` called at that time, or soon after."""

    def run_due(self, now_s: float) -> None:
        """Call now what is due by `now_s` and has not been called yet."""


class Driver(Generic[E, C]):
    """Drives one machine.

    What is due rings before an event is handled, so that the machine sees things in the order in
    which they were meant to happen even when the loop comes late. Events that come up while
    commands are carried out wait their turn: the machine is never entered twice.

    `on_failure`, if given, is told when the machine or an interpreter raises. What state they are
    in is then anybody's guess, so nothing is handed in any more; the error comes out of `feed`.
    `on_late` makes the event that tells the machine that it is woken late, by `late_s_min` or more,
    and by how much; of one pause it is told once. What was due is told as of the instant it was
    meant for, or, if that is more than `catch_up_s_max` ago, as of now.

    `journal`, if given, is called with each (event, instant): a run can be replayed from it.
    """

    def __init__(
        self,
        machine: Machine[E, C],
        timers: Timers,
        interpreters: Interpreters[C],
        on_failure: Callable[[BaseException], None] | None = None,
        *,
        journal: Callable[[E, float], None] | None = None,
        on_late: Callable[[float], E] | None = None,
        late_s_min: float = LATE_S_MIN,
        catch_up_s_max: float = CATCH_UP_S_MAX,
    ) -> None:
        self._machine = machine
        self._timers = timers
        self._clock = timers.clock
        self._interpreters = interpreters
        self._on_failure = on_failure
        self._journal = journal
        self._on_late = on_late
        self._late_s_min = late_s_min
        self._catch_up_s_max = catch_up_s_max
        self._told_late_s = -math.inf
        """The instant up to which the machine knows that it was woken late."""
        self._inbox: deque[tuple[E, float]] = deque()
        self._handling = False
        self._closed = False
        self._wake_event: E | None = None
        self._wake_timer: Timer | None = None
        self._wake_s = math.inf

    def start(self, wake_event: E) -> None:
        """Arm the machine's first deadline; `wake_event` is handed in at each of them."""
        self._wake_event = wake_event
        self._arm(self._machine.next_deadline())

    def close(self) -> None:
        """Hand nothing in any more: what ends now ends because the shell does."""
        self._closed = True
        self._inbox.clear()

    def feed(self, event: E, now_s: float | None = None) -> None:  # noqa: C901 - once per event
        """Hand an event in, at `now_s` if it had a meant instant, else now."""
        if now_s is None:
            now_s = self._clock()
            if self._timers.next_s <= now_s:
                self._timers.run_due(now_s)
        if self._closed:
            return
        self._inbox.append((event, now_s))
        if self._handling:
            return
        self._handling = True
        try:
            while self._inbox:
                event, now_s = self._inbox.popleft()
                if self._journal is not None:
                    self._journal(event, now_s)
                for command in self._machine.handle(event, now_s):
                    self._interpreters[type(command)](command)
                if event is self._wake_event:
                    self._see_progress(now_s)
        except BaseException as error:
            self.close()
            if self._on_failure is not None:
                self._on_failure(error)
            raise
        finally:
            self._handling = False
        deadline_s = self._machine.next_deadline()
        if deadline_s < self._wake_s:
            self._arm(deadline_s)

    def _see_progress(self, now_s: float) -> None:
        """Raise RuntimeError if the machine would be woken again at once, and so on for ever."""
        deadline_s = self._machine.next_deadline()
        if deadline_s <= now_s:
            raise RuntimeError(f"woken at {now_s}, the machine is still due at {deadline_s}")

    def _arm(self, deadline_s: float) -> None:
        """Have the machine woken at its deadline. If that moves back, the earlier wake stays: it
        finds nothing to do."""
        if deadline_s >= self._wake_s or self._wake_event is None:
            return
        if self._wake_timer is not None:
            self._wake_timer.cancel()
        self._wake_s = deadline_s
        self._wake_timer = self._timers.at(deadline_s, self._wake)

    def _wake(self, due_s: float) -> None:
        if due_s != self._wake_s or self._wake_event is None:
            return  # one that was cancelled
        now_s = self._clock()
        late_s = now_s - max(due_s, self._told_late_s)
        if self._on_late is not None and late_s >= self._late_s_min:
            self._told_late_s = now_s
            self.feed(self._on_late(late_s), due_s)
        self._wake_timer = None
        self._wake_s = math.inf
        self.feed(self._wake_event, due_s if now_s - due_s <= self._catch_up_s_max else now_s)
