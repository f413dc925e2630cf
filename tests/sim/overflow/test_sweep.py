"""A sweep over seeds: dozens of random histories, each checked all the way.

`SPILLOVER_SOAK_S` in the environment makes it hundreds, and go on for about so long.
"""

from __future__ import annotations

import os
import time
from collections import Counter

import pytest

from spillover.inputs.fault_file import load_faults
from spillover.inputs.topology_file import load_topology
from spillover.model.request import Outcome
from spillover.sim.overflow.run import run_overflow
from spillover.workloads.generated import poisson

SOAK_S = float(os.environ.get("SPILLOVER_SOAK_S", "0"))
SWEEP_SEEDS = 200 if SOAK_S else 18
SWEEPS = (*(("ring5", 0.8, 110.0), ("chord5", 0.8, 120.0)) * 4, ("ring5", 14.0, 12.0))
"""Topology, duration in seconds, requests per second and cluster, in turn: mostly short and busy,
now and then so long that what is cut off is given up."""


def sweep(seed):
    """One random history; it raises where anything breaks, with the command that repeats it."""
    name, duration_s, rate_per_s = SWEEPS[seed % len(SWEEPS)]
    policy = ("paper", "two-choice", "paper", "isolated", "paper")[seed % 5]
    keyed = seed % 3 != 0
    topology = load_topology(name).with_policy(policy)
    schedule = poisson(
        topology.cluster_ids, rate_per_s=rate_per_s, duration_s=duration_s, seed=seed
    )
    command = (
        f"spillover sim overflow --topology {name} --policy {policy} --workload poisson"
        f" --rate {rate_per_s:g} --duration-s {duration_s:g} --seed {seed} --faults random:{seed}"
    )
    return run_overflow(
        topology,
        schedule,
        seed,
        faults=load_faults(f"random:{seed}", topology, duration_s),
        keyed=keyed,
        replay=command if keyed else f"{command} --no-keys",
    )


@pytest.mark.slow
def test_nothing_breaks_in_a_sweep_over_seeds():
    """They are eventful, or they would prove little."""
    outcomes, faults, until_s = Counter(), 0, time.monotonic() + SOAK_S
    seed = 0
    while seed < SWEEP_SEEDS or time.monotonic() < until_s:
        run = sweep(seed)
        outcomes.update(run.outcomes)
        faults += run.faults
        seed += 1
    assert faults > 5 * seed
    assert outcomes[Outcome.DONE] > 0.9 * outcomes.total()
    assert min(outcomes[Outcome.UNKNOWN], outcomes["unreachable"]) > seed / 2
