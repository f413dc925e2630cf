"""The search for how many requests a service bears at a time.

Theory of operation. One number is the *base*, which is in use for most of the time. In turns
another one is tried, larger or smaller, for about as long as two services take. Each time it is
measured how many requests a second come to a good end, but only while as many run as may: otherwise
the clients decide how many. A number that does better becomes the base, and one beyond it is tried
next, in steps that double. If neither side does better, the steps are halved. At the end of that
the base is *found*: small steps go on, and large ones now and then, as services change without a
word. If the rate at the base itself has changed, all that is known is forgotten, and the search
begins anew.

Work that fails brings nothing to a good end and keeps its server for as long as a success
(`FifoServers`), so that a service that fails at any number makes none look better. If deadlines end
most of what runs before anything is measured, fewer at a time would be in time: the base is halved
until most are.
"""

from __future__ import annotations

import math

from spillover.core.capacity.window import Window
from spillover.policy import capacity
from spillover.policy.capacity import UNKNOWN, Estimate, other_number

DONE_MIN = 16
"""The least number of good ends that a measurement takes. It takes a multiple of those that run,
and at least twice as many once the base is found, since requests that began together also end
together."""

FADES, AGES = 0.85, 0.97
"""The shares that an estimate is worth after the next measurement: of its number, or of another."""

LARGEST, SMALLEST = 1.0, 0.125
"""The largest and the smallest step, in doublings."""

USUAL_STEPS = (0.5, SMALLEST, -0.5, -SMALLEST)
"""The steps from a base that is found, in turn. Small ones cost little and keep to what is best;
large ones soon see that something else is."""

TRIES_MAX = 3
"""The number of times that a number is tried in a search while it is not clear whether it is
better."""

PATIENCE, PATIENCE_BEHIND = 36, 9
"""The largest number of measurements of a base that is found before the next one of another
number, and the same while more wait than chance leaves behind, or as many run as may all the while:
a trial delays all that come meanwhile, and these most need a better number."""

BEHIND, BEHIND_MIN = 4, 32
"""The number of waiting requests for each running one, and the least number of them, beyond which
clients have begun to bring more than the base can do. Larger numbers are then tried at once, and
others after 2 measurements of the base, 4, and so on. A queue at a load of .8 is as long as 16
now and then, however many run."""

SLOW = 2.0
"""The longest time of a measurement, as a multiple of the time that the base would take for as many
good ends; it then ends with what it has."""

EARLY = 1.25
"""How sure it has to be that a larger number does worse for its measurement to end sooner, as a
multiple of what suffices at the end. It is more than 1 since that is looked at after each good
end."""

EVEN = 0.05
"""The squared coefficient of variation of services below which those that began together end
together: only whole cohorts of them show how many are done in a time."""

NONE_DONE = 0.5
"""The number of good ends that none at all counts as: a rate of none has no logarithm."""

IDLE = 6.0
"""The time after which another number is given up that is not used as often as it may be, as a
multiple of the time that the base would take for a measurement."""


class CapacitySearch:
    """The search, between two bounds. `base` is the number that is believed to be best, `limit` the
    number that may run now."""

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
        """The largest number for now, by what an engine says; never above `most`."""
        self.base = self.limit = min(max(start, least), most)
        self.moves = 0
        """The number of times that the base has changed."""
        self._known: dict[int, Estimate] = {}
        """The estimates of a few numbers, by number: each fades while others are measured."""
        self._step: float | None = None
        """The step to the number that is tried; None while the base is in use."""
        self._todo = steps(LARGEST, -1.0)
        """The steps of a search that are left; none once the base is found. A smaller number is
        tried first: if it is the worse one, it has shown so in a quarter of the time."""
        self._turn = 0
        """The index of the next of the usual steps."""
        self._tries = 0
        self._waits = 1
        """The number of measurements of the base before the next one of another number."""
        self._patience = PATIENCE
        self._behind_at = behind(self.base)
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
        """Note that as many run as may, from now on."""
        self._window.is_full(now_s)

    def bound(self, ceiling: int, now_s: float) -> bool:
        """Let no more than this run from now on; a trial beyond it is over. If the bound has risen,
        and the base was at it, larger numbers are tried at once. Returns whether there is another
        limit."""
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
        """Note that a service has ended, perhaps as its time was over or nobody wants it any more.
        `spread2` is the squared coefficient of variation of services; the counts are those that run
        or start now, and those that wait. Returns whether there is another limit."""
        window, stays_full = self._window, running >= self.limit
        if not window.ended(
            is_good=is_good, is_stopped=is_stopped, stays_full=stays_full, now_s=now_s
        ):
            return False
        known = self._known.get(self.base, UNKNOWN)
        cohorts = max(-(-DONE_MIN // self.limit), 2 if self.is_found else 1)
        need = cohorts * self.limit
        usual_s = need / capacity.rate_of(known) if known[1] else math.inf
        # For another number it is enough to know that nothing comes to a good end there.
        is_tried = self._step is not None
        is_slow = window.full_s > SLOW * usual_s and (window.done > 0 or is_tried)
        is_slow = is_slow or self._is_clearly_worse(window, spread2)
        if (window.done >= need or is_slow) and window.full_s > 0.0:
            new = capacity.measured(max(window.done, NONE_DONE), window.full_s, spread2)
            if self._step is None:
                self._look_behind(waiting)
                if window.in_row >= PATIENCE_BEHIND * need:
                    self._waits = 1  # deadlines or neighbors may keep the queue short
                return self._base_measured(new, now_s)
            return self._other_measured(self._step, new, now_s)
        if is_tried and now_s - window.began_s > IDLE * usual_s:
            if self._todo and window.stopped > window.done:
                del self._todo[0]  # the number is used less since its work is stopped
            return self._to_base(now_s)
        if not is_tried and (not known[1] or not window.done):
            return self._halve_late(now_s)
        return False

    def _is_clearly_worse(self, window: Window, spread2: float) -> bool:
        """Returns whether a larger number than the base has shown by now that it does worse.
        Requests there take longer, all the while that it is tried."""
        step = self._step
        if step is None or step < 0.0 or not window.done or not window.full_s:
            return False
        if spread2 < EVEN and window.done % self.limit:
            return False  # the others that began with these are about to end
        new = capacity.measured(window.done, window.full_s, spread2)
        both = self._known[self.base], new
        sure = EARLY * capacity.SURE
        return capacity.is_better(*both, self.base, self.limit, sure) is False

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
        if fell or waiting <= behind(self.base):
            self._behind_at, self._patience = behind(self.base), PATIENCE
        elif waiting > self._behind_at:
            self._behind_at = 2 * waiting
            self._patience, self._waits = 2, 1
            self._todo = self._todo or [LARGEST, LARGEST / 2.0]
        else:
            self._patience = min(self._patience, PATIENCE_BEHIND)

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


def behind(base: int) -> int:
    """Returns how many waiting requests are more than chance leaves behind so many running ones."""
    return max(BEHIND * base, BEHIND_MIN)


def steps(largest: float, direction: float) -> list[float]:
    """Returns the steps of a search, halved from the largest on, each in this direction first."""
    found, step = list[float](), math.copysign(largest, direction)
    while abs(step) >= SMALLEST:
        found += [step, -step]
        step /= 2.0
    return found


def steps_beyond(step: float) -> list[float]:
    """Returns the steps after one that has led to a better number. A whole step back would lead to
    the number before, and is left out."""
    further = math.copysign(min(2.0 * abs(step), LARGEST), step)
    return [further, *([step] if further != step else ()), *steps(abs(step) / 2.0, step)]
