"""What was seen of the clients of one run: looks at them, and the steps made of those."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spillover.sim.membership.rebalancing import least_moves
from spillover.tools.bench.membership.rules import Rule, Simulated

EVENTS = ("one removed", "two removed", "one removed, three added", "one added")


@dataclass(frozen=True, slots=True)
class Look:
    """Where the clients are at one instant, and what has been counted so far."""

    at_s: float
    clients: Mapping[str, int]
    unconnected: int
    moved: int
    put_off: int

    @classmethod
    def of(cls, said: Mapping[str, Any], at_s: float) -> Look:
        """Returns what the load generator said at that time."""
        names = ("clients", "unconnected", "moved", "put_off")
        return cls(at_s, *(said[name] for name in names))

    def is_as(self, other: Look) -> bool:
        """Returns whether nobody moved between the two."""
        return (self.clients, self.moved) == (other.clients, other.moved)

    def spread(self, servers: Sequence[str]) -> tuple[float, int, float, int]:
        """Returns when, and the fewest, the mean and the most clients of those servers."""
        counts = [self.clients.get(name, 0) for name in servers]
        even = sum(self.clients.values()) / len(servers)
        return self.at_s, min(counts), even, max(counts)


@dataclass(frozen=True, slots=True)
class Step:
    """One reconfiguration, from what was before it to what it came to."""

    servers: tuple[str, ...]
    before: Look
    after: Look
    begun_s: float
    done_s: float
    """From then to the last move."""

    @property
    def moved(self) -> int:
        return self.after.moved - self.before.moved

    @property
    def moved_min(self) -> int:
        return least_moves(dict(self.before.clients), self.servers)

    @property
    def put_off(self) -> int:
        return self.after.put_off - self.before.put_off

    @property
    def max_over_mean(self) -> float:
        _, _, even, most = self.after.spread(self.servers)
        return most / even

    @property
    def min_over_mean(self) -> float:
        _, fewest, even, _ = self.after.spread(self.servers)
        return fewest / even

    def as_dict(self) -> dict[str, Any]:
        return {
            "servers": list(self.servers),
            "clients": {name: self.after.clients.get(name, 0) for name in self.servers},
            "begun_s": self.begun_s,
            **{name: getattr(self, name) for name in STEP_FIELDS},
        }


STEP_FIELDS = ("moved", "moved_min", "max_over_mean", "min_over_mean", "put_off", "done_s")


@dataclass(slots=True)
class Run:
    """One rule, from the start of its clients to their end."""

    rule: Rule
    seed: int
    simulated: Simulated
    over_time: list[tuple[float, int, float, int]] = field(default_factory=list)
    """When, and the fewest, the mean and the most clients of the servers that there were then."""
    steps: list[Step] = field(default_factory=list)
    requests: dict[str, int] = field(default_factory=dict)

    @property
    def max_over_mean(self) -> float:
        """The worst of the states after the steps, as the next one."""
        return max(step.max_over_mean for step in self.steps)

    @property
    def min_over_mean(self) -> float:
        return min(step.min_over_mean for step in self.steps)

    @property
    def moved(self) -> int:
        return sum(step.moved for step in self.steps)

    @property
    def moved_min(self) -> int:
        return sum(step.moved_min for step in self.steps)

    @property
    def put_off(self) -> int:
        return sum(step.put_off for step in self.steps)

    @property
    def done_s(self) -> float:
        """The longest of the steps."""
        return max(step.done_s for step in self.steps)

    @property
    def failed(self) -> int:
        """Requests without an answer that is a result."""
        return self.requests["failed"] + self.requests["unknown"]

    def as_dict(self) -> dict[str, Any]:
        """Returns one of the `details` of the benchmark's object."""
        steps = [
            {"event": event, **step.as_dict(), "simulated": self.simulated.medians(number)}
            for number, (event, step) in enumerate(zip(EVENTS, self.steps, strict=True))
        ]
        return {
            "rule": self.rule.label,
            "seed": self.seed,
            "steps": steps,
            "requests": self.requests,
            "over_time": [[round(value, 3) for value in seen] for seen in self.over_time],
        }
