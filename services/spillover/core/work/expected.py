"""How long requests run, by their features: learned from each one that has run, for each type of
requests apart.

Sums of least squares are kept, of which what is older counts less. Each request weighs one by the
time that was expected of it, as the variance of a sum grows with its length. So what is expected of
all together is what they took, which is what a queue asks for.
"""

from __future__ import annotations

from dataclasses import dataclass

from spillover.policy.work import (
    OUTLIER,
    Features,
    bounded,
    expected_s,
    factors,
)

TYPES_MAX = 64
"""The most types that are learned apart; all others are one more."""

OTHERS = ""
"""The name of all others together."""

WINDOW = 256
"""What is known goes by about so many requests of a type: a service may change."""

LEARNED_FROM = 16
"""Fewer requests than that say nothing."""

TIME_MIN_S = 1e-6
"""A time is no shorter: what is divided by it would be infinite."""


@dataclass(slots=True)
class Learned:
    """What is known of one type, as it is told."""

    requests: int
    mean_s: float
    error: float
    """The mean distance between expected and real times, as a share of the mean time."""
    counted_error: float
    """The same, if each was expected to take the mean time."""
    factors: tuple[float, ...]
    """The constant, in seconds, and the seconds for 1 of each feature; none where nothing is
    known."""


class ExpectedTimes:
    """One type of requests, which say so many features."""

    __slots__ = (
        *("_count", "_counted_off_s", "_factors", "_means", "_moments", "_off_s", "_products"),
        *("mean_s", "requests"),
    )

    def __init__(self, features: int) -> None:
        self.requests = 0
        """How many have said their features, and have run."""
        self.mean_s = 0.0
        self._count = 0.0
        """How many of them count."""
        self._means = [0.0] * features
        self._moments = [[0.0] * (features + 1) for _ in range(features + 1)]
        self._products = [0.0] * (features + 1)
        self._factors: list[float] = []
        self._off_s = self._counted_off_s = 0.0

    @property
    def is_better(self) -> bool:
        """Returns whether features tell more than the mean does."""
        return bool(self._factors) and self._off_s < self._counted_off_s

    @property
    def error(self) -> float:
        """Returns the mean distance between expected and real times, as a share of the mean."""
        off_s = self._off_s if self.is_better else self._counted_off_s
        return off_s / self.mean_s if self.mean_s else 1.0

    def expected_s(self, features: Features | None) -> float | None:
        """Returns the time of a request with these features; None if they say nothing."""
        if features is None or not self.is_better:
            return None
        return max(TIME_MIN_S, expected_s(self._factors, bounded(features, self._means)))

    def took(self, features: Features, time_s: float) -> None:
        """Learn from a request with these features, which took so long."""
        features = bounded(features, self._means)
        expected = self.mean_s or time_s
        counted_s = min(time_s, OUTLIER * expected) if self.requests >= LEARNED_FROM else time_s
        if self._factors:
            expected = max(expected_s(self._factors, features), self.mean_s / OUTLIER, TIME_MIN_S)
            counted_s = min(time_s, OUTLIER * expected)
        kept = 1.0 - 1.0 / WINDOW
        self._off_s *= kept
        self._counted_off_s *= kept
        if self._factors:
            self._off_s += (1.0 - kept) * abs(counted_s - expected)
            self._counted_off_s += (1.0 - kept) * abs(counted_s - self.mean_s)
        self._add(features, counted_s, 1.0 / max(expected, TIME_MIN_S), kept)
        self.requests += 1
        if self.requests >= LEARNED_FROM:
            self._factors = factors(self._moments, self._products)

    def _add(self, features: Features, time_s: float, weight: float, kept: float) -> None:
        self._count = kept * self._count + 1.0
        self.mean_s += (time_s - self.mean_s) / self._count
        told = (1.0, *features)
        for place, one in enumerate(features):
            self._means[place] += (one - self._means[place]) / self._count
        for i, one in enumerate(told):
            row = self._moments[i]
            for j, other in enumerate(told):
                row[j] = kept * row[j] + weight * one * other
            self._products[i] = kept * self._products[i] + weight * one * time_s

    def told(self) -> Learned:
        """Returns what is known."""
        mean_s = self.mean_s or 1.0
        return Learned(
            self.requests,
            self.mean_s,
            self._off_s / mean_s,
            self._counted_off_s / mean_s,
            tuple(self._factors),
        )


class ExpectedWork:
    """All types. `unread` counts requests that have said no features that count."""

    def __init__(self) -> None:
        self._types: dict[tuple[str, int], ExpectedTimes] = {}
        self.unread = 0

    def told(self) -> dict[str, Learned]:
        """Returns what is known by type; of one whose requests say different features, the last."""
        return {kind or "(others)": one.told() for (kind, _), one in self._types.items()}

    def expected_s(self, kind: str, features: Features | None) -> float | None:
        """Returns the time of a request of this type; None if that is not known."""
        if features is None:
            self.unread += 1
            return None
        return self._of(kind, features).expected_s(features)

    def error_of(self, kind: str, features: Features | None) -> float | None:
        """Returns how far off such times are on average, as a share of them; None if that is not
        known."""
        if features is None:
            return None
        known = self._of(kind, features)
        return known.error if known.requests > LEARNED_FROM else None

    def took(self, kind: str, features: Features | None, time_s: float) -> None:
        """Learn from a request that has run."""
        if features is not None:
            self._of(kind, features).took(features, time_s)

    def _of(self, kind: str, features: Features) -> ExpectedTimes:
        name = kind, len(features)
        known = self._types.get(name)
        if known is None:
            if len(self._types) >= TYPES_MAX:
                name = OTHERS, len(features)
            known = self._types.setdefault(name, ExpectedTimes(len(features)))
        return known
