"""The rules that are compared, and what the simulator says of each. No clock and no socket here."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from spillover.core.membership.choosing import Chooser
from spillover.core.membership.list_change import change_between
from spillover.sim.membership.following import follow
from spillover.sim.membership.rebalancing import Step


@dataclass(frozen=True, slots=True)
class Rule:
    """One way to choose servers, and where its clients begin: "random", each at any server, or
    "balanced". With `consistent-hash` the circle says."""

    label: str
    rule: str
    start: str = "random"
    virtual_nodes: int = 1

    def starts(self, names: Sequence[str], servers: Sequence[str]) -> list[str]:
        """Returns the server at which each client of these names begins; none where it draws."""
        if self.rule == "consistent-hash":
            change = change_between((), servers)
            choosers = [Chooser(self.rule, Random(0), name, self.virtual_nodes) for name in names]
            return [change.after[one.place(change, "", None)] for one in choosers]
        if self.start == "balanced":
            return [servers[number % len(servers)] for number in range(len(names))]
        return []


EVEN = Rule("stratified from an even start", "stratified", start="balanced")

RULES = (
    Rule("probabilistic", "probabilistic"),
    Rule("stratified", "stratified"),
    EVEN,
    Rule("baseline", "baseline"),
    *(Rule(f"consistent hashing, k = {k}", "consistent-hash", "", k) for k in (1, 5, 20)),
)


@dataclass(frozen=True, slots=True)
class Simulated:
    """Of all simulated runs: by step, by run."""

    moved: tuple[tuple[float, ...], ...]
    fullest: tuple[tuple[float, ...], ...]
    emptiest: tuple[tuple[float, ...], ...]
    """Over the mean, as the one before."""

    @property
    def moved_in_all(self) -> tuple[float, ...]:
        return tuple(sum(run) for run in zip(*self.moved, strict=True))

    @property
    def fullest_of_all(self) -> tuple[float, ...]:
        return tuple(max(run) for run in zip(*self.fullest, strict=True))

    @property
    def emptiest_of_all(self) -> tuple[float, ...]:
        return tuple(min(run) for run in zip(*self.emptiest, strict=True))

    def medians(self, step: int) -> dict[str, float]:
        return {
            "moved": statistics.median(self.moved[step]),
            "max_over_mean": statistics.median(self.fullest[step]),
            "min_over_mean": statistics.median(self.emptiest[step]),
        }


def simulate(rule: Rule, clients: int, lists: Sequence[Sequence[str]], runs: int) -> Simulated:
    """Returns what the machines of clients do in virtual time, with the seeds from 1."""
    by_run = [
        follow(
            clients,
            lists,
            rule=rule.rule,
            start=rule.start or "random",
            virtual_nodes=rule.virtual_nodes,
            seed=seed,
        )
        for seed in range(1, runs + 1)
    ]
    by_step: list[tuple[Step, ...]] = list(zip(*by_run, strict=True))
    seen = [[one.as_dict() for one in runs] for runs in by_step]
    return Simulated(
        *(
            tuple(tuple(one[field] for one in runs) for runs in seen)
            for field in ("moved", "max_over_mean", "min_over_mean")
        )
    )
