"""`spillover topology --tls`: containers find certificates that fit; only their node reads them."""

import json

import pytest
import yaml

from spillover.cli import main
from spillover.inputs.api_tokens import load_api_tokens
from spillover.inputs.topology_file import load_topology
from spillover.model.access import Role

NAMED = (
    "name: two\nclusters: [{id: a, servers: 1}, {id: b, servers: 1}]\nlinks: [{between: [a, b]}]\n"
)


@pytest.fixture
def named(tmp_path):
    """A topology that can have certificates."""
    pytest.importorskip("cryptography")
    path = tmp_path / "two.yaml"
    path.write_text(NAMED)
    return path


def test_compose_with_certificates(named, tmp_path, capsys):
    """They are made beside the file, for the names that containers have, and stay."""
    out = tmp_path / "out" / "compose.yaml"
    options = (str(named), "--out", str(out), "--tls")
    assert main(["topology", "compose", *options, "--json"]) == 0
    told = capsys.readouterr()
    assert set(json.loads(told.out)["clusters"]) == {"a", "b"}
    assert json.loads(told.out)["clusters"]["a"].startswith("https://127.0.0.1:")
    assert 'SPILLOVER_USER="$(id -u):$(id -g)" docker compose' in told.err
    services = yaml.safe_load(out.read_text())["services"]
    node = services["node-a"]
    assert "./certificates/a:/etc/spillover-tls:ro" in node["volumes"]
    assert node["user"] == "${SPILLOVER_USER:-10001:10001}"
    for option, file in (("cert", "tls.crt"), ("key", "tls.key"), ("ca", "ca.crt")):
        place = node["command"].index(f"--tls-{option}")
        assert node["command"][place + 1] == f"/etc/spillover-tls/{file}"
    assert services["node-a"]["build"]["args"] == {"EXTRAS": "leases tls"}
    assert "--ca-file" in services["load"]["command"]
    assert "--target=a=https://node-a:8080" in services["load"]["command"]
    for name, files in (("queue-1", ["cert", "key", "ca"]), ("lease-1", ["cert", "key"])):
        assert f"./certificates/{name}:/etc/spillover-tls:ro" in services[name]["volumes"]
        assert services[name]["user"] == node["user"]
        words = services[name]["command"]
        assert [word for word in words if word.startswith("--tls-")] == [
            f"--tls-{f}" for f in files
        ]
    assert "queue-2=https://queue-2:8080" in services["queue-1"]["command"]
    prometheus = yaml.safe_load((out.parent / "prometheus/prometheus.yml").read_text())
    (job,) = [one for one in prometheus["scrape_configs"] if one["job_name"] == "spillover"]
    assert (job["scheme"], job["tls_config"]) == ("https", {"ca_file": "/etc/prometheus/ca.crt"})
    for name in ("spillover-leases", "spillover-queue"):
        (job,) = [one for one in prometheus["scrape_configs"] if one["job_name"] == name]
        assert (job["scheme"], job["tls_config"]) == (
            "https",
            {"ca_file": "/etc/prometheus/ca.crt"},
        )
        by_name = {"target_label": "__address__", "replacement": "$1:8080"}
        assert {"source_labels": ["__meta_dns_name"], **by_name} in job["relabel_configs"]
    inside = out.parent / "topology" / "topology.yaml"
    check = ["tls", "check", str(out.parent / "certificates"), "--topology", str(inside)]
    assert main(check) == 0
    key = (out.parent / "certificates/a/tls.key").read_bytes()
    named.write_text(NAMED.replace("[{id: a", "[{id: c, servers: 1}, {id: a"))
    assert main(["topology", "compose", *options]) == 0
    assert (out.parent / "certificates/a/tls.key").read_bytes() == key
    assert main(check) == 0


