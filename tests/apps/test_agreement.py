"""Neighbors that do not mean the same: whom they serve, what both sides say of it, and when they
are in agreement again."""

from dataclasses import replace

from spillover.live.overflow import wire
from spillover.live.overflow.identity import HELLO, hello_of
from spillover.live.overflow.protocol import SPOKEN
from spillover.model.request import Request


async def begin(nodes, federation, cluster, **changes):
    """Start this node with a topology that differs from the others'."""
    own, federation.topology = federation.topology, replace(federation.topology, **changes)
    await federation.start(cluster)
    federation.topology = own


async def says(nodes, node, text):
    """Wait until its one neighbor's row says so."""
    (agreement,) = node.shell.neighborhood.peers.agreements.values()
    await nodes.until(lambda: agreement.disagreement == text)
    _, state = await node.get("/state")
    assert state["neighbors"][0]["disagreement"] == text


async def test_another_federation_gets_no_work(nodes):
    """Nor does it give any, in whatever way it asks; where one of the two has no name, there is
    nothing to compare."""
    request = Request("r", keyed=False, work=b"1", path=("a",))
    topology = nodes.topology_of("a", "b", clusters={"a": {"queue_limit": 0}})
    async with nodes.Federation(topology, absent=("b",)) as federation:
        a = federation["a"]
        await begin(nodes, federation, "b", name="other")
        b = federation["b"]
        await says(nodes, a, "federation: 'test' here, 'other' there")
        await says(nodes, b, "federation: 'other' here, 'test' there")
        assert 429 in [(await one).status for one in [a.post(1) for _ in range(3)]]
        hello = [(HELLO, hello_of(wire.Caller("a", "b", "test")))]
        calls = [
            (SPOKEN[0].forward, b"".join(wire.encode_forward(request, 1.0))),
            (SPOKEN[0].cancel, wire.encode_cancel("r")),
        ]
        for path, body in calls:
            status, _, problem = await b.send("POST", path, body, hello)
            assert (status, problem["reason"]) == (403, "not_a_neighbor")
            assert problem["detail"] == "federation: 'other' here, 'test' there"
        _, seen = await a.get("/federation")
        assert "unreachable" in seen["clusters"]["b"]
        assert b.ledger.foreign["received"] == 0
        await federation.stop("b")
        await begin(nodes, federation, "b", name="other", is_named=False)
        await nodes.until(federation.all_linked)
        await says(nodes, federation["a"], None)


async def test_another_cluster_at_a_neighbors_address(nodes):
    """Another testbed has taken the port of a node that died: it knows a cluster a of its own, and
    is not taken for b all the same. When b is back, all is well."""
    topology = nodes.topology_of("a", "b", clusters={"a": {"queue_limit": 0}})
    async with nodes.Federation(topology) as federation:
        a, port = federation["a"], federation["b"].url
        await federation.stop("b")
        stranger = nodes.topology_of("a", "x").with_urls({"a": a.url, "x": port})
        own, federation.topology = federation.topology, replace(stranger, name="other")
        await federation.start("x")
        federation.topology = own
        await says(nodes, a, "at its address is cluster 'x' of federation 'other'")
        row = federation["x"].shell.neighborhood.peers.turned_away()["a"]
        assert row[0] == "it looks for cluster 'b', this is 'x'"
        assert 429 in [(await one).status for one in [a.post(1) for _ in range(3)]]
        assert federation["x"].ledger.foreign["received"] == 0
        await federation.stop("x")
        await nodes.until(lambda: a.shell.neighborhood.peers.agreements[0].disagreement is None)
        await federation.start("b")
        await nodes.until(federation.all_linked)
