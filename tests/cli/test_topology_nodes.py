"""What `spillover topology` writes for a cluster of several nodes."""

import json

import pytest
import yaml

from spillover.certificates.names import hosts_of
from spillover.cli import main
from spillover.inputs.topology_file import load_topology

SITES = """
name: sites
clusters:
  - {id: a, servers: 2, nodes: 2}
  - {id: b, servers: 2}
links: [{between: [a, b], delay_ms: 5}]
"""


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "sites.yaml"
    path.write_text(SITES)
    return str(path)


def test_a_container_for_each_node(source, tmp_path, capsys):
    """At the network of its site, with a port of its own; all are watched, and delay the links."""
    assert main(["topology", "compose", source, "--out", f"{tmp_path}/compose.yaml", "--json"]) == 0
    urls = json.loads(capsys.readouterr().out)["clusters"]
    assert set(urls) == {"a/1", "a/2", "b"}
    assert len(set(urls.values())) == 3
    services = yaml.safe_load((tmp_path / "compose.yaml").read_text())["services"]
    for number in (1, 2):
        service = services[f"node-a-{number}"]
        assert service["command"][3:7] == ["--cluster", "a", "--node", str(number)]
        assert service["networks"] == ["wan", "site-a"]
        port = urls[f"a/{number}"].rpartition(":")[2]
        assert service["ports"] == [f"127.0.0.1:${{SPILLOVER_PORT_A_{number}:-{port}}}:8080"]
    assert "--node" not in services["node-b"]["command"]
    assert {"node-a-1", "node-a-2", "node-b"} <= set(services["load"]["depends_on"])
    prometheus = yaml.safe_load((tmp_path / "prometheus" / "prometheus.yml").read_text())
    watched = prometheus["scrape_configs"][0]["static_configs"][0]["targets"]
    assert watched == ["node-a-1:8080", "node-a-2:8080", "node-b:8080"]
    netem = yaml.safe_load((tmp_path / "compose.netem.yaml").read_text())["services"]
    assert netem["netem-b"]["command"] == ["node-a-1=5", "node-a-2=5"]
    assert netem["netem-a-2"]["network_mode"] == "service:node-a-2"
    read = load_topology(str(tmp_path / "topology" / "topology.yaml"))
    assert read.cluster("a").peer_urls == ("http://node-a-1:8081", "http://node-a-2:8081")


def test_a_pod_for_each_node(source, tmp_path):
    """One StatefulSet, whose pods know their numbers; certificates are for their Service too."""
    out = tmp_path / "out"
    assert main(["topology", "kubernetes", source, "--out", str(out), "--tls"]) == 0
    kinds = {
        document["kind"]: document
        for document in yaml.safe_load_all((out / "site-a.yaml").read_text())
    }
    spec = kinds["StatefulSet"]["spec"]
    assert spec["replicas"] == 2
    (container,) = spec["template"]["spec"]["containers"]
    args = container["args"]
    assert args[args.index("--node") + 1] == "$(SPILLOVER_POD)"
    assert container["env"][0]["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    config = yaml.safe_load((out / "topology.yaml").read_text())
    (tmp_path / "read.yaml").write_text(config["data"]["topology.yaml"])
    read = load_topology(str(tmp_path / "read.yaml")).cluster("a")
    name = spec["serviceName"]
    assert read.peer_urls == (
        f"https://node-a-0.{name}:8081",
        f"https://node-a-1.{name}:8081",
    )
    made_for = load_topology(str(out / "tls-topology.yaml")).cluster("a")
    assert {"node-a", f"node-a-0.{name}", f"node-a-1.{name}"} <= set(hosts_of(made_for))
    (alone,) = [
        document
        for document in yaml.safe_load_all((out / "site-b.yaml").read_text())
        if document["kind"] == "StatefulSet"
    ]
    assert alone["spec"]["replicas"] == 1
    assert "env" not in alone["spec"]["template"]["spec"]["containers"][0]


def test_a_cluster_that_is_called_as_a_node(tmp_path, capsys):
    source = tmp_path / "sites.yaml"
    source.write_text("clusters: [{id: a, servers: 2, nodes: 2}, {id: a-2, servers: 1}]\n")
    assert main(["topology", "compose", str(source), "--out", f"{tmp_path}/compose.yaml"]) == 2
    said = capsys.readouterr().err
    assert "clusters[1].id: expected ids that differ from names of nodes, got 'a-2'" in said


@pytest.mark.parametrize(
    ("node", "said"),
    [
        ("node-a-2", "expected a node of cluster a, 1 to 2, got 3"),
        ("3", "expected a node of cluster a, 1 to 2, got 3"),
        ("node-a-16", "--node: expected a whole number from 1 to 16, got '17'"),
        ("node-a", "--node: expected a whole number, got 'node-a'"),
    ],
)
def test_the_number_of_a_node_by_the_name_of_its_pod(node, said, tmp_path, capsys):
    file = tmp_path / "sites.yaml"
    nodes = "[{url: 'http://127.0.0.1:1'}, {url: 'http://127.0.0.1:2'}]"
    file.write_text(f"clusters: [{{id: a, servers: 2, nodes: {nodes}}}]\n")
    assert main(["node", "--topology", str(file), "--cluster", "a", "--node", node]) == 2
    assert said in capsys.readouterr().err