def test_kubernetes_with_certificates(named, tmp_path, capsys):
    """Of Secrets with the names that cert-manager gives, which only the node's user can read."""
    out = tmp_path / "k"
    assert main(["topology", "kubernetes", str(named), "--out", str(out), "--tls"]) == 0
    said = capsys.readouterr().err
    assert f"spillover tls init --topology {out / 'tls-topology.yaml'}" in said
    assert "create secret generic tls-ID --from-file=certificates/ID" in said
    pods = {
        document["metadata"]["name"]: document["spec"]["template"]
        for path in out.glob("site-*.yaml")
        for document in yaml.safe_load_all(path.read_text())
        if document["kind"] == "StatefulSet"
    }
    metadata, pod = pods["node-a"]["metadata"], pods["node-a"]["spec"]
    (container,) = pod["containers"]
    assert metadata["annotations"]["prometheus.io/scheme"] == "https"
    secret = {"secretName": "tls-a", "defaultMode": 0o440}
    assert {"name": "tls", "secret": secret} in pod["volumes"]
    assert not {"fsGroup", "runAsUser", "runAsGroup"} & pod["securityContext"].keys()
    mount = {"name": "tls", "mountPath": "/etc/spillover-tls", "readOnly": True}
    assert mount in container["volumeMounts"]
    probes = [container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")]
    assert {probe["scheme"] for probe in probes} == {"HTTPS"}
    kustomization = yaml.safe_load((out / "kustomization.yaml").read_text())
    assert "tls-topology.yaml" not in kustomization["resources"]
    inside = load_topology(str(out / "tls-topology.yaml"))
    assert inside.is_secure
    assert inside.cluster("b").url == "https://node-b:8080"


def test_producers_in_kubernetes_with_certificates(named, tmp_path):
    """Each pod finds its own among those of all, which are made for its name and its host."""
    out = tmp_path / "k"
    options = ("--out", str(out), "--tls", "--queue", "2")
    assert main(["topology", "kubernetes", str(named), *options]) == 0
    documents = list(yaml.safe_load_all((out / "queue.yaml").read_text()))
    (found,) = [one["spec"] for one in documents if one["kind"] == "StatefulSet"]
    assert found["template"]["metadata"]["annotations"]["prometheus.io/scheme"] == "https"
    pod = found["template"]["spec"]
    (container,) = pod["containers"]
    assert "queue-1=https://queue-1.queue-peers:8080" in container["args"]
    (volume,) = [one["projected"] for one in pod["volumes"] if one["name"] == "tls"]
    names = [one["secret"]["name"] for one in volume["sources"]]
    assert names == ["tls-queue-0", "tls-queue-1"]
    (mount,) = [one for one in container["volumeMounts"] if one["name"] == "tls"]
    there = {
        f"{mount['mountPath']}/{item['path']}"
        for one in volume["sources"]
        for item in one["secret"]["items"]
    }
    for option in ("cert", "key", "ca"):
        file = container["args"][container["args"].index(f"--tls-{option}") + 1]
        assert {file.replace("$(POD)", f"queue-{k}") for k in range(2)} <= there
    probes = [container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")]
    assert {probe["scheme"] for probe in probes} == {"HTTPS"}
    made_for = load_topology(str(out / "tls-topology.yaml"))
    assert made_for.cluster_ids == ("a", "b", "queue-0", "queue-1")
    assert made_for.cluster("queue-1").url == "https://queue-1.queue-peers:8080"


@pytest.mark.parametrize("kind", ["compose", "kubernetes"])
def test_what_has_certificates_has_a_name_of_its_own(kind, named, tmp_path, capsys):
    """Else each could pose as the other. Without certificates it may be called so."""
    named.write_text(NAMED.replace("id: b", "id: queue-1").replace("[a, b]", "[a, queue-1]"))
    more = ["--queue", "2"] if kind == "kubernetes" else []
    out = tmp_path / "out.yaml"
    options = ["topology", kind, str(named), "--out", str(out), *more]
    assert main([*options, "--tls"]) == 2
    assert "clusters[1].id: expected an id that none has of those" in capsys.readouterr().err
    assert not out.exists()
    assert main(options) == 0


@pytest.mark.parametrize("kind", ["compose", "kubernetes"])
def test_certificates_need_a_name(kind, named, tmp_path, capsys):
    named.write_text(NAMED.replace("name: two", ""))
    assert main(["topology", kind, str(named), "--tls", "--out", str(tmp_path / "out.yaml")]) == 2
    line = capsys.readouterr().err
    assert "name: expected a name: certificates hold for one federation" in line


def test_kubernetes_with_api_tokens(named, tmp_path, capsys):
    """Producers show one that may submit, Prometheus one that may read."""
    out = tmp_path / "k"
    options = ("--out", str(out), "--tokens", "--queue", "2")
    assert main(["topology", "kubernetes", str(named), *options]) == 0
    said = capsys.readouterr().err
    for line in said.splitlines():
        if line.startswith("  spillover token new"):
            words = line.strip().removeprefix("spillover ").partition(" > ")[0].split()
            words[words.index("tokens.yaml")] = str(tmp_path / "tokens.yaml")
            assert main(words) == 0
    roles = {one.name: one.roles for one in load_api_tokens([str(tmp_path / "tokens.yaml")])}
    assert roles == {
        "producers": {Role.SUBMIT},
        "prometheus": {Role.READ},
    }
    assert "--from-file=tokens.yaml --from-file=producers" in said
    pods = {
        document["metadata"]["name"]: document["spec"]["template"]["spec"]
        for path in out.glob("*.yaml")
        for document in yaml.safe_load_all(path.read_text())
        if document["kind"] == "StatefulSet"
    }
    for name, pod in pods.items():
        (container,) = pod["containers"]
        secret = {"secretName": "api-tokens", "defaultMode": 0o440}
        assert {"name": "tokens", "secret": secret} in pod["volumes"], name
        assert ("fsGroup" in pod["securityContext"]) is (name == "queue")
        mount = {"name": "tokens", "mountPath": "/etc/spillover-tokens", "readOnly": True}
        assert mount in container["volumeMounts"]
        told = " ".join(container["args"])
        assert "--tokens /etc/spillover-tokens/tokens.yaml" in told
        if name == "queue":
            assert "--token-file /etc/spillover-tokens/producers" in told
