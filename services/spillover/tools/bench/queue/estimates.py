"""Means of what was seen over all runs of a case, and how far they are to be trusted.

Waits that follow each other are alike, so what differs is counted by stretches of time, each long
enough to be one draw; and what two systems saw at the same instants is compared stretch by stretch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import stdev

from spillover.model.errors import RunError
from spillover.sim.queue.replay import Came

STRETCHES = 10
"""Of all runs, one after the other: of ten runs each is one, so that it counts too by what whole
runs differ."""
STUDENT_T = 2.262
"""The 97.5 % quantile of Student's law with STRETCHES - 1 degrees of freedom."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean, and by how much each stretch would have it differ."""

    mean: float
    differs: tuple[float, ...]

    @property
    def half_width(self) -> float:
        """Returns that of the 95 % interval."""
        return _half_width(self.differs)

    def half_width_beside(self, other: Estimate) -> float:
        """Returns that of the difference from what was seen at the same instants."""
        pairs = zip(self.differs, other.differs, strict=True)
        return _half_width([ours - theirs for ours, theirs in pairs])


def estimate(
    runs: Sequence[Sequence[Came]], since_s: float, until_s: float, value: Callable[[Came], float]
) -> Estimate:
    """Returns the mean of objects that came in that time of each run. Raises RunError if hardly any
    did."""
    sums, counts = [0.0] * STRETCHES, [0] * STRETCHES
    for number, run in enumerate(runs):
        for came in run:
            if since_s <= came.at_s < until_s:
                tenth = int((came.at_s - since_s) / (until_s - since_s) * STRETCHES)
                stretch = (number * STRETCHES + tenth) // len(runs)
                sums[stretch] += value(came)
                counts[stretch] += 1
    total = sum(counts)
    if total < STRETCHES:
        raise RunError(f"expected objects, got {total}")
    mean, share = sum(sums) / total, total / STRETCHES
    differs = [(a_sum - mean * count) / share for a_sum, count in zip(sums, counts, strict=True)]
    return Estimate(mean, tuple(differs))


def _half_width(differs: Sequence[float]) -> float:
    return float(STUDENT_T * stdev(differs) / STRETCHES**0.5)
