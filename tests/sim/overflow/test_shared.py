"""One queue for all: what a single cluster with all the servers would do, and unlike servers."""

from dataclasses import replace
from random import Random

import pytest

from spillover.inputs.topology_file import load_topology
from spillover.model.schedule import Arrival
from spillover.model.topology import Cluster, Topology
from spillover.sim.overflow.run import run_overflow
from spillover.sim.overflow.shared import merged, run_shared, server_kinds
from spillover.workloads.generated import bursts
from support.few import all_in_soak

UNLIKE = Topology(
    name="unlike",
    clusters=(
        Cluster(id="a", servers=1, service_ms=100.0, delivery_ms=0.0, queue_limit=3),
        Cluster(id="b", servers=2, service_ms=10.0, delivery_ms=6.0, queue_limit=1),
        Cluster(id="c", servers=1, service_ms=100.0, delivery_ms=8.0, queue_limit=0),
    ),
)


def test_it_is_one_cluster_with_all_the_servers():
    """Sent to a single cluster with 25 servers, every request takes as long, whatever its home."""
    topology = load_topology("ring5")
    schedule = bursts(topology.cluster_ids, duration_s=8.0, seed=1)
    run = run_shared(topology, schedule, 1)
    one = merged(topology)
    assert (one.clusters[0].servers, one.clusters[0].service_ms) == (25, 40.0)
    alone = run_overflow(one, [replace(arrival, cluster="shared") for arrival in schedule], 1)
    times_ms = [time_ms for times_ms in run.system_time_ms.values() for time_ms in times_ms]
    assert sorted(times_ms) == sorted(alone.system_time_ms["shared"])
    assert run.outcomes == alone.outcomes
    assert run.queue_length_max == alone.queue_length_max
    counts = {c: len(times_ms) for c, times_ms in run.system_time_ms.items()}
    assert counts == {c: sum(a.cluster == c for a in schedule) for c in topology.cluster_ids}


@pytest.mark.slow
def test_nothing_beats_it():
    """No distance and no decision: the mean is below that of any policy on the same schedule."""
    topology = load_topology("ring5")
    schedule = bursts(topology.cluster_ids, duration_s=6.0, seed=2)
    shared = run_shared(topology, schedule, 2).as_dict()
    for policy in ("isolated", "paper", "two-choice"):
        told = run_overflow(topology.with_policy(policy), schedule, 2).as_dict()
        assert told.keys() == shared.keys()
        assert shared["system_time_ms"]["mean"] < told["system_time_ms"]["mean"]
    assert (shared["policy"], shared["topology"]) == ("shared", "ring5")
    assert (shared["forwarded_share"], shared["reports"]) == (0.0, 0)


def test_the_fastest_free_server_is_taken():
    """Two take 10 ms, then 100 ms each; the fifth waits for the first that is free. The delivery
    is the mean over the servers, 5 ms."""
    schedule = [Arrival(0.0, "a") for _ in range(5)]
    run = run_shared(UNLIKE, schedule, 1)
    assert run.system_time_ms["a"] == pytest.approx([15.0, 15.0, 25.0, 105.0, 105.0])
    assert [(kind.service_s, kind.servers) for kind in server_kinds(UNLIKE)] == [
        (0.01, 2),
        (0.1, 2),
    ]


def test_the_queues_add_up():
    """Four are served, four wait, the ninth is refused: 3 + 1 + 0 places."""
    run = run_shared(UNLIKE, [Arrival(0.0, "c") for _ in range(9)], 1)
    assert run.outcomes == {"done": 8, "refused": 1}
    assert run.queue_length_max == 4


def random_schedule(random, count):
    times_s = sorted(round(random.random() * 2.0, 9) for _ in range(count))
    return [
        Arrival(time_s, random.choice("abc"), random.choice((None, None, random.random() * 90)))
        for time_s in times_s
    ]


@pytest.mark.slow
@pytest.mark.parametrize("seed", all_in_soak(range(12), 2))
def test_both_engines_give_the_same(fast, seed):
    """Unlike servers, services of one's own, refusals, and deadlines that are met."""
    random = Random(seed)
    deadline_ms = random.choice((60_000.0, 130.0))
    topology = replace(UNLIKE, default_deadline_ms=deadline_ms)
    schedule = random_schedule(random, random.choice((50, 400)))
    full = run_shared(topology, schedule, seed)
    quick = fast.run_fast(topology, schedule, seed, shared=True)
    told, full_told = quick.as_dict(), full.as_dict()
    for field in ("engine", "events", "requests_per_s"):
        told.pop(field)
        full_told.pop(field)
    assert told == full_told
    for cluster, times_ms in full.system_time_ms.items():
        assert sorted(quick.system_time_ms[cluster].tolist()) == sorted(times_ms)
