"""The ends of clients' requests in the last seconds: counts, and how long the done ones took.

It is a ring of seconds, each with a histogram on a logarithmic scale, so that its size is fixed and
one request costs a clock, a search and an addition. The counts of all time are in `metrics`.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

from spillover.model.request import Outcome

WINDOW_S = 10
"""The length of the window in seconds: the current second and the nine before it."""

STEPS_PER_DOUBLING = 8
"""The number of steps for each doubling of a duration. A quantile is off by half a step at most:
4.5 %."""

SHORTEST_S, DOUBLINGS = 1e-4, 25
"""The range of durations, from 0.1 ms to 56 minutes. A shorter or longer one counts as its end."""

BOUNDS_S: tuple[float, ...] = tuple(
    SHORTEST_S * 2.0 ** (step / STEPS_PER_DOUBLING)
    for step in range(DOUBLINGS * STEPS_PER_DOUBLING + 1)
)
_COUNTS = len(BOUNDS_S) + 1
_HALF_A_STEP: float = 2.0 ** (0.5 / STEPS_PER_DOUBLING)

REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class RecentEnds:
    """The clients' requests that ended within the window. Those of unknown outcome count as
    `failed`. `p50_s` and `p99_s` are of the system times of done requests, None where there are
    none."""

    done: int
    failed: int
    rejected: int
    expired: int
    refused: int
    p50_s: float | None
    p99_s: float | None


class _Second:
    """The requests that ended within one second of the clock."""

    __slots__ = ("at", "done", "others")

    def __init__(self) -> None:
        self.begin(-1)

    def begin(self, at: int) -> None:
        self.at = at
        self.done = [0] * _COUNTS
        self.others: Counter[str] = Counter()


class Recent:
    """The recent ends of one node. `clock` counts seconds and never goes back."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ring = [_Second() for _ in range(WINDOW_S)]
        self._second = self._ring[0]
        self._until_s = 0.0
        """The time when the second that `_second` counts is over."""

    def done(self, system_time_s: float) -> None:
        second = self._second if self._clock() < self._until_s else self._now()
        second.done[bisect_left(BOUNDS_S, system_time_s)] += 1

    def ended(self, how: str) -> None:
        """Count a request that has ended otherwise: by an Outcome, or as REFUSED."""
        self._now().others[how] += 1

    def read(self) -> RecentEnds:
        """Returns the ends within the window, as of now."""
        since = int(self._clock()) - WINDOW_S
        seconds = [second for second in self._ring if second.at > since]
        times = [sum(counts) for counts in zip(*(one.done for one in seconds), strict=True)]
        others: Counter[str] = Counter()
        for second in seconds:
            others.update(second.others)
        return RecentEnds(
            done=sum(times),
            failed=others[Outcome.FAILED] + others[Outcome.UNKNOWN],
            rejected=others[Outcome.REJECTED],
            expired=others[Outcome.EXPIRED],
            refused=others[REFUSED],
            p50_s=_quantile(times, 0.5),
            p99_s=_quantile(times, 0.99),
        )

    def _now(self) -> _Second:
        at = int(self._clock())
        if self._second.at != at:
            self._second = self._ring[at % WINDOW_S]
            self._second.begin(at)
            self._until_s = at + 1.0
        return self._second


def _quantile(counts: list[int], share: float) -> float | None:
    """Returns the middle, by ratio, of the bucket that holds the quantile."""
    wanted = share * sum(counts)
    if not wanted:
        return None
    index = next(i for i, below in enumerate(accumulate(counts)) if below >= wanted)
    if index == 0:
        return BOUNDS_S[0]
    if index == len(BOUNDS_S):
        return BOUNDS_S[-1]
    return BOUNDS_S[index] / _HALF_A_STEP
