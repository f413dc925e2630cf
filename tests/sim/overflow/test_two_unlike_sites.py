"""Two sites with pools of unlike servers: bursts of one type go where its servers are idle."""

from statistics import mean

import pytest

from spillover.model.unlike_servers import OVERFLOW
from spillover.sim.overflow.run import run_overflow
from spillover.sim.overflow.shared import run_shared
from support import unlike_sites

SEEDS = range(1, 7)


@pytest.fixture(scope="module")
def runs():
    """By policy, a run for each seed, on the same schedules."""
    found = {policy: [] for policy in ("isolated", "adaptive", "shared")}
    for seed in SEEDS:
        arrivals = unlike_sites.schedule(seed)
        for policy in ("isolated", "adaptive"):
            found[policy].append(run_overflow(unlike_sites.two_sites(policy), arrivals, seed))
        found["shared"].append(run_shared(unlike_sites.two_sites(), arrivals, seed))
    return found


def mean_ms(runs, kind):
    return mean(time_ms for run in runs for time_ms in run.types[kind].system_time_ms)


@pytest.mark.slow
def test_a_type_that_is_idle_elsewhere_waits_no_longer_than_in_one_pool(runs):
    """Its requests take no longer than in one pool of all servers, plus the way between the sites.
    Measured: 178 ms over sites, 161 ms in one pool with a way of 20 ms, 557 ms each by itself."""
    shared_ms, way_ms = mean_ms(runs["shared"], "llm"), unlike_sites.WAY_S * 1e3
    assert mean_ms(runs["adaptive"], "llm") <= shared_ms + way_ms
    assert mean_ms(runs["isolated"], "llm") > 2 * (shared_ms + way_ms)


@pytest.mark.slow
def test_the_other_types_pay_nothing_for_it(runs):
    """The one that shares big servers with the bursts is not slower than without neighbors, and one
    that only one site serves, on a server of its own, takes the same time to the last bit."""
    assert mean_ms(runs["adaptive"], "embed") <= mean_ms(runs["isolated"], "embed")
    for one, other in zip(runs["adaptive"], runs["isolated"], strict=True):
        assert one.types["search"].system_time_ms == other.types["search"].system_time_ms


@pytest.mark.slow
def test_nothing_is_lost_or_refused(runs):
    """All are done, wherever they ran; and every policy had the same requests."""
    for policy, each in runs.items():
        for run, rival in zip(each, runs["isolated"], strict=True):
            assert run.outcomes == {"done": rival.ended}, policy
            assert run.types.keys() == {"llm", "embed", "search"}


@pytest.mark.slow
@pytest.mark.parametrize("faults", ["random:1"])
def test_it_holds_up_under_faults(faults):
    """Everything is checked after every event, from tokens to answers."""
    from spillover.inputs.fault_file import load_faults

    topology = unlike_sites.two_sites()
    assert all(cluster.on_block == OVERFLOW for cluster in topology.clusters)
    arrivals = unlike_sites.schedule(7, 12.0)
    schedule = load_faults(faults, topology, 12.0)
    run = run_overflow(topology, arrivals, 7, faults=schedule)
    assert run.faults == len(schedule)
    assert run.outcomes["done"] > 0.5 * len(arrivals)
