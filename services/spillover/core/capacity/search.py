"""The search for how many requests a service bears at a time.

Theory of operation. One number is the *base*, which is in use for most of the time. In turns
another one is tried, larger or smaller, for about as long as two services take. Each time it is
measured how many requests a second come to a good end, only while as many run as may: else it is
the clients who say how many. What does better becomes the base, and one beyond it is tried next, in
steps that double. Where neither side does better the steps are halved. At the end of that the base
is *found*: small steps go on, and large ones now and then, as services change without a word. If
the rate at the base itself is another one than it was, all that is known is forgotten, and the
search begins anew.

What fails brings nothing to a good end and keeps its server for as long as a success
(`FifoServers`), so that a service that fails at any number makes none look better. Where deadlines
end most of what runs before anything is measured, fewer at a time would be in time: the base is
halved until most are.
"""

from __future__ import annotations

import math

from spillover.core.capacity.window import Window
from spillover.policy import capacity
from spillover.policy.capacity import UNKNOWN, Estimate, other_number

DONE_MIN = 16
"""A measurement takes so many good ends at least, and as many as run or twice, three times that:
requests that began together also end together. Twice at least once the base is found."""

FADES, AGES = 0.85, 0.97
"""What is known of a number is worth this share after the next measurement, of it or of another."""

LARGEST, SMALLEST = 1.0, 0.125
"""Steps in doublings."""

USUAL_STEPS = (0.5, SMALLEST, -0.5, -SMALLEST)
"""The steps from a base that is found, in turn: small ones cost little and keep to what is best,
large ones see soon that something else is."""

TRIES_MAX = 3
"""In a search a number is tried so often while it is not clear whether it is better."""

PATIENCE = 9
"""So many measurements of a base that is found come before the next one of another number."""

BEHIND = 4
"""Where more wait than so many times as many as run, clients have begun to bring more than the base
can do: larger ones are tried at once, and others after 2 measurements of it, 4, and so on."""

SLOW = 2.0
"""A measurement ends after so many times as long as the base would take, with what it has."""

NONE_DONE = 0.5
"""No good end counts as so much of one: a rate of none has no logarithm."""

IDLE = 6.0
"""Another number that is not used as often as it may be is given up after so many times that."""


