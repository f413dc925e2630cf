"""A pool of unlike servers: what it makes of what was left out. What it refuses is in
tests/inputs/test_topology_pools.py, in the words that users see."""

from dataclasses import replace

import pytest

from spillover.inputs.topology_file import load_topology
from spillover.model.errors import InputError
from spillover.model.topology import Cluster, Topology
from spillover.model.unlike_servers import Server, ServerClass, UnlikeServers

BOTH = (Server(id="big", rate=4), Server(id="small"))
CLASSES = (
    ServerClass(id="large", servers=("big",), tokens=3),
    ServerClass(id="any", servers=("big", "small")),
)


def test_a_class_has_as_many_tokens_as_servers_unless_told_otherwise():
    pool = UnlikeServers.of(BOTH, CLASSES)
    assert [each.tokens for each in pool.classes] == [3, 2]
    assert pool.tokens == 5


@pytest.mark.parametrize(
    ("discipline", "at_once"), [("ps", {"big": 5, "small": 2}), ("fcfs", {"big": 1, "small": 1})]
)
def test_a_server_runs_what_its_classes_let_it(discipline, at_once):
    pool = UnlikeServers.of(BOTH, CLASSES, discipline=discipline)
    assert {server.id: pool.runs_at_once(server.id) for server in pool.servers} == at_once


def test_a_cluster_makes_its_pool_once():
    cluster = Cluster(id="a", servers=BOTH, classes=CLASSES)
    assert cluster.pool is cluster.pool
    assert cluster.pool == UnlikeServers.of(BOTH, CLASSES)
    assert replace(cluster, classes=()).pool == UnlikeServers.of(BOTH)
    assert Cluster(id="a", servers=2).pool is None


def test_a_changed_topology_has_groups_of_its_own():
    two = load_topology("comte11")
    assert len(two.type_groups.groups) == 2
    (cluster,) = two.clusters
    one = replace(two, clusters=(replace(cluster, types=cluster.types[:1]),))
    assert [group.types for group in one.type_groups.groups] == [("t1",)]


def test_faults_of_a_pool_are_told_where_it_becomes_part_of_a_topology():
    cluster = Cluster(id="b", servers=BOTH, classes=CLASSES[:1])
    with pytest.raises(InputError) as caught:
        Topology(name="x", clusters=(Cluster(id="a", servers=1), cluster))
    assert caught.value.field == "clusters[1].servers[1]"


def test_time_is_stretched_and_rates_stay():
    (cluster,) = load_topology("comte8").stretched(0.1).clusters
    assert cluster.service_ms == 100
    assert cluster.servers == load_topology("comte8").clusters[0].servers
