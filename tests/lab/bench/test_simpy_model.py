"""The model that stands beside our engines: the same federation, so the same means."""

from __future__ import annotations

from statistics import fmean, stdev

import pytest

from spillover.inputs.topology_file import load_topology
from spillover.model.schedule import Arrival
from spillover.sim.overflow.run import run_overflow
from spillover.workloads.generated import bursts

pytest.importorskip("simpy")

from spillover_lab.bench.simpy_model import run_simpy

pytestmark = pytest.mark.slow

SEEDS = range(1, 5)


@pytest.fixture(scope="module")
def paper():
    """The ring of five through its first two bursts, and what the full engine makes of it."""
    topology = load_topology("ring5")
    schedule = bursts(topology.cluster_ids, duration_s=10.0, seed=1)
    means_ms = [mean_ms(run_overflow(topology, schedule, seed)) for seed in SEEDS]
    return topology, schedule, means_ms


def mean_ms(run):
    return run.as_dict()["system_time_ms"]["mean"]


def means_of(model, paper):
    """In ms, by seed; every request must have ended, and none sooner than can be."""
    topology, schedule, _ = paper
    means = []
    for seed in SEEDS:
        times_s = model(topology, schedule, seed)
        assert len(times_s) == len(schedule)
        assert min(times_s) == pytest.approx(0.046)
        means.append(fmean(times_s) * 1e3)
    return means


def assert_same_within_spread(theirs_ms, paper):
    """The means of four runs differ by no more than three standard errors. That is little beside
    what forwarding gains, so that another rule would show."""
    topology, schedule, ours_ms = paper
    error_ms = (stdev(theirs_ms) ** 2 / len(theirs_ms) + stdev(ours_ms) ** 2 / len(ours_ms)) ** 0.5
    gap_ms = abs(fmean(theirs_ms) - fmean(ours_ms))
    assert gap_ms < 3 * error_ms
    isolated_ms = mean_ms(run_overflow(topology.with_policy("isolated"), schedule, 1))
    assert 20 * error_ms < isolated_ms - fmean(ours_ms)


def test_a_request_alone_takes_what_it_must_and_none_takes_nothing(paper):
    """6 ms on its way and 40 ms on a server, whenever it comes."""
    topology = paper[0]
    for at_s in (0.0, 3.0):
        one = [Arrival(at_s, topology.cluster_ids[2])]
        assert run_simpy(topology, one, 1) == [pytest.approx(0.046)]
    assert run_simpy(topology, [], 1) == []


def test_simpy_gives_the_same_means(paper):
    assert_same_within_spread(means_of(run_simpy, paper), paper)
