"""What a change asks of a cluster, and what no change may touch while nodes run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from spillover.core.membership.changes import (
    Changes,
    differences,
    filled,
    kept,
    refuse_fixed,
    unusual,
)
from spillover.core.membership.changes import changes_at as changes_of_links
from spillover.model.errors import InputError
from spillover.model.ids import ClusterId
from spillover.model.topology import Cluster, ClusterNode, Link, Topology
from spillover.model.unlike_servers import Server

A, B, C, D = (ClusterId(name) for name in "abcd")


def cluster(name: ClusterId, **changed: Any) -> Cluster:
    return Cluster(id=name, **{"servers": 2, "url": f"http://127.0.0.1:{ord(name)}", **changed})


def link(a: ClusterId, b: ClusterId, delay_ms: float = 0.0) -> Link:
    return Link(between=(a, b), delay_ms=delay_ms)


THREE = Topology(
    name="three",
    clusters=(cluster(A), cluster(B), cluster(C)),
    links=(link(A, B, 5.0), link(B, C, 5.0)),
)


def changed(topology: Topology, name: ClusterId, **fields: Any) -> Topology:
    parts = tuple(replace(c, **fields) if c.id == name else c for c in topology.clusters)
    return replace(topology, clusters=parts)


def changes_at(before: Topology, after: Topology, name: ClusterId) -> Changes:
    """All clusters that are linked before are neighbors then."""
    return changes_of_links(before, after, name, [one.id for one in before.neighbors(name)])


def test_links_come_and_go_at_their_ends_only() -> None:
    after = replace(THREE, links=(link(A, C, 9.0), link(B, C, 5.0)))
    at_a = changes_at(THREE, after, A)
    assert ([one.id for one in at_a.joins], at_a.parts) == ([C], (B,))
    assert at_a.joins[0].url == "http://127.0.0.1:99"
    assert changes_at(THREE, after, B) == Changes(parts=(A,))
    assert [one.delay_ms for one in changes_at(THREE, after, C).joins] == [9.0]


def test_what_is_seldom_meant_is_told() -> None:
    assert unusual(THREE, replace(THREE, links=(link(A, B, 49.0), link(B, C, 5.0)))) == []
    assert unusual(THREE, changed(THREE, A, servers=19, queue_limit=1001)) == []
    after = replace(
        changed(THREE, A, servers=20), links=(link(B, A, 0.5),), default_deadline_ms=6e3
    )
    assert unusual(THREE, after) == [
        "default_deadline_ms: 60000 to 6000 (10 times as small)",
        "cluster a servers: 2 to 20 (10 times as large)",
        "cluster c has no link any more: it hands nothing on and gets nothing",
        "link b-a delay_ms: 5 to 0.5 (10 times as small)",
    ]
    assert unusual(THREE, changed(THREE, A, queue_limit=0)) == ["cluster a queue_limit: 10000 to 0"]


def test_a_link_with_another_delay_is_the_same_link() -> None:
    found = changes_at(THREE, replace(THREE, links=(link(B, A, 7.0), link(B, C, 5.0))), A)
    assert [(one.id, one.delay_ms) for one in found.delays] == [(B, 7.0)]
    slower = replace(THREE, links=(link(B, A, 7.0), link(B, C, 5.0)))
    assert [(one.id, one.delay_ms) for one in changes_at(slower, THREE, A).delays] == [(B, 5.0)]
    assert not found.joins
    assert not found.parts


def test_the_own_limits_are_told_and_not_those_of_others() -> None:
    after = changed(changed(THREE, A, queue_limit=5, servers=3), B, queue_limit=6)
    after = replace(after, max_hops=2, policy="two-choice")
    told = {"queue_limit": 5, "servers": 3, "max_hops": 2, "policy": "two-choice"}
    assert changes_at(THREE, after, A).settings == told


def test_a_cluster_that_is_left_out_keeps_its_links_while_it_drains() -> None:
    after = replace(THREE, clusters=THREE.clusters[:2], links=THREE.links[:1])
    assert changes_at(THREE, after, C) == Changes(removed=True)
    assert changes_at(THREE, after, B) == Changes(parts=(C,))


POOL = cluster(B, servers=(Server(id="s"), Server(id="t")))


@pytest.mark.parametrize(
    ("after", "field"),
    [
        (replace(THREE, name="other"), "name"),
        (replace(THREE, gossip_period_ms=99.0), "gossip_period_ms"),
        (replace(THREE, clusters=THREE.clusters[1:], links=THREE.links[1:]), "clusters"),
        (changed(THREE, B, handler="spin"), "clusters[1].handler"),
        (changed(THREE, B, service_ms=1.0), "clusters[1].service_ms"),
        (changed(THREE, C, url="http://127.0.0.1:1"), "clusters[2].url"),
        (replace(THREE, clusters=(cluster(A), POOL, cluster(C))), "clusters[1].servers"),
        (replace(THREE, clusters=(*THREE.clusters, cluster(D, url=None))), "clusters[3].url"),
        (
            replace(THREE, clusters=(*THREE.clusters, replace(POOL, id=D, url="http://h:1"))),
            "clusters",
        ),
    ],
)
def test_what_is_fixed_is_refused_by_name(after: Topology, field: str) -> None:
    with pytest.raises(InputError) as raised:
        refuse_fixed(THREE, after, A)
    assert raised.value.field == field


def nodes(*ports: int) -> tuple[ClusterNode, ...]:
    return tuple([ClusterNode(url=f"http://127.0.0.1:{port}") for port in ports])


def of_nodes(*ports: int) -> Topology:
    """THREE, where cluster c has these nodes; its own port is 99."""
    return changed(THREE, C, url=None, servers=3, nodes=nodes(*ports))


ONE = changed(THREE, C, servers=3)


@pytest.mark.parametrize(
    ("before", "after", "field"),
    [
        (ONE, changed(ONE, C, url=None, nodes=2), "clusters[2].nodes"),
        (ONE, of_nodes(1, 99), "clusters[2].nodes[0].url"),
        (of_nodes(99, 1, 2), of_nodes(99, 2), "clusters[2].nodes[1].url"),
        (of_nodes(99, 1), changed(ONE, C, url="http://127.0.0.1:1"), "clusters[2].nodes[0].url"),
        (
            of_nodes(99, 1),
            changed(ONE, C, peer_url="http://127.0.0.1:1"),
            "clusters[2].nodes[0].peer_url",
        ),
        (
            THREE,
            replace(THREE, clusters=(*THREE.clusters, cluster(D, url=None, nodes=2))),
            "clusters[3].nodes",
        ),
    ],
)
def test_nodes_come_and_go_at_the_end_of_the_list_only(
    before: Topology, after: Topology, field: str
) -> None:
    with pytest.raises(InputError) as raised:
        refuse_fixed(before, after, A)
    assert raised.value.field == field


def test_a_node_is_not_asked_to_remove_itself() -> None:
    refuse_fixed(of_nodes(99, 1), ONE, C, 1)
    with pytest.raises(InputError, match="ask another one to remove it") as raised:
        refuse_fixed(of_nodes(99, 1), ONE, C, 2)
    assert raised.value.field == "clusters[2].nodes"


def test_a_node_hears_how_many_there_are_and_whether_it_is_one_of_them() -> None:
    more, fewer = of_nodes(99, 1, 2), of_nodes(99)
    refuse_fixed(ONE, more, A)
    assert changes_at(ONE, more, C).settings == {"nodes": 3}
    assert changes_at(more, fewer, C).settings == {"nodes": 1}
    assert changes_of_links(more, fewer, C, [B], 2) == Changes(removed=True)
    assert changes_at(ONE, more, B) == Changes()


def test_each_node_holds_its_part_of_the_bytes() -> None:
    before = changed(ONE, C, held_limit_bytes=300_000)
    after = changed(of_nodes(99, 1, 2), C, held_limit_bytes=300_000)
    assert changes_at(before, after, C).settings == {"nodes": 3, "held_limit_bytes": 100_000}


def test_where_nodes_are_is_as_the_own_file_says_but_of_those_that_come() -> None:
    elsewhere = changed(ONE, C, url="http://c:1", peer_url="http://c:2")
    found = kept(elsewhere, of_nodes(99, 1)).cluster(C)
    own = ClusterNode(url="http://c:1", peer_url="http://c:2")
    assert (found.nodes, found.url) == ((own, *nodes(1)), None)
    assert kept(of_nodes(5, 6, 7), of_nodes(99)).cluster(C).nodes == nodes(5)
    assert kept(of_nodes(5, 6, 7), ONE).cluster(C).nodes == nodes(5)
    assert kept(of_nodes(5, 6), THREE).cluster(C).node_count == 1


def test_a_file_may_leave_out_where_nodes_are() -> None:
    there = of_nodes(99, 1)
    assert filled(there, changed(ONE, C, url=None)).cluster(C).nodes == nodes(99, 1)
    assert filled(there, ONE).cluster(C).nodes == 1
    assert filled(ONE, of_nodes(99, 1)).cluster(C).url is None


def test_nodes_that_come_and_go_are_told() -> None:
    assert differences(ONE, of_nodes(99, 1)) == ["+ node 2 of cluster c at http://127.0.0.1:1"]
    assert differences(of_nodes(99, 1, 2), of_nodes(5)) == [
        "~ node 1 of cluster c url: http://127.0.0.1:99 to http://127.0.0.1:5",
        "- node 2 of cluster c",
        "- node 3 of cluster c",
    ]


def test_what_may_change_is_not_refused() -> None:
    after = replace(
        changed(THREE, B, servers=9, queue_limit=1, held_limit_bytes=70_000),
        clusters=(*changed(THREE, B, servers=9).clusters, cluster(D)),
        links=(link(A, D), link(A, B, 6.0)),
        policy="adaptive",
        shadow="paper",
        max_hops=3,
        default_deadline_ms=5.0,
        payload_limit_bytes=10,
        result_ttl_s=1.0,
        result_limit=2,
        client_connects_per_s=3.0,
        client_connects_burst=2,
        client_sessions_max=9,
        version=4,
    )
    refuse_fixed(THREE, after, A)


def test_how_many_workers_a_dask_cluster_has_is_not_set_here() -> None:
    """It is Dask that says so."""
    before = changed(THREE, B, handler="dask:tcp://127.0.0.1:8786:work:run")
    refuse_fixed(before, changed(before, B, queue_limit=9), A)
    with pytest.raises(InputError) as refused:
        refuse_fixed(before, changed(before, B, servers=3), A)
    assert refused.value.field == "clusters[1].servers"


def test_a_federation_without_a_name_is_any() -> None:
    refuse_fixed(replace(THREE, is_named=False), replace(THREE, name="other"), A)


def test_a_node_keeps_what_its_own_file_fixes() -> None:
    """Sites may differ in how they reach each other, and that is no matter of the configuration."""
    own_file = changed(THREE, B, url="http://10.0.0.1:80")
    after = replace(
        changed(THREE, B, queue_limit=3), clusters=(*THREE.clusters[1:], cluster(D)), links=()
    )
    after = changed(after, B, queue_limit=3)
    now = kept(own_file, after)
    assert now.cluster_ids == (B, C, D)
    assert (now.cluster("b").url, now.cluster("b").queue_limit) == ("http://10.0.0.1:80", 3)
    assert now.cluster("d") == cluster(D)


def test_what_a_file_need_not_say_again_stays() -> None:
    before = changed(THREE, A, held_limit_bytes=70_000)
    proxy = {"handler": "proxy:http://10.0.0.1:9000", "proxy_url": "http://10.0.0.1:82"}
    before = changed(before, B, peer_url="http://10.0.0.1:81", **proxy)
    terse = changed(changed(before, A, url=None, held_limit_bytes=None), B, url=None)
    terse = changed(terse, B, peer_url=None, proxy_url=None)
    assert filled(before, terse) == before
    assert changes_at(before, changed(before, A, held_limit_bytes=None), A) == Changes()


def test_differences_are_told_in_lines() -> None:
    after = replace(
        THREE,
        clusters=(
            *changed(THREE, B, queue_limit=3, handler="spin").clusters[:2],
            cluster(D),
        ),
        links=(link(B, A, 7.0), link(B, D)),
        shadow="paper",
        name="other",
    )
    assert differences(THREE, THREE) == []
    assert differences(THREE, after) == [
        "~ name: three to other",
        "~ shadow: not set to paper",
        "- cluster c",
        "~ cluster b handler: sleep to spin",
        "~ cluster b queue_limit: 10000 to 3",
        "+ cluster d at http://127.0.0.1:100",
        "- link b-c",
        "~ link a-b: 5 ms to 7 ms",
        "+ link b-d, 0 ms",
    ]
