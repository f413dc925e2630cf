"""The built-in topologies have the shape and the values of the paper."""

from __future__ import annotations

from pathlib import Path

import pytest

from spillover.inputs.builtin import BUILTIN_NAMES, RINGS
from spillover.inputs.topology_file import dump_topology, load_topology, short_text


@pytest.mark.parametrize(
    ("name", "ids", "degree"),
    [
        ("ring5", "abcde", 2),
        ("chord5", "abcde", 4),
        ("chord10", "abcdefghij", 4),
        ("chord20", "abcdefghijklmnopqrst", 4),
    ],
)
def test_builtin_has_its_clusters_and_degree(name: str, ids: str, degree: int) -> None:
    """Clusters are a, b, c, ... and each has as many neighbors as its figure shows."""
    topology = load_topology(name)
    assert topology.name == name
    assert topology.cluster_ids == tuple(ids)
    assert {len(topology.neighbors(cluster_id)) for cluster_id in ids} == {degree}
    assert len(topology.links) == len(ids) * degree // 2


@pytest.mark.parametrize("name", BUILTIN_NAMES)
def test_builtin_keeps_the_papers_policy(name: str) -> None:
    """Whatever the default is: a file says it, too, that is made of one."""
    topology = load_topology(name)
    assert topology.policy == "paper"
    assert "policy: paper\n" in short_text(topology)


def test_rings_are_cycles_and_chords_reach_the_next_two() -> None:
    between = [link.between for link in load_topology("ring5").links]
    assert between == [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"), ("e", "a")]
    neighbors = {neighbor.id for neighbor in load_topology("chord20").neighbors("t")}
    assert neighbors == {"a", "b", "s", "r"}


@pytest.mark.parametrize("name", RINGS)
def test_builtin_has_the_values_of_the_paper(name: str) -> None:
    """Five servers of 40 ms, 6 ms delivery, 35 ms links, reports each 50 ms, the paper's rule."""
    topology = load_topology(name)
    assert (topology.policy, topology.gossip_period_ms) == ("paper", 50)
    for cluster in topology.clusters:
        assert (cluster.servers, cluster.service_ms, cluster.delivery_ms) == (5, 40, 6)
        assert (cluster.handler, cluster.queue_limit) == ("sleep", 10_000)
    assert {link.delay_ms for link in topology.links} == {35}


@pytest.mark.parametrize("name", BUILTIN_NAMES)
def test_builtin_written_as_a_file_reads_back_equal(name: str, tmp_path: Path) -> None:
    """A built-in topology dumped to a file stands for itself."""
    path = tmp_path / "copy.yaml"
    path.write_text(dump_topology(load_topology(name)), encoding="utf-8")
    assert load_topology(str(path)) == load_topology(name)
