"""The subject of the models and the simulation of Johnson's distributed queue: a system of
producers and consumers, and its figures. No equation and no simulation lives here.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

from spillover.model.errors import InputError

SOURCE = "probing"
MOST = 1_000_000
"""The most of anything that is counted."""
LEAST_RATE, MOST_RATE = 1e-12, 1e12
"""These bounds keep products and quotients of rates and times well inside the floats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerKind:
    """Producers that are alike (section 4.2).

    `count` of them, each making objects at `rate` (per unit of time) while it is not blocked;
    `access` is the share of all probes that goes to them together, frac_k of equation 10.
    """

    count: int
    rate: float
    access: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbingSystem:
    """Producers, consumers and the parameters of the protocol (section 2). Times and rates are in
    one unit of the caller's choice, the document's tick for instance.

    Raises InputError where the system makes no sense, naming the field.
    """

    kinds: tuple[ProducerKind, ...]
    consumers: int
    consumption_rate: float
    """mu: a consumer needs 1/mu on average for one object."""
    message_time: float
    """r: what one message is under way, on average."""
    buffers: int
    """f: objects that a producer holds before it blocks."""
    max_hops: int
    """h_max: probes of a request before it parks."""
    producers_per_consumer: int | None = None
    """Each consumer probes only so many producers, spread evenly over the consumers."""

    def __post_init__(self) -> None:
        _check(self)

    @property
    def producers(self) -> int:
        return sum(kind.count for kind in self.kinds)

    @property
    def probed(self) -> int:
        """Returns how many producers a consumer may probe."""
        return self.producers_per_consumer or self.producers

    @property
    def is_restricted(self) -> bool:
        """Returns whether consumers may probe some of the producers only."""
        return self.probed < self.producers

    @property
    def capacity(self) -> float:
        """Objects per unit of time if no producer ever blocked."""
        return math.fsum(kind.count * kind.rate for kind in self.kinds)

    @property
    def load(self) -> float:
        """M mu / (N lambda) (section 4.1.1): above 1, the consumers want more than can be made."""
        return self.consumers * self.consumption_rate / self.capacity


@dataclass(frozen=True, slots=True)
class ProbingFigures:
    """Performance of the queue (end of section 4.1); all means are in the stationary state."""

    probes_mean: float
    """h_avg: probes of a request."""
    wait_mean: float
    """W: from a request to its object, messages included."""
    empty_probability: float
    """p_mt: share of the probes that find an empty producer."""
    producer_utilization: float
    """U_p: share of the production capacity in use; of unlike producers, weighted by rate."""
    consumer_utilization: float
    """U_c: share of the time in which a consumer consumes."""
    throughput: float
    """T: objects per unit of time, all consumers together."""

    def as_dict(self) -> dict[str, float]:
        """Returns the object that `exact probing --json` prints."""
        return asdict(self)


def alike(producers: int, rate: float) -> tuple[ProducerKind, ...]:
    """Producers of one kind."""
    return (ProducerKind(count=producers, rate=rate, access=1.0),)


def fast_and_slow(
    producers: int, slow_rate: float, *, share: float, factor: float, access: float | None = None
) -> tuple[ProducerKind, ...]:
    """Fast producers, `share` of all and `factor` times as fast as the others (section 4.2.1).

    `access` is the share of the probes that goes to the fast ones; without it, all producers are
    equally likely to be probed. Raises InputError unless both kinds have a producer.
    """
    _count("producers", producers)
    fast = round(producers * share)
    if not 0 < fast < producers:
        expected = f"expected a share that leaves fast and slow ones, got {share:g} of {producers}"
        raise InputError(SOURCE, "fast_share", expected)
    _rate("fast_factor", factor)
    to_fast = fast / producers if access is None else access
    if not 0.0 <= to_fast <= 1.0:
        raise InputError(SOURCE, "fast_access", f"expected a share of 0 to 1, got {to_fast:g}")
    return (
        ProducerKind(count=fast, rate=slow_rate * factor, access=to_fast),
        ProducerKind(count=producers - fast, rate=slow_rate, access=1.0 - to_fast),
    )


def _check(system: ProbingSystem) -> None:
    if not system.kinds:
        raise InputError(SOURCE, "kinds", "expected at least one kind of producers, got none")
    _count("producers", system.producers)
    for kind in system.kinds:
        _count("producers", kind.count)
        _rate("production_rate", kind.rate)
        if not 0.0 <= kind.access <= 1.0:
            raise InputError(SOURCE, "access", f"expected a share of 0 to 1, got {kind.access:g}")
    if not math.isclose(math.fsum(kind.access for kind in system.kinds), 1.0, rel_tol=1e-9):
        raise InputError(SOURCE, "access", "expected shares that add up to 1")
    _count("consumers", system.consumers)
    _rate("consumption_rate", system.consumption_rate)
    if not 0.0 <= system.message_time <= MOST_RATE:
        expected = f"expected a number of 0 to {MOST_RATE:g}, got {system.message_time:g}"
        raise InputError(SOURCE, "message_time", expected)
    _count("buffers", system.buffers)
    _count("max_hops", system.max_hops)
    most = system.producers_per_consumer
    if most is not None and not 1 <= most <= system.producers:
        expected = f"expected 1 to {system.producers}, the number of producers, got {most}"
        raise InputError(SOURCE, "producers_per_consumer", expected)
    if system.is_restricted and len(system.kinds) > 1:
        expected = "expected only where all producers are alike: together they are not modeled"
        raise InputError(SOURCE, "producers_per_consumer", expected)


def _count(field: str, value: int) -> None:
    if not 1 <= value <= MOST:
        raise InputError(SOURCE, field, f"expected a whole number of 1 to {MOST}, got {value}")


def _rate(field: str, value: float) -> None:
    if not LEAST_RATE <= value <= MOST_RATE:
        expected = f"expected a number of {LEAST_RATE:g} to {MOST_RATE:g}, got {value:g}"
        raise InputError(SOURCE, field, expected)
