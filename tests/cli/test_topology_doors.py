"""`spillover topology` for clusters in front of a service: their doors are reached from outside,
and those of the profile `proxy` are there to be tried.
"""

import json

import pytest
import yaml

from spillover.cli import main
from spillover.inputs.topology_file import load_topology

SITES = """\
clusters:
- {id: paris, servers: 4, handler: 'proxy:http://gpu-1:9000', proxy_url: 'http://127.0.0.1:8300'}
- {id: tokyo, servers: 4, handler: 'proxy:http://127.0.0.1:9000'}
- {id: oslo, servers: 1}
links: [{between: [paris, tokyo]}]
"""


def write(directory, kind, text=SITES):
    source = directory / "sites.yaml"
    source.write_text(text)
    out = directory / "out"
    place = out / "compose.yaml" if kind == "compose" else out
    return main(["topology", kind, str(source), "--out", str(place), "--json"]), out


def test_compose_publishes_the_doors(tmp_path, capsys):
    """At the port of the url where there is one on this machine, else at one that is free."""
    status, out = write(tmp_path, "compose")
    told = capsys.readouterr()
    assert status == 0
    proxies = json.loads(told.out)["proxies"]
    assert proxies == {"paris": "http://127.0.0.1:8300", "tokyo": "http://127.0.0.1:8104"}
    for cluster, url in proxies.items():
        assert f"behind cluster {cluster} come in at {url}" in told.err
    assert "clusters[1].handler: 127.0.0.1 is the container itself there" in told.err
    services = yaml.safe_load((out / "compose.yaml").read_text())["services"]
    for site, port in (("paris", 8300), ("tokyo", 8104)):
        published = f"127.0.0.1:${{SPILLOVER_PROXY_PORT_{site.upper()}:-{port}}}:8082"
        assert services[f"node-{site}"]["ports"][1] == published
    command = services["node-tokyo"]["command"]
    assert command[command.index("--proxy-bind") + 1] == "[::]:8082"
    assert "--proxy-bind" not in services["node-oslo"]["command"]
    assert len(services["node-oslo"]["ports"]) == 1
    inside = load_topology(str(out / "topology" / "topology.yaml"))
    assert [cluster.proxy_url for cluster in inside.clusters] == [
        *("http://node-paris:8082", "http://node-tokyo:8082", None),
    ]


def test_kubernetes_lets_clients_of_the_service_in(tmp_path):
    status, out = write(tmp_path, "kubernetes")
    assert status == 0
    found = {
        (each["kind"], each["metadata"]["name"]): each
        for path in out.glob("*.yaml")
        for each in yaml.safe_load_all(path.read_text())
        if "metadata" in each
    }
    expected = {"paris": {"http": 8080, "proxy": 8082}, "oslo": {"http": 8080}}
    for site, ports in expected.items():
        service = found["Service", f"node-{site}"]["spec"]
        assert {port["name"]: port["port"] for port in service["ports"]} == ports
        pod = found["StatefulSet", f"node-{site}"]["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert {p["name"]: p["containerPort"] for p in container["ports"]} == {
            **ports,
            "peers": 8081,
        }
    (for_all, _) = found["NetworkPolicy", "spillover"]["spec"]["ingress"]
    assert [port["port"] for port in for_all["ports"]] == ["http", "proxy"]
    assert "from" not in for_all


@pytest.mark.parametrize(
    ("url", "owner"),
    [("http://localhost:8300", "cluster paris"), ("http://localhost:8221", "door 1")],
)
def test_doors_that_collide(url, owner, tmp_path, capsys):
    text = SITES.replace("9000'}\n- {id: oslo", f"9000', proxy_url: '{url}'}}\n- {{id: oslo")
    assert write(tmp_path, "compose", text)[0] == 2
    err = capsys.readouterr().err
    assert "sites.yaml: clusters[1].proxy_url: expected a port of its own" in err
    assert err.endswith(f"which {owner} has\n")


def test_the_profile_has_two_sites_in_front_of_a_service_each(tmp_path):
    """They are told what the nodes of the profile listen at, and where the services are."""
    _, out = write(tmp_path, "compose")
    services = yaml.safe_load((out / "compose.yaml").read_text())["services"]
    topology = load_topology(str(out / "topology" / "doors.yaml"))
    for number, cluster in enumerate(topology.clusters, 1):
        node, behind = services[cluster.id], services[f"service-{number}"]
        port = behind["command"][behind["command"].index("--port") + 1]
        assert cluster.handler == f"proxy:http://service-{number}:{port}"
        assert cluster.proxy_url == f"http://{cluster.id}:8082"
        assert node["command"][node["command"].index("--proxy-bind") + 1] == "[::]:8082"
        assert node["volumes"] == ["./topology/doors.yaml:/etc/spillover/topology.yaml:ro"]
        assert node["ports"][1] == f"127.0.0.1:${{DOOR_{number}_PORT:-{8220 + number}}}:8082"
    assert {cluster.id for cluster in topology.clusters} == {"door-1", "door-2"}
