"""The compose testbed of deploy/ as it stands, under a name and at ports of its own: how tests
start it, look at it, and do it harm. No test lives here, and no verdict.

The class of testcontainers starts it and takes it down; everything it cannot do (time limits,
faults, networks) is asked of the engine's own command.
"""

import json
import socket
import subprocess
import time
import urllib.request
import uuid
from pathlib import Path

from testcontainers.compose import DockerCompose

from support import waiting

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
IMAGE = "spillover:local"
CLUSTERS = "abcde"
NODES = tuple(f"node-{cluster}" for cluster in CLUSTERS)
MEMBERS = ("lease-1", "lease-2", "lease-3")
STARTED = [*NODES, "redis", "prometheus"]
"""Not Grafana: it has no part in any test, and no machine without a registry has it."""

COMMAND_S = 60.0
BUILD_S = 600.0
LOOK_S = 0.1

OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def sh(*command, limit_s=COMMAND_S):
    """What the command prints; an error with what it says where it fails."""
    ended = subprocess.run(
        [str(word) for word in command],
        check=False,
        capture_output=True,
        text=True,
        timeout=limit_s,
    )
    assert ended.returncode == 0, f"{command}: {ended.stderr or ended.stdout}"
    return ended.stdout


def get(url, body=None, limit_s=10.0):
    """The JSON answer."""
    with OPENER.open(url, body, timeout=limit_s) as answer:
        return json.load(answer)


def until(condition, limit_s=30.0, what=""):
    """How long it took until that was so."""
    began_s = time.monotonic()
    waiting.until(condition, limit_s, what, every_s=LOOK_S)
    return time.monotonic() - began_s


def tell(line):
    """What was measured, for whoever runs this with -s."""
    print(f"\n  containers: {line}", flush=True)  # noqa: T201


def build_image():
    """From this checkout; in a second where nothing has changed."""
    sh("docker", "build", "-q", "-t", IMAGE, "-f", DEPLOY / "Dockerfile", ROOT, limit_s=BUILD_S)


def free_ports(count):
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in held]
    for server in held:
        server.close()
    return ports


class Bed(DockerCompose):
    """`with Bed(directory) as bed`: up and healthy; taken down whatever happens. `healthy_s` says
    how long it took."""

    def __init__(self, directory):
        self.name = f"spillover-test-{uuid.uuid4().hex[:8]}"
        names = [f"SPILLOVER_PORT_{cluster.upper()}" for cluster in CLUSTERS]
        names += [f"LEASE_{number}_PORT" for number in range(1, len(MEMBERS) + 1)]
        names += ["PROMETHEUS_PORT", "REDIS_PORT"]
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))
        lines = [f"{name}={port}\n" for name, port in self.ports.items()]
        environment = Path(directory) / "env"
        environment.write_text("".join([f"COMPOSE_PROJECT_NAME={self.name}\n", *lines]))
        file = str(DEPLOY / "compose.yaml")
        super().__init__(DEPLOY, file, env_file=str(environment), services=STARTED)
        self._ids = {}

    def start(self):
        began_s = time.monotonic()
        super().start()
        self.healthy_s = time.monotonic() - began_s

    def stop(self, down=True):  # noqa: ARG002 - testcontainers calls it so
        """Everything, also profiles that were started later."""
        self.compose("--profile", "leases", "down", "--volumes", "--timeout", "5")

    def compose(self, *arguments):
        return sh(*self.compose_command_property, *arguments)

    # --- looking ------------------------------------------------------------------------------

    @property
    def urls(self):
        """Of the clusters, as seen from this machine."""
        return {
            c: f"http://127.0.0.1:{self.ports[f'SPILLOVER_PORT_{c.upper()}']}" for c in CLUSTERS
        }

    @property
    def member_urls(self):
        """Of the lease members."""
        numbers = range(1, len(MEMBERS) + 1)
        urls = (f"http://127.0.0.1:{self.ports[f'LEASE_{number}_PORT']}" for number in numbers)
        return dict(zip(MEMBERS, urls, strict=True))

    @property
    def prometheus_url(self):
        return f"http://127.0.0.1:{self.ports['PROMETHEUS_PORT']}"

    def container(self, service):
        """Its id; asked for by label, since names differ between versions of compose."""
        if service not in self._ids:
            label = f"label=com.docker.compose.service={service}"
            (self._ids[service],) = self.containers("--filter", label)
        return self._ids[service]

    def containers(self, *filters):
        label = f"label=com.docker.compose.project={self.name}"
        return sh("docker", "ps", "-aq", "--no-trunc", "--filter", label, *filters).split()

    def inspect(self, service):
        return json.loads(sh("docker", "inspect", self.container(service)))[0]

    def state(self, cluster):
        return get(f"{self.urls[cluster]}/state")

    def neighbors(self, cluster):
        """Whether each is alive, as the cluster sees it."""
        return {each["id"]: each["alive"] for each in self.state(cluster)["neighbors"]}

    def is_well(self):
        """Every cluster is ready and sees all its neighbors."""
        try:
            return all(all(self.neighbors(cluster).values()) for cluster in CLUSTERS)
        except OSError:
            return False

    # --- harm ---------------------------------------------------------------------------------

    def cut(self, service):
        """Off the wide-area network; its site's own stays, with what is published."""
        sh("docker", "network", "disconnect", f"{self.name}_wan", self.container(service))

    def join(self, service):
        """Back in the wide-area network, under its name there, at another address maybe."""
        alias = ("--alias", service)
        sh("docker", "network", "connect", *alias, f"{self.name}_wan", self.container(service))

    def start_again(self, service):
        sh("docker", "start", self.container(service))
