"""The compose testbed of deploy/ on a real engine: it comes up, answers, stays within its bounds,
survives a cut, and leaves nothing behind.

Opt-in, SPILLOVER_DOCKER=1, since it builds an image. Grafana is not started: all that these tests
need of it is in `test_committed`.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
IMAGE = "spillover:local"
CLUSTERS = "abcde"
STARTED = [*(f"node-{cluster}" for cluster in CLUSTERS), "redis", "prometheus"]

UP_WITHIN_S = 90.0
"""Half a minute where nothing else runs."""

LAYERS_BYTES_MAX = 90e6
MEMORY_BYTES_MAX = 500e6
IDLE_CORES_MAX = 0.2
"""A tenth of a core where nothing else runs."""
IDLE_FOR_S = 10.0

pytestmark = pytest.mark.timeout(600)
_never = threading.Event()


def sh(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout


def works(*command):
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def get(url, body=None):
    with urllib.request.urlopen(url, body, timeout=10) as answer:  # noqa: S310 - loopback only
        return json.load(answer)


def tell(line):
    """What was measured, for whoever runs this with -s."""
    sys.stdout.write(f"\n{line}\n")


def until(condition, limit_s=30.0):
    limit_at_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < limit_at_s
        _never.wait(0.1)


class Project:
    """The five-cluster testbed under a name and at ports of its own."""

    def __init__(self):
        self.name = f"spillover-test-{uuid.uuid4().hex[:8]}"
        names = [f"SPILLOVER_PORT_{cluster.upper()}" for cluster in CLUSTERS]
        names += ["PROMETHEUS_PORT", "REDIS_PORT"]
        held = [socket.create_server(("127.0.0.1", 0)) for _ in names]
        ports = [server.getsockname()[1] for server in held]
        for server in held:
            server.close()
        self.ports = dict(zip(names, ports, strict=True))
        given = {name: str(port) for name, port in self.ports.items()}
        self.environment = {**os.environ, "DOCKER_BUILDKIT": "0", **given}

    def compose(self, *arguments):
        command = ["docker", "compose", "-p", self.name, "-f", DEPLOY / "compose.yaml"]
        return sh(*command, *arguments, env=self.environment)

    def url(self, cluster):
        return f"http://127.0.0.1:{self.ports[f'SPILLOVER_PORT_{cluster.upper()}']}"

    def container(self, service):
        return self.compose("ps", "-q", service).strip()

    def containers(self):
        label = f"label=com.docker.compose.project={self.name}"
        return sh("docker", "ps", "-aq", "--filter", label).split()

    def neighbors(self, cluster):
        state = get(f"{self.url(cluster)}/state")
        return {each["id"]: each["alive"] for each in state["neighbors"]}


@pytest.fixture(scope="module")
def engine(require):
    """An engine and compose v2, asked for."""
    if os.environ.get("SPILLOVER_DOCKER") != "1":
        pytest.skip("builds an image and starts containers: SPILLOVER_DOCKER=1 runs it")
    require(works("docker", "info"), "a Docker engine that answers")
    require(works("docker", "compose", "version"), "compose v2")


@pytest.fixture(scope="module")
def project(engine):
    """Up and healthy, in `took_s`; gone afterwards."""
    project = Project()
    project.compose("build", "node-a")
    try:
        began_s = time.monotonic()
        project.compose("up", "--wait", *STARTED)
        project.took_s = time.monotonic() - began_s
        yield project
    finally:
        project.compose("down", "-v", "-t", "5")
    assert project.containers() == []


@pytest.mark.parametrize("command", [("docker", "compose"), ("docker-compose",)])
@pytest.mark.parametrize("overlay", [(), ("-f", "compose.netem.yaml")])
def test_every_compose_reads_the_files(engine, require, command, overlay):
    """With all profiles, and without a warning."""
    require(works(*command, "version"), f"{' '.join(command)}")
    profiles = ("--profile", "load", "--profile", "leases")
    asked = [*command, *profiles, "-f", "compose.yaml", *overlay, "config", "-q"]
    ended = subprocess.run(asked, cwd=DEPLOY, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_it_is_soon_healthy_and_answers(project):
    """Each site at its port, and the federation seen through any of them."""
    tell(f"healthy within {project.took_s:.1f} s")
    assert project.took_s < UP_WITHIN_S
    for cluster in CLUSTERS:
        body = json.dumps({"payload": {"service_ms": 5}}).encode()
        assert get(f"{project.url(cluster)}/requests", body)["cluster"] == cluster
    status = [sys.executable, "-m", "spillover", "status", project.url("a"), "--json"]
    assert sorted(json.loads(sh(*status))["clusters"]) == list(CLUSTERS)


def test_only_the_public_side_is_published_and_only_on_loopback(project):
    """What neighbors say to each other stays on their network."""
    for container in project.containers():
        found = json.loads(sh("docker", "inspect", container))[0]["NetworkSettings"]["Ports"]
        hosts = {each["HostIp"] for bindings in found.values() for each in bindings or ()}
        assert hosts == {"127.0.0.1"}
        assert not found.get("8081/tcp")
    with pytest.raises(urllib.error.HTTPError) as refused:
        get(f"{project.url('a')}/peer/requests", b"{}")
    with refused.value as answer:
        assert answer.code == 404


def test_the_image_is_light_and_not_root(project):
    """Its layers above the base image."""
    user = sh("docker", "run", "--rm", "--read-only", "--entrypoint", "id", IMAGE, "-u")
    assert user.strip() == "10001"
    lines = sh("docker", "history", "--human=false", "--format", "{{.Size}}", IMAGE).split()
    created = sh("docker", "history", "--no-trunc", "--format", "{{.CreatedBy}}", IMAGE)
    ours = next(i for i, line in enumerate(created.splitlines()) if "groupadd" in line) + 1
    layers_bytes = sum(map(int, lines[:ours]))
    tell(f"layers above the base: {layers_bytes / 1e6:.1f} MB")
    assert layers_bytes <= LAYERS_BYTES_MAX


def test_prometheus_sees_every_node(project):
    """Through the network of each site."""
    url = f"http://127.0.0.1:{project.ports['PROMETHEUS_PORT']}/api/v1/query"

    def nodes_up():
        found = get(f"{url}?query=up%7Bjob%3D%22spillover%22%7D%3D%3D1")["data"]["result"]
        return {each["metric"]["instance"] for each in found}

    until(lambda: nodes_up() == {f"node-{cluster}:8080" for cluster in CLUSTERS})


def used_s(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_idle_it_takes_little(project, require):
    """Five nodes and Redis; health checks and Prometheus's questions included."""
    services = STARTED[:6]
    found = [json.loads(sh("docker", "inspect", project.container(s)))[0] for s in services]
    pids = [each["State"]["Pid"] for each in found]
    require(Path(f"/proc/{pids[0]}/stat").exists(), "an engine on this machine")
    before_s, began_s = sum(map(used_s, pids)), time.monotonic()
    _never.wait(IDLE_FOR_S)
    cores = (sum(map(used_s, pids)) - before_s) / (time.monotonic() - began_s)
    resident = [Path(f"/proc/{pid}/statm").read_text().split() for pid in pids]
    memory_bytes = sum(int(pages[1]) for pages in resident) * os.sysconf("SC_PAGE_SIZE")
    tell(f"idle: {100 * cores:.1f} % of a core, {memory_bytes / 1e6:.0f} MB resident")
    assert cores < IDLE_CORES_MAX
    assert memory_bytes < MEMORY_BYTES_MAX


