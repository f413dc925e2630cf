"""The compiled engine against the full one: the same for every request, to the last bit."""

import subprocess
import sys
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spillover.inputs.topology_file import load_topology
from spillover.model.errors import InputError
from spillover.model.schedule import Arrival
from spillover.model.topology import Cluster, Link, Topology
from spillover.sim.overflow.run import run_overflow
from spillover.workloads.generated import bursts
from support.engines import assert_alike, trace, unlike_federation
from support.few import all_in_soak, examples

ENGINE_FIELDS = ("engine", "events", "requests_per_s")


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["paper", "adaptive"])
@pytest.mark.parametrize("play", all_in_soak([("chord5", 3), ("ring5", 1)], 1))
def test_bursts_give_the_same(fast, play, policy):
    """The object of both engines is the same but for what tells of the engine itself."""
    name, seed = play
    topology = load_topology(name).with_policy(policy)
    schedule = bursts(topology.cluster_ids, duration_s=6.0, seed=seed)
    told = fast.run_fast(topology, schedule, seed).as_dict()
    full = run_overflow(topology, schedule, seed).as_dict()
    assert told.keys() == full.keys()
    for field in ENGINE_FIELDS:
        told.pop(field)
        full.pop(field)
    assert told == full


@pytest.mark.slow
def test_a_cluster_with_many_neighbors_gives_the_same(fast):
    """More than the bits of a word: all of 80 leaves that are full refuse, some one after the
    other, since their reports tell it late."""
    leaves = [f"leaf{number}" for number in range(80)]
    topology = Topology(
        name="star",
        clusters=(
            Cluster(id="hub", servers=1, queue_limit=300),
            *(Cluster(id=leaf, servers=1, service_ms=900, queue_limit=1) for leaf in leaves),
        ),
        links=tuple(Link(between=("hub", leaf), delay_ms=5.0) for leaf in leaves),
        gossip_period_ms=500.0,
    )
    schedule = [Arrival(1.0 + k / 1000, "hub") for k in range(400)]
    schedule += [Arrival(1.401, leaf) for leaf in leaves]
    found, _ = assert_alike(fast, topology, schedule, 1)
    assert sum(hops == 1 for _, _, hops in found) > 2 * len(leaves), "no leaf was full"


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32))
def test_unlike_federations_give_the_same(fast, seed):
    """Every bound is met somewhere: queues, what is away, hops, deadlines, refusals that return.
    Drawn from a seed, since simple values, which Hypothesis likes, meet few of them."""
    random = Random(seed)
    policies = ("adaptive", "adaptive", "paper", "two-choice", "isolated")
    topology = unlike_federation(random, random.choice(policies))
    spread_s = random.choice((0.3, 2.0))
    schedule = trace(random, topology, count=random.randint(0, 150), spread_s=spread_s)
    assert_alike(fast, topology, schedule, seed)


def test_a_schedule_of_years_is_refused(fast):
    """As by the full engine, and for one queue for all."""
    topology = load_topology("ring5")
    schedule = [Arrival(1.0, "a"), Arrival(1e9, "a")]
    for shared in (False, True):
        with pytest.raises(InputError, match="got 1000000000 s: times count from the start"):
            fast.run_fast(topology, schedule, 1, shared=shared)


FIRST_RUN = """
from spillover.inputs.topology_file import load_topology
from spillover.model.schedule import Arrival
from spillover.sim.fast.overflow.run import run_fast
topology = load_topology("ring5")
print(run_fast(topology, [Arrival(1.0, topology.cluster_ids[0])], 1).wall_s)
"""


@pytest.mark.processes
def test_the_first_run_counts_no_compiling(fast):
    """In a process that has not loaded the kernel yet, where even loading takes 0.1 s and more."""
    done = subprocess.run(
        [sys.executable, "-c", FIRST_RUN], capture_output=True, text=True, check=True
    )
    assert float(done.stdout) < 0.05
