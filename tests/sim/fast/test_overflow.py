"""The compiled engine against the full one: the same for every request, to the last bit."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from dataclasses import replace
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spillover.inputs.topology_file import load_topology
from spillover.model.errors import InputError
from spillover.model.schedule import Arrival
from spillover.model.topology import Cluster, Link, Topology
from spillover.policy.overflow.choosers import CHOOSERS
from spillover.sim.engine.world import World
from spillover.sim.overflow.federation import build_federation, request_of
from spillover.sim.overflow.run import run_overflow
from spillover_loadgen.workloads import bursts

ENGINE_FIELDS = ("engine", "events", "requests_per_s")
OUTCOMES = {0: None, 1: "done", 2: "expired", 3: "refused"}


@pytest.fixture(scope="module")
def fast(require):
    """The engine, where numba is installed."""
    require(importlib.util.find_spec("numba"), "numba, from the extra `sim`")
    from spillover.sim.fast.overflow import run as overflow

    return overflow


def each_in_full(topology, schedule, seed):
    """What the full engine makes of each request: outcome, system time, hops; and when it ended."""
    world = World()
    clusters = build_federation(topology, world, seed)
    found = {}

    def submit(number, arrival):
        def answered(answer):
            done = answer.outcome == "done"
            time_ms = answer.total_s * 1e3 if done else None
            found[number] = str(answer.outcome), time_ms, len(answer.path) - 1 if done else None

        def refused(_):
            found[number] = "refused", None, None

        work = None if arrival.service_ms is None else arrival.service_ms / 1e3
        request = request_of(number, None, work, "default")
        deadline_s = world.now_s + topology.default_deadline_ms / 1e3
        clusters[arrival.cluster].submit(request, deadline_s, answered, refused)

    for number, arrival in enumerate(schedule):
        world.at(arrival.time_s, submit, number, arrival)
    world.run(lambda: len(found) == len(schedule))
    reports = sum(cluster.reports for cluster in clusters.values())
    longest = max(cluster.queue_length_max for cluster in clusters.values())
    return [found[number] for number in range(len(schedule))], reports, longest


def each_in_fast(fast, topology, schedule, seed):
    run = fast.run_fast(topology, schedule, seed)
    found = []
    columns = run.requests.outcome, run.requests.system_time_ms, run.requests.hops
    for code, time_ms, hops in zip(*(column.tolist() for column in columns), strict=True):
        done = code == 1
        found.append((OUTCOMES[code], time_ms if done else None, hops if done else None))
    return found, run.reports, run.queue_length_max


def assert_alike(fast, topology, schedule, seed):
    ours, *sums = each_in_fast(fast, topology, schedule, seed)
    full, *full_sums = each_in_full(topology, schedule, seed)
    for number, (one, other) in enumerate(zip(ours, full, strict=True)):
        assert one == other, (number, schedule[number])
    assert sums == full_sums
    return ours


@pytest.mark.parametrize("policy", CHOOSERS)
@pytest.mark.parametrize(("name", "seed"), [("ring5", 1), ("ring5", 2), ("chord5", 3)])
def test_bursts_give_the_same(fast, name, seed, policy):
    """The object of both engines is the same but for what tells of the engine itself."""
    topology = load_topology(name).with_policy(policy)
    duration_s = 20.0
    schedule = bursts(topology.cluster_ids, duration_s=duration_s, seed=seed)
    told = fast.run_fast(topology, schedule, seed).as_dict()
    full = run_overflow(topology, schedule, seed).as_dict()
    assert told.keys() == full.keys()
    for field in ENGINE_FIELDS:
        told.pop(field)
        full.pop(field)
    assert told == full


def test_a_larger_federation_gives_the_same(fast):
    """With reports every 7 ms, so that several are on their way, over one burst and a half."""
    topology = replace(load_topology("chord10"), gossip_period_ms=7.0)
    schedule = bursts(topology.cluster_ids, duration_s=8.5, seed=1)
    found = assert_alike(fast, topology, schedule, 1)
    assert max(hops for _, _, hops in found) >= 3


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
    for seed in (1, 2):
        found = assert_alike(fast, topology, schedule, seed)
        assert sum(hops == 1 for _, _, hops in found) > 2 * len(leaves), "no leaf was full"


def unlike_federation(random, policy):
    """Clusters and links of every kind, some without links, and bounds that are met."""
    count = random.randint(1, 6)
    ids = "abcdef"[:count]
    pairs = [(x, y) for x in ids for y in ids if x < y and random.random() < 0.6]
    random.shuffle(pairs)
    return Topology(
        name="unlike",
        policy=policy,
        clusters=tuple(
            Cluster(
                id=i,
                servers=random.randint(1, 4),
                service_ms=random.choice((0.0, 10.0, 40.0, 33.3)),
                delivery_ms=random.choice((0.0, 6.0)),
                queue_limit=random.choice((0, 1, 3, 10, 11, 10_000)),
            )
            for i in ids
        ),
        links=tuple(
            Link(between=pair, delay_ms=random.choice((0.0, 1.7, 35.0, 400.0))) for pair in pairs
        ),
        gossip_period_ms=random.choice((1.0, 50.0, 333.0, 1200.0)),
        max_hops=random.choice((0, 1, 2, 16)),
        default_deadline_ms=random.choice((97.123, 230.77, 60_000.0)),
    )


def trace(random, topology, *, count, spread_s):
    """Mostly at the first cluster; some bring their own service time, some come together, unless
    deadlines are met: those that fall together with something else are not quite the same."""
    cluster_ids = topology.cluster_ids
    digits = (2, 9) if topology.default_deadline_ms > 1000 else (9,)
    times_s = sorted(round(random.random() * spread_s, random.choice(digits)) for _ in range(count))
    return [
        Arrival(
            time_s,
            cluster_ids[0] if random.random() < 0.6 else random.choice(cluster_ids),
            random.choice((None, None, 5.0, 80.0, random.random() * 100)),
        )
        for time_s in times_s
    ]


@pytest.mark.slow
@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32))
def test_unlike_federations_give_the_same(fast, seed):
    """Every bound is met somewhere: queues, what is away, hops, deadlines, refusals that return.
    Drawn from a seed, since simple values, which Hypothesis likes, meet few of them."""
    random = Random(seed)
    topology = unlike_federation(
        random, random.choice(("paper", "paper", "two-choice", "isolated"))
    )
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
