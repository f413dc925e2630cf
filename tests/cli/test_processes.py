"""Clusters that cannot be several processes, and addresses that cannot be shared: one line each."""

import socket

import pytest

ALONE = "clusters: [{id: a, servers: 2, url: 'http://127.0.0.1:18101'}]\n"
HOLDING = ALONE.replace("servers: 2", "servers: 2, held_limit_bytes: 131071")
LEARNED = ALONE.replace("servers: 2", "servers: auto, handler: 'http:http://127.0.0.1:9'")
SIZED = ALONE.replace("servers: 2", "servers: 2, work: bytes")
SIZED_ROUTE = ALONE.replace(
    "servers: 2",
    "servers: 2, handler: 'proxy:http://127.0.0.1:9', proxy_url: 'http://127.0.0.1:18103', "
    "work: 1, routes: [{path: /a}, {path: /b, work: bytes}]",
)
NODES = (
    "clusters: [{id: a, servers: 2, nodes: [{url: 'http://127.0.0.1:18101'}, "
    "{url: 'http://127.0.0.1:18102'}]}]\n"
)
UNLIKE = (
    "clusters: [{id: a, servers: [{id: x}], classes: [{id: c, servers: [x]}], "
    "types: [{id: t, classes: [c]}]}]\n"
)
LINKED = (
    "clusters: [{id: a, servers: 2, url: 'http://127.0.0.1:18101'}, "
    "{id: b, servers: 2, url: 'http://127.0.0.1:18102'}]\n"
    "links: [{between: [a, b], delay_ms: 1}]\n"
)


@pytest.fixture
def said(refused, tmp_path):
    def run(topology, *options):
        (tmp_path / "t.yaml").write_text(topology)
        node = ("node", "--topology", tmp_path / "t.yaml", "--cluster", "a")
        return refused(*node, "--processes", "2", *options)

    return run


@pytest.mark.parametrize(
    ("topology", "options", "complaint"),
    [
        (ALONE, ["--testbed"], "--testbed: expected none along with --processes"),
        (ALONE, ["--processes", "3"], "expected at most as many as servers (2), got 3"),
        (NODES, ["--node", "1"], "--node: expected none along with --processes"),
        (
            UNLIKE,
            ["--bind", "127.0.0.1:0"],
            "expected at most as many as tokens (1), got 2: each needs one",
        ),
        (LEARNED, [], "servers: expected a number or a list along with --processes"),
        (SIZED, [], "clusters[0].work: expected none along with --processes, which count requests"),
        (SIZED_ROUTE, [], "clusters[0].routes[1].work: expected none along with --processes"),
        (HOLDING, [], "held_limit_bytes: expected at least 65536 for each of 2 processes, got"),
        (LINKED, [], "clusters[0].peer_url: expected an address for neighbors alone"),
    ],
)
def test_a_cluster_that_cannot_be_several_processes(topology, options, complaint, said):
    assert complaint in said(topology, *options)


def test_an_address_that_somebody_else_shares(said):
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        topology = ALONE.replace("18101", str(port))
        told = said(topology)
    assert f"--bind: expected an address that can be bound, got 127.0.0.1:{port}" in told


def test_a_system_without_shared_ports(said, monkeypatch):
    monkeypatch.delattr(socket, "SO_REUSEPORT")
    assert "(SO_REUSEPORT)" in said(ALONE)
