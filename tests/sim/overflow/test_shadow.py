"""Simulated federations with a shadow are those without it, to the last bit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spillover.inputs.fault_file import load_faults
from spillover.inputs.topology_file import load_topology
from spillover.sim.overflow.run import run_overflow
from spillover.workloads.generated import bursts
from support.few import few_at_first

RUNS = [
    ("paper", "adaptive", "random:3"),
    ("two-choice", "adaptive", None),
    ("adaptive", "paper", "random:3"),
]


@pytest.mark.slow
@pytest.mark.parametrize("made", few_at_first(RUNS, 1))
def test_a_shadow_changes_no_request(made):
    """Neither without faults nor with them, where messages draw too."""
    policy, shadow, faults = made
    topology = load_topology("ring5").with_policy(policy)
    schedule = bursts(topology.cluster_ids, duration_s=12.0, seed=3)
    times = []
    for with_shadow in (None, shadow):
        asked = replace(topology, shadow=with_shadow)
        happens = None if faults is None else load_faults(faults, asked, 12.0)
        run = run_overflow(asked, schedule, 7, faults=happens)
        told = run.as_dict()
        assert told.pop("requests_per_s") > 0
        sums = told.pop("shadow", None)
        assert (sums is None) == (with_shadow is None)
        if sums is not None:
            assert sums["policy"] == shadow
            assert min(sums["same"], sums["other"], sums["saved_ms"]) > 0
        times.append((run.system_time_ms, told))
    assert times[0] == times[1]
