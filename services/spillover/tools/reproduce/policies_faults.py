"""The rivals of `policies` where something is wrong: a site that dies, is slow or fails at once, by
the services' own code under a virtual clock; reports that stop and links of unlike length, by the
compiled engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from spillover.model.faults import ClusterFault, Fault, FaultSchedule
from spillover.model.ids import ClusterId
from spillover.model.request import Outcome
from spillover.model.schedule import Arrival
from spillover.sim.overflow.run import run_overflow
from spillover.tools.reproduce.figure import Claim, Effort, OnProgress
from spillover.tools.reproduce.policies_bed import (
    SERVICE_MS,
    Cell,
    arrivals_of,
    paired,
    play,
    topology_of,
)

OURS = "adaptive"
POLICIES = (OURS, "paper", "two-choice", "isolated")

NOISE = 0.01

SITE = ClusterId("s1")
"""Where it goes wrong, for the second third of the time."""

REQUESTS = 8_000
DEADLINE = 60.0


@dataclass(frozen=True, slots=True)
class Case:
    """Something that is wrong: at a cluster from one instant to another, or a cell of its own."""

    name: str
    begins: Mapping[str, Any] | None = None
    """Of a `ClusterFault`; None where the cell is what is wrong."""
    ends: Mapping[str, Any] | None = None
    cell: Cell | None = None


CASES = (
    Case("a site dies", {"action": "crash"}, {"action": "restart"}),
    Case(
        "a site is slow (3 x)",
        {"action": "slow", "factor": 3.0},
        {"action": "slow", "factor": 1.0},
    ),
    Case(
        "a site answers 503 at once",
        {"action": "failing", "share": 1.0, "status": 503},
        {"action": "failing", "share": 0.0},
    ),
    Case(
        "a site answers 500 at once",
        {"action": "failing", "share": 1.0, "status": 500},
        {"action": "failing", "share": 0.0},
    ),
    Case("reports stop", cell=Cell("4x8", 0.9, "exponential", 0.07, 2_000.0)),
    Case("links of unlike length", cell=Cell("uneven", 0.9, "exponential", 0.2, 0.05)),
    Case("and old reports", cell=Cell("uneven", 0.9, "exponential", 0.2, 10.0)),
)

_SOUND = Cell("4x8", 0.7, "exponential", 0.07, 0.05, DEADLINE, REQUESTS)


def compute_faults(effort: Effort, seed: int, on_progress: OnProgress) -> dict[str, Any]:
    """Computes mean waits, and what was done, in each case."""
    seeds = range(seed, seed + (8 if effort.full else 3))
    found = []
    for place, case in enumerate(CASES):
        runs = {policy: [_play(case, policy, one) for one in seeds] for policy in POLICIES}
        found.append(
            {
                "case": case.name,
                "wait": {policy: [wait for wait, _ in own] for policy, own in runs.items()},
                "done": {policy: [done for _, done in own] for policy, own in runs.items()},
            }
        )
        on_progress((place + 1) / len(CASES))
    return {"cases": found}


def claim_faults(data: dict[str, Any]) -> list[Claim]:
    """Returns that no rival does better where something is wrong."""
    claims = []
    for case in data["cases"]:
        rivals = [policy for policy in POLICIES[1:] if _as_much_done(case, policy)]
        best = min(rivals, key=lambda policy: fmean(case["wait"][policy]))
        wait = paired(case["wait"][OURS], case["wait"][best])
        done = {policy: fmean(case["done"][policy]) for policy in POLICIES}
        most = max(done[policy] for policy in POLICIES[1:])
        claims.append(
            Claim(
                f"{case['case']}: mean wait beside the best rival that does as much, and what is "
                "done",
                "at most 1.01 of its; no less",
                f"{wait.ratio:.3f} ± {wait.half_width:.3f} of {best}; {done[OURS]:.2%} done, "
                f"rivals at most {most:.2%}",
                wait.ratio <= 1.0 + NOISE and done[OURS] >= most - NOISE,
            )
        )
    return claims


def _as_much_done(case: Mapping[str, Any], policy: str) -> bool:
    """Whether about as many are done as by the policy that does most: who turns work away has
    short waits."""
    most = max(fmean(own) for own in case["done"].values())
    return fmean(case["done"][policy]) >= most - NOISE


def _play(case: Case, policy: str, seed: int) -> tuple[float, float]:
    """(mean wait in services, share that is done)."""
    if case.cell is not None:
        outcome = play(case.cell, policy, seed)
        return outcome.wait_mean, outcome.done_share
    topology = topology_of(_SOUND).with_policy(policy)
    arrivals = arrivals_of(_SOUND, seed)
    assert arrivals.service_ms is not None  # noqa: S101 - as `arrivals_of` makes them
    schedule = [
        Arrival(float(time_s), topology.cluster_ids[home], float(service_ms))
        for time_s, home, service_ms in zip(
            arrivals.time_s, arrivals.cluster, arrivals.service_ms, strict=True
        )
    ]
    last_s = schedule[-1].time_s
    faults: Sequence[Fault] = [
        ClusterFault(at_s=last_s / 3, cluster=SITE, **(case.begins or {})),
        ClusterFault(at_s=last_s * 2 / 3, cluster=SITE, **(case.ends or {})),
    ]
    # Without checks: they are for tests, and cost more than the run.
    run = run_overflow(
        topology, schedule, seed, faults=FaultSchedule(case.name, tuple(faults)), check=False
    )
    times_ms = [one for own in run.system_time_ms.values() for one in own]
    done = run.outcomes[Outcome.DONE]
    wait = (sum(times_ms) / done - fmean(arrivals.service_ms)) / SERVICE_MS
    return wait, done / len(schedule)
