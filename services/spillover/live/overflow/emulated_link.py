"""One direction of a link, over which forwards, answers, reports and cancels leave in order.

The link is emulated here, and nowhere else (design, decision 4): its delay, and the faults that an
operator of a testbed sets while it runs. A message is its sender's business, and so is how it
travels: the sender gives two callables, and exactly one of them is called, once, unless the sender
withdraws the message before. The neighbor gets only messages that were delivered.

The rule of `core.overflow.transit` says what becomes of a message. One that does not wait is
dropped without a word where another would be lost.

There is no limit on the number of messages, since their senders have one: a forward counts as away,
an answer leaves on a connection that its asker holds open for it, a forward has one cancel at a
time, and reports come at their fixed rate and never wait beyond the delay.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from spillover.core.overflow.transit import Fate, Transit
from spillover.live.engine.timers import Timer, Timers
from spillover.model.faults import GIVEN_UP_AFTER_S

WITHDRAWN_KEPT_MAX = 64
"""The number of withdrawn messages that may be kept in line before they are swept out, if they are
the majority."""


class Faults(NamedTuple):
    """The emulated faults of one direction of a link: `loss` is a probability."""

    delay_s: float
    loss: float
    cut: bool


class Parcel:
    """One message on a link."""

    __slots__ = ("_emulated_link", "deliver", "due_s", "lose", "waits")

    def __init__(
        self,
        emulated_link: EmulatedLink | None,
        due_s: float,
        deliver: Callable[[], None] | None,
        lose: Callable[[], None] | None,
        waits: bool,  # noqa: FBT001 - made in one place
    ) -> None:
        self._emulated_link = emulated_link
        self.due_s = due_s
        self.deliver = deliver
        self.lose = lose
        self.waits = waits

    @property
    def waiting(self) -> bool:
        """Returns whether the message has neither left, nor been lost, dropped or withdrawn."""
        return self.deliver is not None

    def withdraw(self) -> bool:
        """Withdraw the message, if it still waits: neither of its callables will be called."""
        if self.deliver is None or self._emulated_link is None:
            return False
        self.deliver = self.lose = None
        self._emulated_link.withdrawn()
        return True


_GONE = Parcel(None, 0.0, None, None, waits=False)


class EmulatedLink:
    """One direction of a link. `random` draws which messages are lost; `clock` is that of `timers`.

    Once the timers are closed, messages that are still in it stay there and are never delivered.
    """

    def __init__(
        self,
        timers: Timers,
        random: Random,
        delay_s: float = 0.0,
        *,
        given_up_after_s: float = GIVEN_UP_AFTER_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._timers = timers
        self._transit = Transit(random, delay_s, given_up_after_s)
        self._clock = clock
        self._line: deque[Parcel] = deque()  # not due yet; in the order of sending and so of due_s
        self._held: deque[Parcel] = deque()  # due, and cut off; all are older than those in line
        self._withdrawn = 0
        self._timer: Timer | None = None
        self.is_clear = delay_s == 0.0
        """Whether nothing waits and nothing is emulated. A message is then delivered within the
        call, and need not be sent through this."""

    def __len__(self) -> int:
        """Returns how many messages are kept, withdrawn ones that were not swept out yet
        included."""
        return len(self._line) + len(self._held)

    @property
    def faults(self) -> Faults:
        transit = self._transit
        return Faults(transit.delay_s, transit.loss, transit.cut)

    @property
    def delay_s(self) -> float:
        return self._transit.delay_s

    @property
    def cut(self) -> bool:
        return self._transit.cut

    def set_faults(
        self, *, delay_s: float | None = None, loss: float | None = None, cut: bool | None = None
    ) -> None:
        """Change what is emulated; None leaves a value as it is. Raises ValueError for a delay that
        is not finite or below 0, and for a loss that is no probability."""
        if delay_s is not None and not (math.isfinite(delay_s) and delay_s >= 0.0):
            raise ValueError(f"expected a delay of at least 0 s, got {delay_s!r}")
        if loss is not None and not 0.0 <= loss <= 1.0:
            raise ValueError(f"expected a loss of 0 to 1, got {loss!r}")
        transit = self._transit
        transit.delay_s = transit.delay_s if delay_s is None else delay_s
        transit.loss = transit.loss if loss is None else loss
        transit.cut = transit.cut if cut is None else cut
        self._arm()

    def send(
        self,
        deliver: Callable[[], None],
        lose: Callable[[], None],
        *,
        waits: bool = True,
        now_s: float | None = None,
    ) -> Parcel:
        """Send a message, now or at `now_s`. Either callable may be called before this returns; the
        parcel then no longer waits. An error that they raise comes out here then, and otherwise at
        the timers."""
        if self.is_clear:
            deliver()
            return _GONE
        if now_s is None:
            now_s = self._clock()
        due_s = self._transit.due_s(now_s)
        line = self._line
        parcel = Parcel(self, due_s, deliver, lose, waits)
        line.append(parcel)
        if due_s <= now_s and len(line) == 1:
            self._pass(now_s)
        elif self._timer is None or self._timer.due_s > due_s:
            self._arm()
        return parcel

    def withdrawn(self) -> None:
        """Count a parcel that no longer waits and only takes room in the line."""
        self._withdrawn += 1
        if self._withdrawn > WITHDRAWN_KEPT_MAX and 2 * self._withdrawn > len(self):
            self._line = deque([parcel for parcel in self._line if parcel.waiting])
            self._held = deque([parcel for parcel in self._held if parcel.waiting])
            self._withdrawn = 0

    def _pass(self, now_s: float) -> None:
        """Deliver all that is due. The callables may do anything here: each parcel is taken out
        before its own is called, and the conditions for the next one are looked at anew."""
        transit = self._transit
        try:
            while self._held and not transit.cut:
                self._leave(self._held.popleft())
            while self._line and self._line[0].due_s <= now_s:
                self._leave(self._line.popleft())
            while self._held and transit.given_up_s(self._held[0].due_s) <= now_s:
                self._end(self._held.popleft(), delivered=False)
        finally:
            self._arm()

    def _leave(self, parcel: Parcel) -> None:
        fate = self._transit.fate(waits=parcel.waits)
        if fate is Fate.HELD:
            self._held.append(parcel)
        else:
            self._end(parcel, delivered=fate is Fate.ARRIVES)

    def _end(self, parcel: Parcel, *, delivered: bool) -> None:
        end = parcel.deliver if delivered else parcel.lose
        if parcel.waiting:
            parcel.deliver = parcel.lose = None
        else:
            self._withdrawn -= 1
        if end is not None and (delivered or parcel.waits):
            end()

    def _arm(self) -> None:
        """Set the one timer, for the first message that is due."""
        transit = self._transit
        due_s = self._line[0].due_s if self._line else math.inf
        if self._held:
            given_up_s = transit.given_up_s(self._held[0].due_s)
            due_s = min(due_s, given_up_s if transit.cut else self._clock())
        unhindered = transit.delay_s == 0.0 and transit.loss == 0.0 and not transit.cut
        self.is_clear = unhindered and due_s == math.inf
        if self._timer is not None and self._timer.due_s > due_s:
            self._timer.cancel()
            self._timer = None
        if self._timer is None and due_s < math.inf:
            self._timer = self._timers.at(due_s, self._wake)

    def _wake(self, due_s: float) -> None:
        self._timer = None
        self._pass(max(due_s, self._clock()))