def test_a_site_that_is_cut_off_serves_its_own(project):
    """And is found again by its neighbors once it is back in the wide-area network."""
    until(lambda: project.neighbors("a") == {"b": True, "e": True})
    network, container = f"{project.name}_wan", project.container("node-a")
    sh("docker", "network", "disconnect", network, container)
    try:
        until(lambda: project.neighbors("a") == {"b": False, "e": False})
        until(lambda: project.neighbors("b") == {"a": False, "c": True})
        body = json.dumps({"payload": {"service_ms": 5}}).encode()
        assert get(f"{project.url('a')}/requests", body)["path"] == ["a"]
        assert get(f"{project.url('b')}/requests", body)["path"] == ["b"]
    finally:
        sh("docker", "network", "connect", "--alias", "node-a", network, container)
    until(lambda: project.neighbors("a") == {"b": True, "e": True})
    until(lambda: project.neighbors("b") == {"a": True, "c": True})


def test_a_container_that_is_stopped_ends_in_order(project):
    """It finishes what runs, and exits 0 long before the engine would kill it."""
    answers = []
    body = json.dumps({"payload": {"service_ms": 3000}}).encode()
    asking = threading.Thread(
        target=lambda: answers.append(get(f"{project.url('e')}/requests", body))
    )
    asking.start()
    until(lambda: get(f"{project.url('e')}/state")["busy"] == 1)
    container = project.container("node-e")
    project.compose("stop", "node-e")
    asking.join(10)
    assert answers[0]["cluster"] == "e"
    assert json.loads(sh("docker", "inspect", container))[0]["State"]["ExitCode"] == 0
