"""Two sites whose neighbors' doors are encrypted, and one whose clients' doors are."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass, field
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from spillover.live.http1.client import HttpClient
from spillover.live.overflow.protocol import FIRST
from spillover.live.tls.contexts import trusting_context
from spillover.model.certified_names import certified_name
from spillover.model.errors import NotDelivered
from support.certificates import Authority, put
from support.commands import SPILLOVER, ask
from support.ports import free_ports
from support.waiting import until

CLUSTERS = "ab"
NEIGHBORS = {"a": {"b"}, "b": {"a"}}
RENEWED = "certificates are renewed"
LOOK_S = 0.05


@dataclass
class Sites:
    """A node each, with certificates in `directory`, by whatever CAs."""

    directory: Path
    start: object
    old: Authority = field(default_factory=lambda: Authority("old"))
    nodes: dict = field(default_factory=dict)

    def __post_init__(self):
        ports = free_ports(2 * len(CLUSTERS))
        self.urls = {c: f"http://127.0.0.1:{ports.pop()}" for c in CLUSTERS}
        self.peer_urls = {c: f"https://127.0.0.1:{ports.pop()}" for c in CLUSTERS}
        self.topology = self.directory / "sites.yaml"
        clusters = [
            f"  - {{id: {c}, servers: 1, url: '{self.urls[c]}', peer_url: '{self.peer_urls[c]}'}}"
            for c in CLUSTERS
        ]
        self.topology.write_text(
            "\n".join(["name: sites", "clusters:", *clusters, "links: [{between: [a, b]}]"])
        )

    def certify(self, cluster, authority, *trusted):
        signed = authority.sign(certified_name(cluster, "sites"))
        return put(self.directory, cluster, signed, *trusted)

    def run(self, cluster):
        files = self.certify(cluster, self.old, self.old)
        options = ["--tls-cert", files.cert, "--tls-key", files.key, "--tls-ca", files.ca]
        command = [*SPILLOVER, "node", "--topology", str(self.topology), "--cluster", cluster]
        self.nodes[cluster] = self.start(*command, *options)

    def renew(self, authority, *trusted):
        """At one site after the other; each takes them when it is told, or soon. Nobody goes on
        before all hear each other again."""
        for cluster, node in self.nodes.items():
            seen = node.stderr.count(RENEWED)
            self.certify(cluster, authority, *trusted)
            node.process.send_signal(signal.SIGHUP)
            until(lambda node=node, seen=seen: node.stderr.count(RENEWED) > seen)
        self.hear_each_other()

    def hear_each_other(self):
        until(lambda: self.neighbors() == NEIGHBORS, what=self.said, every_s=LOOK_S)

    def neighbors(self):
        """Of each that answers: who is alive."""
        found = {}
        for cluster, url in self.urls.items():
            status, state = ask(f"{url}/state")
            assert status == 200
            found[cluster] = {one["id"] for one in state["neighbors"] if one["alive"]}
        return found

    def said(self):
        return "\n".join(node.stderr for node in self.nodes.values())


@pytest.fixture(scope="module")
def sites(module_start, tmp_path_factory):
    """All hear each other."""
    sites = Sites(tmp_path_factory.mktemp("sites"), module_start)
    for cluster in CLUSTERS:
        sites.run(cluster)
    until(lambda: all("node listens" in node.stderr for node in sites.nodes.values()), 30.0)
    sites.hear_each_other()
    return sites


async def _status(sites, context):
    """Of the first question at the neighbors' door of b."""
    name = certified_name("b", "sites")
    client = HttpClient(sites.peer_urls["b"], tls=context, server_name=name, first=FIRST)
    try:
        return (await client.request("GET", FIRST, timeout_s=9.0)).status
    finally:
        await client.close()


def test_what_is_wrong_is_told_and_changes_nothing(sites):
    """A key of another certificate; SIGHUP ends no node that has certificates."""
    node = sites.nodes["b"]
    files = sites.certify("b", sites.old, sites.old)
    wrong = Path(files.key)
    wrong.write_bytes(sites.old.sign("b")[1])
    node.process.send_signal(signal.SIGHUP)
    until(lambda: "certificates stay as they were" in node.stderr)
    assert f"{wrong}: expected the key of the certificate in {files.cert}" in node.stderr
    sites.renew(sites.old, sites.old)
    until(lambda: sites.neighbors() == NEIGHBORS)


def test_the_neighbors_door_is_for_neighbors(sites):
    """Nobody without a certificate gets as far as HTTP there."""
    with pytest.raises(NotDelivered):
        asyncio.run(_status(sites, trusting_context(str(sites.directory / "b.ca"))))
    status, told = ask(f"{sites.urls['b']}{FIRST}")
    assert (status, told["reason"]) == (404, "not_found")


def test_only_clients_doors_are_encrypted(tmp_path, start):
    """That of a service too; between nodes, at one site, nothing is."""
    doors, authority = free_ports(3), Authority("own")
    files = put(tmp_path, "a", authority.sign(certified_name("a", "site")))
    topology = tmp_path / "site.yaml"
    topology.write_text(
        f"name: site\nclusters:\n  - {{id: a, servers: 1, handler: 'proxy:http://127.0.0.1:9',"
        f" url: 'https://127.0.0.1:{doors[0]}', peer_url: 'http://127.0.0.1:{doors[1]}',"
        f" proxy_url: 'https://127.0.0.1:{doors[2]}'}}\n"
    )
    command = [*SPILLOVER, "node", "--topology", str(topology), "--cluster", "a"]
    node = start(*command, "--tls-cert", files.cert, "--tls-key", files.key)
    until(lambda: "node listens" in node.stderr, 30.0)
    context = trusting_context(None)
    context.load_verify_locations(cadata=authority.pem.decode())

    async def statuses():
        found = []
        for port, path in ((doors[0], "/healthz"), (doors[2], "/of/the/service")):
            client = HttpClient(
                f"https://127.0.0.1:{port}", tls=context, server_name=certified_name("a", "site")
            )
            found.append((await client.request("GET", path, timeout_s=9.0)).status)
            await client.close()
        return found

    assert asyncio.run(statuses()) == [200, 503]
