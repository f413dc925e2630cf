"""What lies in deploy/: what the command writes for ring5, and manifests that Kubernetes takes."""

import argparse
import importlib.metadata
import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from spillover.cli import main, queue
from spillover.deployment import containers

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"

KUBERNETES_VERSIONS = ("1.27", "1.31")
"""The oldest that knows all fields used, and a newer one."""


def files_under(directory):
    return {
        path.relative_to(directory).as_posix(): path.read_text(encoding="utf-8")
        for path in directory.rglob("*")
        if path.is_file()
    }


def manifests(directory):
    for path in sorted(directory.glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            yield path.name, document


def test_compose_is_what_the_command_writes_for_ring5(tmp_path):
    """Written anew with: cd deploy && spillover topology compose ring5 --build .. ."""
    out = tmp_path / "compose.yaml"
    assert main(["topology", "compose", "ring5", "--out", str(out), "--build", ".."]) == 0
    for name, text in files_under(tmp_path).items():
        assert (DEPLOY / name).read_text(encoding="utf-8") == text, name


def test_kubernetes_is_what_the_command_writes_for_ring5(tmp_path):
    """Written anew with: cd deploy && spillover topology kubernetes ring5."""
    assert main(["topology", "kubernetes", "ring5", "--out", str(tmp_path)]) == 0
    assert files_under(DEPLOY / "kubernetes") == files_under(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
def test_manifests_are_valid(version, tmp_path, require):
    """By the published schemas, with fields that these do not know refused."""
    require(importlib.util.find_spec("kubernetes_validate"), "kubernetes-validate")
    import kubernetes_validate

    more = ["--queue", "3", "--tls"]
    assert main(["topology", "kubernetes", "ring5", "--out", str(tmp_path), *more]) == 0
    kinds = []
    for file, document in manifests(tmp_path):
        if file == "tls-topology.yaml":
            continue
        kinds.append(document["kind"])
        if file == "kustomization.yaml":
            continue
        kubernetes_validate.validate(document, version, strict=True)
    assert kinds.count("StatefulSet") == 6
    assert {"ConfigMap", "NetworkPolicy", "PodDisruptionBudget", "Service"} < set(kinds)


def test_the_kustomization_names_every_manifest():
    """And nothing else: what is not named is not applied."""
    directory = DEPLOY / "kubernetes"
    named = yaml.safe_load((directory / "kustomization.yaml").read_text())["resources"]
    assert set(named) == {path.name for path in directory.iterdir()} - {"kustomization.yaml"}


def test_pods_can_do_next_to_nothing():
    """As the strictest of the pod security standards asks."""
    pods = [
        document["spec"]["template"]["spec"]
        for _, document in manifests(DEPLOY / "kubernetes")
        if document["kind"] == "StatefulSet"
    ]
    assert len(pods) == 5
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        (node,) = pod["containers"]
        assert node["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {"startupProbe", "livenessProbe", "readinessProbe"} < node.keys()
        assert node["resources"]["limits"].keys() == {"cpu", "memory"}


def test_services_find_their_pods():
    """Selectors match the labels of one site's pod each, and ports are those it has."""
    found = [document for _, document in manifests(DEPLOY / "kubernetes")]
    pods = [d["spec"]["template"] for d in found if d["kind"] == "StatefulSet"]
    for service in (d["spec"] for d in found if d["kind"] == "Service"):
        chosen = [p for p in pods if service["selector"].items() <= p["metadata"]["labels"].items()]
        assert len(chosen) == 1
        ports = {port["name"] for port in chosen[0]["spec"]["containers"][0]["ports"]}
        assert {port["targetPort"] for port in service["ports"]} <= ports


def subset(*parts):
    script = [sys.executable, DEPLOY / "lock_subset.py", *parts]
    ended = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, check=False)
    return ended.returncode, ended.stdout, ended.stderr


def names_of(lock):
    return {name.lower() for name in re.findall(r"^([A-Za-z0-9._-]+)==", lock, re.MULTILINE)}


def wanted_by_metadata(names):
    """What installed packages say that they need, here, all the way down."""
    from packaging.requirements import Requirement

    found, left = set(), [Requirement(name) for name in names]
    while left:
        requirement = left.pop()
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        if name in found:
            continue
        found.add(name)
        for line in importlib.metadata.requires(requirement.name) or []:
            inner = Requirement(line)
            if inner.marker is None or inner.marker.evaluate({"extra": ""}):
                left.append(inner)
    return found


@pytest.mark.processes
def test_the_image_gets_what_nodes_need_and_no_more():
    """All of it from the lock, hashes and all: what metadata says, and what is for tests not."""
    extras = (*containers.EXTRAS, "dask", "tls")
    status, lock, _ = subset("base", *extras)
    assert status == 0
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    roots = [*project["dependencies"], *(name for extra in extras for name in optional[extra])]
    names = names_of(lock)
    assert wanted_by_metadata(roots) <= names
    assert not names & {"pytest", "numpy", "numba", "matplotlib", "hypothesis", "mypy", "ruff"}
    assert lock.count("--hash=sha256:") >= len(names)
    whole = (ROOT / "requirements.lock").read_text()
    assert all(entry in whole for entry in re.split(r"^(?=[a-z0-9])", lock, flags=re.MULTILINE))


def test_the_image_is_what_deployments_expect():
    """Ports, user, extras and health check stand in the Dockerfile and in what is written."""
    text = (DEPLOY / "Dockerfile").read_text()
    ports = (containers.API_PORT, containers.PEER_PORT, containers.PROXY_PORT)
    assert f"EXPOSE {' '.join(map(str, ports))}\n" in text
    assert f"USER {containers.USER_ID}:0\n" in text
    assert f"WORKDIR {containers.CODE_PATH}\n" in text
    assert f'ARG EXTRAS="{" ".join(containers.EXTRAS)}"\n' in text
    shown = ", ".join(f'"{word}"' for word in containers.HEALTH_COMMAND)
    assert f"CMD [{shown}]\n" in text
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    test = compose["services"]["node-a"]["healthcheck"]["test"]
    assert test == ["CMD", *containers.HEALTH_COMMAND]
    assert f"port {containers.API_PORT}" in re.sub(
        r'\("127.0.0.1", (\d+)\)', r"port \1", (DEPLOY / "healthcheck.py").read_text()
    )


def test_no_key_of_a_mapping_is_written_twice():
    """YAML readers keep the last one without a word."""

    class Strict(yaml.SafeLoader):
        pass

    def mapping(loader, node, deep=False):
        keys = [key.value for key, _ in node.value]
        assert len(keys) == len(set(keys)), keys
        loader.flatten_mapping(node)
        return dict(loader.construct_pairs(node, deep))

    Strict.add_constructor("tag:yaml.org,2002:map", mapping)
    for name, text in files_under(DEPLOY).items():
        if name.endswith((".yaml", ".yml")):
            assert list(yaml.load_all(text, Strict)), name


def test_producers_know_each_other_and_each_has_a_volume(tmp_path):
    out = str(tmp_path)
    assert main(["topology", "kubernetes", "ring5", "--out", out, "--queue", "3"]) == 0
    documents = list(yaml.safe_load_all((tmp_path / "queue.yaml").read_text(encoding="utf-8")))
    (found,) = [one["spec"] for one in documents if one["kind"] == "StatefulSet"]
    (policy,) = [one["spec"] for one in documents if one["kind"] == "NetworkPolicy"]
    assert policy["podSelector"] == found["selector"], "it holds for these pods"
    assert policy["ingress"] == [{"ports": [{"port": "http", "protocol": "TCP"}]}]
    words = found["template"]["spec"]["containers"][0]["args"]
    peers = [word for word in words if word.startswith("queue-")]
    assert peers == [f"queue-{k}=http://queue-{k}.queue-peers:8080" for k in range(3)]
    assert found["volumeClaimTemplates"][0]["metadata"]["name"] == "objects"
    assert main(["topology", "kubernetes", "ring5", "--out", out]) == 0
    assert not (tmp_path / "queue.yaml").exists()


def test_the_command_takes_what_producers_are_started_with(tmp_path):
    """Of containers and of pods: all options exist, and each producer is among the peers."""
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    services = {name: one for name, one in compose["services"].items() if name.startswith("queue")}
    assert all(one["profiles"] == ["queue"] for one in services.values())
    assert all(
        volume.partition(":")[0] in compose["volumes"]
        for one in services.values()
        for volume in one["volumes"]
    )
    assert main(["topology", "kubernetes", "ring5", "--out", str(tmp_path), "--queue", "3"]) == 0
    (pod,) = [
        one["spec"]["template"]["spec"]["containers"][0]
        for file, one in manifests(tmp_path)
        if file == "queue.yaml" and one["kind"] == "StatefulSet"
    ]
    pods = [[word.replace("$(POD)", f"queue-{k}") for word in pod["args"]] for k in range(3)]
    for commands in ([one["command"] for one in services.values()], pods):
        assert len(commands) == 3
        for command, *words in commands:
            assert command == "queue"
            parser = argparse.ArgumentParser(exit_on_error=False)
            queue.configure(parser)
            options = parser.parse_args(words)
            names = [peer.partition("=")[0] for peer in options.peer]
            assert options.id in names
            assert len(names) == 3
            assert options.store.is_relative_to(containers.STORE_PATH)
