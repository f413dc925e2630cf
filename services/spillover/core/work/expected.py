"""The expected times of requests by their features, learned from each request that has run, for
each type of requests apart.

The sums of least squares are kept, in which older requests count less. Each request weighs one by
the time that was expected of it, as the variance of a sum grows with its length. So the time that
is expected of all together is the time that they took, which is what a queue asks for.
"""

from __future__ import annotations

from dataclasses import dataclass

from spillover.policy.work import (
    LARGEST,
    OUTLIER,
    Features,
    bounded,
    expected_s,
    factors,
    first_mean,
    usual,
)

TYPES_MAX = 64
"""The most types that are learned apart; all others are one more."""

UNUSED = 1_024
"""The number of requests after which a type that none of them had makes room for another. Names
that somebody makes up take a place for so long, and push out nothing that is in use."""

OTHERS = ""
"""The name of all other types together."""

WINDOW = 256
"""The number of requests of a type by which the estimates go: a service may change."""

KEPT = 1.0 - 1.0 / WINDOW

CLAIMS = 8
"""The number of requests that say that they are huge by which the share of true ones goes."""

LEARNED_FROM = 16
"""The least number of requests from which anything is learned."""

TIME_MIN_S = 1e-6
"""The least time, in seconds: a quotient by a shorter one could be infinite."""


@dataclass(slots=True)
class Learned:
    """The public knowledge of one type."""

    requests: int
    mean_s: float
    error: float
    """The mean distance between expected and real times, as a share of the mean time; 1 where it is
    not known."""
    counted_error: float
    """The same, if each was expected to take the mean time."""
    factors: tuple[float, ...]
    """The constant, in seconds, and the seconds for 1 of each feature; empty where nothing is
    known."""


class ExpectedTimes:
    """The expected times of one type of requests, which state so many features."""

    def __init__(self, features: int) -> None:
        self.requests = 0
        """The number of requests that have stated their features, and have run."""
        self.last_used = 0
        """The number, among the requests of all types, of the last of them."""
        self.mean_s = 0.0
        self._first: list[tuple[Features, float]] = []
        """The first requests: what is usual is known from all of them together."""
        self._count = 0.0
        """The number of requests that count."""
        self._means = [0.0] * features
        self._moments = [[0.0] * (features + 1) for _ in range(features + 1)]
        self._products = [0.0] * (features + 1)
        self._factors: list[float] = []
        self._claims = 0
        """The number of these requests, up to CLAIMS."""
        self._believed = 0.0
        """The share of true ones among the last requests that said they were huge; 0 before the
        first of them has run."""
        self._compared = 0
        """The number of times that were compared with what was expected."""
        self._off_s = self._counted_off_s = 0.0

    @property
    def is_compared(self) -> bool:
        """Returns whether it is known how far off expected times are."""
        return self._compared >= LEARNED_FROM

    @property
    def is_better(self) -> bool:
        """Returns whether features predict times better than the mean does."""
        return self.is_compared and self._off_s < self._counted_off_s

    @property
    def error(self) -> float:
        """Returns the mean distance between expected and real times, as a share of the mean."""
        return self._share(self._off_s if self.is_better else self._counted_off_s)

    def _share(self, off_s: float) -> float:
        """Returns a running mean that began at 0, as a share of the mean time."""
        if not self._compared or not self.mean_s:
            return 1.0
        return off_s / (1.0 - KEPT**self._compared) / self.mean_s

    def expected_s(self, features: Features | None) -> float | None:
        """Returns the time of a request with these features; None if they say nothing."""
        if features is None or not self.is_better:
            return None
        return max(TIME_MIN_S, self._told_s(features))

    def _told_s(self, features: Features) -> float:
        """Returns the time of a request. What is huge by its own word counts as far as such words
        have been true lately; else as what is usual."""
        claimed_s = self._claimed_s(features)
        if self._believed == 1.0 or not self._is_huge(features):
            return claimed_s
        usual_s = self._claimed_s(usual(features, self._means))
        return usual_s + self._believed * (claimed_s - usual_s)

    def _claimed_s(self, features: Features) -> float:
        return min(expected_s(self._factors, features), LARGEST * self.mean_s)

    def took(self, features: Features, time_s: float) -> None:
        """Learn from a request with these features, which took so long."""
        self.requests += 1
        if self.requests <= LEARNED_FROM:
            self.mean_s += (time_s - self.mean_s) / self.requests
            self._first.append((features, time_s))
            if self.requests == LEARNED_FROM:
                self._begin()
            return
        least_s = max(self.mean_s / OUTLIER, TIME_MIN_S)
        claimed_s = max(self._claimed_s(features), least_s)
        counted_s = min(time_s, OUTLIER * claimed_s)
        off_s = abs(counted_s - max(self._told_s(features), least_s))
        is_huge = self._is_huge(features)
        is_believed = not (is_huge and self._is_too_short(features, time_s))
        if is_huge:
            off_s = min(off_s, OUTLIER * self.mean_s)
            self._claims = min(self._claims + 1, CLAIMS)
            self._believed += (is_believed - self._believed) / self._claims
        if is_believed:
            self._fit(features, counted_s, claimed_s)
            self._factors = factors(self._moments, self._products)
        self._compared += 1
        self._off_s += (1.0 - KEPT) * (off_s - self._off_s)
        self._counted_off_s += (1.0 - KEPT) * (abs(counted_s - self.mean_s) - self._counted_off_s)
        self._count = KEPT * self._count + 1.0
        self.mean_s += (counted_s - self.mean_s) / self._count
        for place, one in enumerate(bounded(features, self._means)):
            self._means[place] += (one - self._means[place]) / self._count

    def _begin(self) -> None:
        """Learn from the first requests."""
        told = zip(*[features for features, _ in self._first], strict=True)
        self._means = [first_mean(numbers) for numbers in told]
        self.mean_s = first_mean([time_s for _, time_s in self._first])
        self._count = float(LEARNED_FROM)
        usual_s = max(self.mean_s, TIME_MIN_S)
        for features, time_s in self._first:
            if not self._is_huge(features):
                self._fit(features, min(time_s, OUTLIER * usual_s), usual_s)
        self._first.clear()
        self._factors = factors(self._moments, self._products)

    def _is_huge(self, features: Features) -> bool:
        return bounded(features, self._means) != features

    def _is_too_short(self, features: Features, time_s: float) -> bool:
        """Returns whether the request was done in far less time than one of such features takes: if
        they are huge, it teaches nothing of how times grow."""
        return expected_s(self._factors, features) > OUTLIER * time_s

    def _fit(self, features: Features, time_s: float, told_s: float) -> None:
        """Have the sums of least squares know of a request of which so long was expected."""
        told, weight = (1.0, *features), 1.0 / told_s
        for i, one in enumerate(told):
            row = self._moments[i]
            for j, other in enumerate(told):
                row[j] = KEPT * row[j] + weight * one * other
            self._products[i] = KEPT * self._products[i] + weight * one * time_s

    def told(self) -> Learned:
        errors = self._share(self._off_s), self._share(self._counted_off_s)
        return Learned(self.requests, self.mean_s, *errors, tuple(self._factors))


