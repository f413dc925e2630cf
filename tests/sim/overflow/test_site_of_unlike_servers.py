"""A site of several nodes whose servers are unlike does what one node with the same tokens does
(decision 0049)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spillover.inputs.random_faults import random_faults
from spillover.model.faults import ClusterFault, FaultSchedule, TokensFault
from spillover.model.request import Outcome
from spillover.model.topology import Cluster, Link, Topology
from spillover.model.unlike_servers import JobType, Server, ServerClass
from spillover.sim.overflow.run import run_overflow
from spillover.workloads.generated import bursts, poisson
from support.few import all_in_soak, in_soak

TOKENS = 7
FAULTS_S = in_soak(12, 6)
UNLIKE = Cluster(
    id="a",
    servers=(Server(id="big", rate=2.0), Server(id="s1"), Server(id="s2")),
    classes=(
        ServerClass(id="c1", servers=("big",), tokens=3),
        ServerClass(id="c2", servers=("s1", "s2"), tokens=4),
    ),
    types=(
        JobType(id="x", classes=("c1", "c2")),
        JobType(id="y", classes=("c2",)),
        JobType(id="z", classes=("c1",)),
    ),
)
PLAIN = Cluster(id="b", servers=5, nodes=2)


def sites(nodes, policy="adaptive"):
    links = (Link(between=("a", "b"), delay_ms=5.0),)
    clusters = (replace(UNLIKE, nodes=nodes), PLAIN)
    return Topology(name="unlike", clusters=clusters, links=links, policy=policy)


def of_types(schedule):
    """The schedule, with the types in turn."""
    return [replace(one, type="xyz"[place % 3]) for place, one in enumerate(schedule)]


@pytest.mark.parametrize("policy", ["paper", "adaptive"])
def test_two_nodes_with_unlike_servers_do_nearly_as_well_as_one(policy):
    """What is left is that each node goes by its own jobs where a class has several servers."""
    schedule = of_types(poisson(("a", "b"), rate_per_s=50.0, duration_s=6.0, seed=1))
    one, two = [run_overflow(sites(nodes, policy), schedule, 1).as_dict() for nodes in (1, 2)]
    assert one["outcomes"] == two["outcomes"] == {Outcome.DONE: len(schedule)}
    assert two["system_time_ms"]["mean"] == pytest.approx(one["system_time_ms"]["mean"], rel=0.08)


def test_the_tokens_of_a_node_that_dies_are_soon_in_use_again():
    faults = FaultSchedule(
        "test",
        (
            ClusterFault(at_s=2.0, action="crash", cluster="a", node=1),
            TokensFault(at_s=3.0, action="tokens", cluster="a", classes=(("c2", 6),)),
            ClusterFault(at_s=5.0, action="restart", cluster="a", node=1),
        ),
    )
    schedule = of_types(poisson(("a", "b"), rate_per_s=60.0, duration_s=8.0, seed=1))
    run = run_overflow(sites(2), schedule, 1, faults=faults, keyed=True)
    site = run.as_dict()["sites"]["a"]
    (took_s,) = site["taken_over_s"]
    assert took_s < 0.5
    assert site["nodes"]["a/2"]["lost"] == 0
    shares = [node["share"] for node in site["nodes"].values()]
    assert sum(shares) == TOKENS + 2, "as the operator has said while one was dead"
    assert run.outcomes.keys() <= {Outcome.DONE, Outcome.UNKNOWN}


@pytest.mark.parametrize("seed", all_in_soak(range(20), 2))
def test_random_faults_of_sites_with_unlike_servers(seed):
    """All that must hold is checked as they happen."""
    topology = sites(2 + seed % 2, ("adaptive", "paper")[seed // 2 % 2])
    faults = random_faults(topology, seed, FAULTS_S)
    schedule = of_types(bursts(topology.cluster_ids, duration_s=FAULTS_S, seed=seed))
    run_overflow(topology, schedule, seed, faults=faults, keyed=seed % 2 == 0)