class CapacitySearch:
    """The search, between two bounds. `base` is how many are believed to be best, `limit` how many
    may run now."""

    __slots__ = (
        "_behind_at",
        "_behind_base",
        "_known",
        "_patience",
        "_step",
        "_todo",
        "_tries",
        "_turn",
        "_waits",
        "_window",
        "base",
        "ceiling",
        "least",
        "limit",
        "most",
        "moves",
    )

    def __init__(self, least: int, most: int, start: int) -> None:
        self.least, self.most = least, most
        self.ceiling = most
        """The most for now, by what an engine says; never above `most`."""
        self.base = self.limit = min(max(start, least), most)
        self.moves = 0
        """How often the base has changed."""
        self._known: dict[int, Estimate] = {}
        """The estimates by number, of few: each fades while others are measured."""
        self._step: float | None = None
        """The step to the number that is tried; None while the base is in use."""
        self._todo = steps(LARGEST, 1.0)
        """The steps of a search that are left; none once the base is found."""
        self._turn = 0
        """Whose turn it is of the usual steps."""
        self._tries = 0
        self._waits = 1
        """How many measurements of the base come before the next one of another number."""
        self._patience = PATIENCE
        self._behind_at: float = BEHIND * self.base
        """The queue that begins a search; twice that which has begun one, until that is gone or the
        base is smaller."""
        self._behind_base = self.base
        """The base when a queue was looked at last."""
        self._window = Window()
        self._window.begin(self.limit, 0.0)

    @property
    def is_found(self) -> bool:
        """Returns whether no step has led to a better number."""
        return not self._todo

    @property
    def rate_per_s(self) -> float | None:
        """Returns how many requests a second come to a good end at the base; None if that is not
        known."""
        known = self._known.get(self.base)
        return None if known is None else capacity.rate_of(known)

    def is_full(self, now_s: float) -> None:
        """As many run as may, from now on."""
        self._window.is_full(now_s)

    def bound(self, ceiling: int, now_s: float) -> bool:
        """No more than this may run from now on; what was tried beyond is over. If it is more than
        before, and the base was the most, larger ones are tried at once. Returns whether there is
        another limit."""
        ceiling = min(max(ceiling, self.least), self.most)
        before, self.ceiling = self.ceiling, ceiling
        if ceiling > before and self.base == before:
            self._todo = self._todo or [LARGEST, LARGEST / 2.0]
            self._waits = 1
        if ceiling >= max(self.base, self.limit):
            return False
        if self.base > ceiling:
            self.base = ceiling
            self.moves += 1
            self._tries = 0
        return self._to_base(now_s)

    def ended(
        self,
        running: int,
        waiting: int,
        spread2: float,
        now_s: float,
        *,
        is_good: bool,
        is_stopped: bool = False,
    ) -> bool:
        """A service has ended, perhaps as its time was over or nobody wants it any more; so many
        run or start now, and so many wait. `spread2` is the squared coefficient of variation of
        services. Returns whether there is another limit."""
        window, stays_full = self._window, running >= self.limit
        if not window.ended(
            is_good=is_good, is_stopped=is_stopped, stays_full=stays_full, now_s=now_s
        ):
            return False
        known = self._known.get(self.base, UNKNOWN)
        cohorts = max(-(-DONE_MIN // self.limit), 2 if self.is_found else 1)
        need = cohorts * self.limit
        usual_s = need / capacity.rate_of(known) if known[1] else math.inf
        # Of another number it is enough to know that nothing comes to a good end there.
        is_tried = self._step is not None
        is_slow = window.full_s > SLOW * usual_s and (window.done > 0 or is_tried)
        if (window.done >= need or is_slow) and window.full_s > 0.0:
            new = capacity.measured(max(window.done, NONE_DONE), window.full_s, spread2)
            if self._step is None:
                self._look_behind(waiting)
                return self._base_measured(new, now_s)
            return self._other_measured(self._step, new, now_s)
        if is_tried and now_s - window.began_s > IDLE * usual_s:
            if self._todo and window.stopped > window.done:
                del self._todo[0]  # it is not used as often since what runs there is stopped
            return self._to_base(now_s)
        if not is_tried and (not known[1] or not window.done):
            return self._halve_late(now_s)
        return False

    def _halve_late(self, now_s: float) -> bool:
        """Halve the base if what runs is mostly stopped, so that it cannot be measured."""
        window = self._window
        is_late = window.done + window.stopped >= 2 * max(DONE_MIN, self.base)
        if not is_late or window.done >= window.stopped or self.base == self.least:
            return False
        self.base = max(self.least, self.base // 2)
        self.moves += 1
        self._known.clear()
        self._todo = steps(LARGEST, -1.0)
        self._tries = 0
        return self._to_base(now_s)

    def _look_behind(self, waiting: int) -> None:
        fell, self._behind_base = self.base < self._behind_base, self.base
        if fell or waiting <= BEHIND * self.base:
            self._behind_at, self._patience = BEHIND * self.base, PATIENCE
        elif waiting > self._behind_at:
            self._behind_at = 2 * waiting
            self._patience, self._waits = 2, 1
            self._todo = self._todo or [LARGEST, LARGEST / 2.0]

    def _base_measured(self, new: Estimate, now_s: float) -> bool:
        known = self._known.get(self.base, UNKNOWN)
        if capacity.has_changed(known, new):
            self._known.clear()
            self._todo = steps(LARGEST, new[0] - known[0])
            self._tries, self._waits = 0, 1
        self._note(self.base, new)
        self._waits -= 1
        if self._waits > 0:
            self._window.go_on(now_s)
            return False
        return self._try(now_s)

    def _other_measured(self, step: float, new: Estimate, now_s: float) -> bool:
        other = self.limit
        if capacity.differs(self._known.get(other, UNKNOWN), new):
            del self._known[other]
        self._note(other, new)
        sure = capacity.SURE * (1.0 - self._tries / TRIES_MAX)
        both = self._known[self.base], self._known[other]
        better = capacity.is_better(*both, self.base, other, sure)
        self._tries += 1
        if better is None and self._todo and self._tries < TRIES_MAX:
            return self._to_base(now_s)
        self._tries = 0
        if better:
            self.base, self._step = other, None
            self.moves += 1
            self._todo = steps_beyond(step)
            return self._try(now_s)
        if self._todo:
            del self._todo[0]
        else:
            self._turn = (self._turn + 1) % len(USUAL_STEPS)
        return self._to_base(now_s)

    def _note(self, number: int, new: Estimate) -> None:
        self._known = {
            one: (mean, (FADES if one == number else AGES) * worth)
            for one, (mean, worth) in self._known.items()
            if worth > 1.0 or one == self.base
        }
        self._known[number] = capacity.merged(self._known.get(number, UNKNOWN), new)

    def _try(self, now_s: float) -> bool:
        """Try the number that the next step leads to, of those that lead to another one."""
        while self._todo:
            if self._go(self._todo[0], now_s):
                return True
            del self._todo[0]
        for _ in USUAL_STEPS:
            if self._go(USUAL_STEPS[self._turn], now_s):
                return True
            self._turn = (self._turn + 1) % len(USUAL_STEPS)
        return self._to_base(now_s)

    def _go(self, step: float, now_s: float) -> bool:
        other = other_number(self.base, step, self.least, self.ceiling)
        if other == self.base:
            return False
        self._step, self.limit = step, other
        self._window.begin(self.limit, now_s)
        return True

    def _to_base(self, now_s: float) -> bool:
        self._step, self.limit = None, self.base
        self._waits = 1
        if self.is_found:
            self._waits, self._patience = self._patience, min(2 * self._patience, PATIENCE)
        self._window.begin(self.limit, now_s)
        return True


def steps(largest: float, direction: float) -> list[float]:
    """Returns the steps of a search, halved from the largest on, each in this direction first."""
    found, step = list[float](), math.copysign(largest, direction)
    while abs(step) >= SMALLEST:
        found += [step, -step]
        step /= 2.0
    return found


def steps_beyond(step: float) -> list[float]:
    """Returns the steps after one that has led to a better number. Back there is the one before."""
    further = math.copysign(min(2.0 * abs(step), LARGEST), step)
    return [further, *([step] if further != step else ()), *steps(abs(step) / 2.0, step)]