class ExpectedWork:
    """The expected times of all types. `unread` counts requests that have stated no features that
    count."""

    def __init__(self) -> None:
        self._types: dict[tuple[str, int, int], ExpectedTimes] = {}
        """The types, those used longest ago first, each with the measure of its requests and the
        number of features: seconds for a byte are not those for a token."""
        self._requests = 0
        """The number of requests that have run."""
        self._labels: set[str] = set()
        self.unread = 0

    def told(self) -> dict[str, Learned]:
        """Returns the knowledge by type; of a type whose requests are measured differently, that of
        the most."""
        known = sorted(self._types.items(), key=lambda one: one[1].requests)
        return {kind or "(others)": one.told() for (kind, *_), one in known}

    def labeled(self) -> dict[str, Learned]:
        """Returns the knowledge of the types that metrics have: of the first whose errors are known
        at all, as series must not grow in number without an end."""
        known = {kind or "(others)" for (kind, *_), one in self._types.items() if one.is_compared}
        for kind in sorted(known - self._labels)[: TYPES_MAX - len(self._labels)]:
            self._labels.add(kind)
        return {kind: told for kind, told in self.told().items() if kind in self._labels & known}

    def expected_s(self, kind: str, features: Features | None, measure: int = 0) -> float | None:
        """Returns the time of a request of this type; None if that is not known. No features at all
        are those of a request that is only counted."""
        self.unread += features is None
        known = self._known(kind, features, measure) if features else None
        return None if known is None else known.expected_s(features)

    def error_of(self, kind: str, features: Features | None, measure: int = 0) -> float | None:
        """Returns the mean error of such expected times, as a share of them; None if it is not
        known."""
        known = self._known(kind, features, measure) if features else None
        return known.error if known is not None and known.is_compared else None

    def took(self, kind: str, features: Features | None, time_s: float, measure: int = 0) -> None:
        """Learn from a request that has run."""
        if not features:
            return
        self._requests += 1
        name = kind, measure, len(features)
        if name not in self._types and len(self._types) >= TYPES_MAX:
            oldest = next(iter(self._types))
            if self._requests - self._types[oldest].last_used > UNUSED:
                del self._types[oldest]
            else:
                name = OTHERS, measure, len(features)
        known = self._types.pop(name, None) or ExpectedTimes(len(features))
        self._types[name] = known
        known.last_used = self._requests
        known.took(features, time_s)

    def _known(self, kind: str, features: Features, measure: int) -> ExpectedTimes | None:
        by = measure, len(features)
        return self._types.get((kind, *by)) or self._types.get((OTHERS, *by))
