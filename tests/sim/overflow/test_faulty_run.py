"""Runs in which things go wrong: the same without faults, repeatable with them."""

from dataclasses import replace

import pytest

from spillover.inputs.fault_file import load_faults
from spillover.inputs.topology_file import load_topology
from spillover.model.errors import InputError
from spillover.model.faults import ClusterFault, FaultSchedule
from spillover.sim.overflow.run import run_overflow
from spillover.workloads.generated import bursts, poisson
from support.few import all_in_soak, few_at_first

SUMS = ("requests", "hops", "outcomes", "queue_length_max", "forwarded_share")


def crash(at_s, cluster, restart_s=None):
    faults = [ClusterFault(at_s=at_s, action="crash", cluster=cluster)]
    if restart_s is not None:
        faults.append(ClusterFault(at_s=restart_s, action="restart", cluster=cluster))
    return FaultSchedule("crash", tuple(faults))


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["two-choice", "adaptive"])
@pytest.mark.parametrize("deadline_ms", few_at_first(all_in_soak([150, 60_000], 1), 1))
def test_without_faults_it_is_the_same_run(policy, deadline_ms):
    """Over links that could fail and do not, with everything checked: each request takes the same
    way, in the same time but for rounding."""
    topology = load_topology("ring5").with_policy(policy)
    topology = replace(topology, default_deadline_ms=deadline_ms)
    schedule = bursts(topology.cluster_ids, duration_s=5.0, seed=3)
    plain = run_overflow(topology, schedule, 7)
    checked = run_overflow(topology, schedule, 7, check=True)
    for name in SUMS:
        assert plain.as_dict()[name] == checked.as_dict()[name], name
    assert checked.as_dict()["faults"] == 0
    for cluster, times in plain.system_time_ms.items():
        assert checked.system_time_ms[cluster] == pytest.approx(times, abs=1e-8)


def test_answers_that_begin_are_the_same_without_faults_and_bounded_to_their_heads():
    """Over links that could fail and do not. Of services that take longer than the deadline, those
    whose heads come in time are done."""
    topology = replace(load_topology("ring5"), default_deadline_ms=100)
    clusters = tuple(replace(one, handler="proxy:http://127.0.0.1:9") for one in topology.clusters)
    passed = replace(topology, clusters=clusters)
    schedule = [replace(one, service_ms=150.0) for one in poisson(
        topology.cluster_ids, rate_per_s=20, duration_s=6.0, seed=3
    )]  # fmt: skip
    plain = run_overflow(passed, schedule, 7)
    checked = run_overflow(passed, schedule, 7, check=True)
    for name in SUMS:
        assert plain.as_dict()[name] == checked.as_dict()[name], name
    assert run_overflow(topology, schedule, 7).outcomes.keys() == {"expired"}
    assert 0.2 < plain.outcomes["done"] / len(schedule) < 0.8
    assert set(plain.outcomes) <= {"done", "expired", "refused"}


@pytest.mark.slow
def test_the_same_seeds_give_the_same_numbers_also_with_a_shadow():
    """Of the run and of its faults; another schedule of faults gives others. What the shadow would
    have done is told besides."""
    topology = load_topology("ring5")
    schedule = poisson(topology.cluster_ids, rate_per_s=110, duration_s=2.0, seed=1)
    told = []
    for seed, shadow in ((5, None), (5, "adaptive"), (6, None)):
        asked = replace(topology, shadow=shadow)
        faults = load_faults(f"random:{seed}", asked, 2.0)
        run = run_overflow(asked, schedule, 1, faults=faults).as_dict()
        assert run.pop("requests_per_s") > 0
        told.append(run)
    sums = told[1].pop("shadow")
    assert sums["policy"] == "adaptive"
    assert min(sums["same"], sums["other"], sums["saved_ms"]) > 0
    assert told[0] == told[1]
    assert told[0] != told[2]


def test_a_site_that_dies():
    """At 5 s, for good: from then on nobody reaches it, the others go on without it, and only the
    few requests that it held are in doubt."""
    topology = load_topology("ring5")
    schedule = poisson(topology.cluster_ids, rate_per_s=60, duration_s=10.0, seed=1)
    after = sum(arrival.cluster == "a" and arrival.time_s >= 5.0 for arrival in schedule)
    run = run_overflow(topology, schedule, 1, faults=crash(5.0, "a"))
    told = run.as_dict()
    assert told["faults"] == 1
    assert told["requests"] == len(schedule) == sum(told["outcomes"].values())
    assert told["outcomes"]["unreachable"] == after
    assert 0 < told["outcomes"]["unknown"] < 20
    assert told["outcomes"]["done"] == len(schedule) - after - told["outcomes"]["unknown"]
    alive = [told["per_cluster"][c]["system_time_ms"] for c in "bcde"]
    assert max(times["max"] for times in alive) < 1000.0


def test_faults_are_checked_against_the_topology():
    """One that names an unknown cluster never runs."""
    with pytest.raises(InputError, match="expected a cluster id"):
        run_overflow(load_topology("ring5"), [], 1, faults=crash(1.0, "z"))
    assert run_overflow(load_topology("ring5"), [], 1, faults=crash(1.0, "a")).faults == 1
