"""A topology as a compose project: one container a node, and what stands beside them.

The file works with compose v2 and with docker-compose 1.29, so it has no `version:`, no `name:`,
no `configs:` and no long ports. What Prometheus and Grafana read is in `monitoring`; delays by the
kernel are an overlay in `compose_netem`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from textwrap import indent

from spillover.deployment import containers
from spillover.deployment.compose_doors import TOPOLOGY_FILE, doors_text, doors_topology
from spillover.deployment.compose_netem import netem_text
from spillover.deployment.containers import ContainerNode
from spillover.deployment.monitoring import GRAFANA_FILES, PROMETHEUS_CA_PATH, prometheus_text
from spillover.deployment.ports import (
    LEASE_MEMBERS,
    PRODUCERS,
    Ports,
    lease_name,
    producer_name,
)
from spillover.inputs.yaml_text import quoted
from spillover.model.topology import Topology

KIND = "compose"
CERTIFICATES = "certificates"
"""The directory of `spillover tls init`, beside the compose file."""
CA_PATH = f"{containers.TLS_PATH}/{containers.TLS_FILES['ca']}"
STOP_GRACE_S = containers.DRAIN_TIMEOUT_S + containers.DRAIN_SPARE_S


@dataclass(frozen=True, slots=True, kw_only=True)
class ComposeSettings:
    """The user's choices for a compose file. Paths are as seen from there."""

    ports: Ports
    image: str = containers.IMAGE
    build: str | None = None
    """The checkout that the image is built from and whose dashboards are shown. None: the image is
    there already, and Grafana has no dashboards."""
    code: str | None = None
    """The directory with the modules of python handlers."""
    cpus: float = containers.CPUS
    memory_mb: int = containers.MEMORY_MB
    tls: bool = False
    """True where nodes have certificates: those of `CERTIFICATES`, for the hosts of `inside`."""


def inside(topology: Topology, *, tls: bool) -> Topology:
    """Returns the topology as the nodes read it."""
    scheme = containers.scheme(tls=tls)
    return containers.in_containers(
        topology, partial(public_url, scheme=scheme), partial(peer_url, scheme=scheme)
    )


def compose_files(topology: Topology, settings: ComposeSettings) -> dict[str, str]:
    """Returns all files of the project but the compose file, by path beside it; that one is
    `compose_text`."""
    read = inside(topology, tls=settings.tls)
    return {
        "compose.netem.yaml": netem_text(topology, settings.build),
        "topology/topology.yaml": containers.topology_text(KIND, read),
        TOPOLOGY_FILE: containers.topology_text(KIND, doors_topology()),
        "topology/netem.yaml": containers.topology_text(KIND, containers.without_delays(read)),
        "prometheus/prometheus.yml": prometheus_text(
            KIND, topology, has_rules=settings.build is not None, tls=settings.tls
        ),
        **{name: containers.heading(KIND, topology) + text for name, text in GRAFANA_FILES.items()},
    }


def compose_text(topology: Topology, settings: ComposeSettings) -> str:
    """Returns the compose file."""
    first, *others = containers.nodes_of(*topology.clusters)
    parts = [
        containers.heading(KIND, topology) + _INTRODUCTION,
        _COMMON.format(image=_quoted(settings.image), grace_s=STOP_GRACE_S),
        "services:\n",
        _node(first, settings, build=_build(topology, settings)),
        *(_node(node, settings) for node in others),
        _REDIS.format(port=settings.ports.redis),
        *(_lease_member(n, settings) for n in range(1, LEASE_MEMBERS + 1)),
        *(_producer(n, settings) for n in range(1, PRODUCERS + 1)),
        doors_text(settings.ports),
        _load(topology, settings),
        _prometheus(topology, settings),
        _grafana(settings),
        _networks(topology),
        _VOLUMES,
    ]
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def public_url(node: ContainerNode, port: int, scheme: str) -> str:
    """Returns where clients in containers reach this node."""
    return f"{scheme}://node-{node.label}:{port}"


def peer_url(node: ContainerNode, scheme: str) -> str:
    """Returns where neighbors reach it."""
    return f"{scheme}://node-{node.label}:{containers.PEER_PORT}"


_INTRODUCTION = """\
#
#   docker compose up --wait                          the clusters, Redis, Prometheus and Grafana
#   docker compose --profile load up -d               bursts of users too, over and over
#   docker compose run --rm load                      once, with its result
#   docker compose --profile leases up -d             members that share partitions over Redis
#   docker compose --profile queue up -d              producers of the distributed queue
#   docker compose --profile proxy up -d              two sites in front of services that stream
#   docker compose -f compose.yaml -f compose.netem.yaml up -d    links delayed by the kernel
#
# Works with compose v2 and docker-compose 1.29. Everything is published on 127.0.0.1 only. A port
# that is in use is changed by a variable, such as PROMETHEUS_PORT=9091, here or in a file .env.
# What is not needed, or cannot be pulled, is left out by naming the services to start.
"""

_COMMON = """\
x-spillover: &spillover
  image: {image}
  restart: unless-stopped
  read_only: true
  tmpfs: [/tmp]
  cap_drop: [ALL]
  security_opt: ["no-new-privileges:true"]
  logging: {{driver: json-file, options: {{max-size: 10m, max-file: "3"}}}}
  # Longer than a node drains.
  stop_grace_period: {grace_s}s
  healthcheck: &healthcheck
    test: [CMD, python, -IS, /opt/healthcheck.py]
    interval: 10s
    timeout: 3s
    retries: 3
    start_period: 20s
"""

_REDIS = """\
  # For leases; the clusters need none.
  redis:
    image: redis:7-bookworm
    command: [redis-server, --save, "", --appendonly, "no"]
    restart: unless-stopped
    networks: [wan]
    ports: ["127.0.0.1:${{REDIS_PORT:-{port}}}:6379"]
    cpus: 1.0
    mem_limit: 256m
    healthcheck: {{<<: *healthcheck, test: [CMD, redis-cli, ping]}}
"""


def certified(topology: Topology, source: str) -> Topology:
    """Returns what certificates are made for, lease members and producers included. Raises
    InputError as `containers.with_others`."""
    names = [lease_name(number) for number in range(1, LEASE_MEMBERS + 1)]
    names += [producer_name(number) for number in range(1, PRODUCERS + 1)]
    urls = {name: f"https://{name}:{containers.API_PORT}" for name in names}
    return containers.with_others(inside(topology, tls=True), source, urls)


_USER = 'user: "${SPILLOVER_USER:-10001:10001}" # that may read the keys\n'


def _volume_of(name: str) -> str:
    """The files of its certificate."""
    return f"./{CERTIFICATES}/{name}:{containers.TLS_PATH}:ro"


def _node(node: ContainerNode, settings: ComposeSettings, build: str | None = None) -> str:
    """One image for all: it is built along with the first one."""
    cluster = node.cluster
    building = "" if build is None else f"build: {build}\n"
    volumes = [f"./topology/topology.yaml:{containers.TOPOLOGY_PATH}:ro"]
    if settings.tls:
        volumes.append(_volume_of(cluster.id))
        building += _USER
    if settings.code is not None:
        volumes.append(f"{settings.code}:{containers.CODE_PATH}:ro")
    suffix = node.label.replace("-", "_").upper()
    port = settings.ports.clusters[node.name]
    published = [f"127.0.0.1:${{SPILLOVER_PORT_{suffix}:-{port}}}:{containers.API_PORT}"]
    if cluster.passes:
        door = f"${{SPILLOVER_PROXY_PORT_{suffix}:-{settings.ports.proxies[node.name]}}}"
        published.append(f"127.0.0.1:{door}:{containers.PROXY_PORT}")
    memory_mb = containers.memory_mb(cluster, settings.memory_mb)
    number, tls = str(node.number), settings.tls
    command = containers.node_command(cluster, number, testbed=True, tls=tls)
    body = f"""\
node-{node.label}:
  <<: *spillover
{indent(building, "  ")}\
  command: {_listed(command)}
  volumes: {_listed(volumes)}
  networks: [wan, site-{cluster.id}]
  ports: {json.dumps(published)}
  cpus: {settings.cpus:g}
  mem_limit: {memory_mb}m
"""
    return indent(body, "  ")


def _lease_member(number: int, settings: ComposeSettings) -> str:
    """A tenth of the usual times, so that there is something to see."""
    name = lease_name(number)
    times = {"normal-lease": 6_000, "max-lease": 18_000, "max-shutdown": 1_000}
    times |= {"min-grab": 500, "held-delay": 10}
    command = ["lease", "run", "--redis", "redis://redis:6379/0", "--group", "testbed"]
    command += ["--node", name, "--partitions", "32"]
    command += ["--handler", "python:spillover.live.leases.streams.example:consume_async"]
    command += [word for key, ms in times.items() for word in (f"--{key}-ms", str(ms))]
    command += ["--bind", containers.bind(containers.API_PORT)]
    secure = ""
    if settings.tls:
        command += containers.tls_options(files=["cert", "key"])
        secure = f"{_USER}volumes: {_listed([_volume_of(name)])}\n"
    publish = f"127.0.0.1:${{LEASE_{number}_PORT:-{settings.ports.of('lease member', number)}}}"
    body = f"""\
{name}:
  <<: *spillover
  profiles: [leases]
  command: {_listed(command)}
  depends_on: {{redis: {{condition: service_healthy}}}}
{indent(secure, "  ")}\
  networks: [wan, watch]
  ports: ["{publish}:{containers.API_PORT}"]
  cpus: 1.0
  mem_limit: 256m
"""
    return indent(body, "  ")


def _producer(number: int, settings: ComposeSettings) -> str:
    """One of the distributed queue: its objects are on a volume, and outlive the container."""
    name, scheme = producer_name(number), containers.scheme(tls=settings.tls)
    command = ["queue", "--id", name, "--bind", containers.bind(containers.API_PORT)]
    for peer in range(1, PRODUCERS + 1):
        other = producer_name(peer)
        command += ["--peer", f"{other}={scheme}://{other}:{containers.API_PORT}"]
    command += ["--buffers", "100", "--store", f"{containers.STORE_PATH}/objects"]
    volumes, user = [f"{name}:{containers.STORE_PATH}"], ""
    if settings.tls:
        command += containers.tls_options()
        volumes.append(_volume_of(name))
        user = _USER
    publish = f"127.0.0.1:${{QUEUE_{number}_PORT:-{settings.ports.of('producer', number)}}}"
    body = f"""\
{name}:
  <<: *spillover
  profiles: [queue]
{indent(user, "  ")}\
  command: {_listed(command)}
  volumes: {_listed(volumes)}
  networks: [wan, watch]
  ports: ["{publish}:{containers.API_PORT}"]
  cpus: 1.0
  mem_limit: 512m
"""
    return indent(body, "  ")


_VOLUMES = "\n".join(
    ["volumes:", *(f"  queue-{number}: {{}}" for number in range(1, PRODUCERS + 1))]
)


def _load(topology: Topology, settings: ComposeSettings) -> str:
    """Users of all sites, each with their own, at the first node of it."""
    scheme = containers.scheme(tls=settings.tls)
    port = containers.API_PORT
    nodes = list(containers.nodes_of(*topology.clusters))
    first = [node for node in nodes if node.number == 1]
    targets = [f"--target={one.cluster.id}={public_url(one, port, scheme)}" for one in first]
    believing, mounted = "", list[str]()
    if settings.tls:
        believing = f"volumes: {_listed([f'./{CERTIFICATES}/ca.crt:{CA_PATH}:ro'])}\n"
        mounted = ["--ca-file", CA_PATH]
    waits = "".join(f"\n    node-{node.label}: {{condition: service_healthy}}" for node in nodes)
    body = f"""\
load:
  <<: *spillover
  profiles: [load]
  entrypoint: [spillover-loadgen]
  command: {_listed(["run", *targets, "--workload", "bursts", "--seed", "1", *mounted])}
  depends_on:{waits}
{indent(believing, "  ")}\
  networks: {_sites(topology)}
  healthcheck: {{disable: true}}
  stop_grace_period: 10s
  cpus: 1.0
  mem_limit: 512m
"""
    return indent(body, "  ")


def _prometheus(topology: Topology, settings: ComposeSettings) -> str:
    """It watches each site from within: what is cut off from the others stays in sight."""
    volumes = ["./prometheus/prometheus.yml:/etc/prometheus/prometheus.yml:ro"]
    if settings.build is not None:
        volumes.append(f"{settings.build}/dashboards/alerts.yaml:/etc/prometheus/alerts.yaml:ro")
    if settings.tls:
        volumes.append(f"./{CERTIFICATES}/ca.crt:{PROMETHEUS_CA_PATH}:ro")
    command = ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"]
    command += ["--storage.tsdb.retention.time=1d", "--storage.tsdb.retention.size=512MB"]
    probe = "http://127.0.0.1:9090/-/ready"
    body = f"""\
prometheus:
  image: prom/prometheus:v2.53.3
  command: {_listed(command)}
  restart: unless-stopped
  volumes: {_listed(volumes)}
  networks: {_sites(topology, "watch")}
  ports: ["127.0.0.1:${{PROMETHEUS_PORT:-{settings.ports.prometheus}}}:9090"]
  cpus: 1.0
  mem_limit: 512m
  healthcheck: {{<<: *healthcheck, test: [CMD, wget, -q, --spider, "{probe}"]}}
"""
    return indent(body, "  ")


def _grafana(settings: ComposeSettings) -> str:
    """Anybody on this machine may look, nobody may change."""
    etc = "/etc/grafana/provisioning"
    volumes = [
        f"./grafana/datasources.yaml:{etc}/datasources/spillover.yaml:ro",
        f"./grafana/dashboards.yaml:{etc}/dashboards/spillover.yaml:ro",
    ]
    if settings.build is not None:
        volumes.append(f"{settings.build}/dashboards/grafana:/var/lib/grafana/dashboards:ro")
    body = f"""\
grafana:
  image: grafana/grafana:11.6.0
  restart: unless-stopped
  environment:
    GF_ANALYTICS_CHECK_FOR_UPDATES: "false"
    GF_ANALYTICS_REPORTING_ENABLED: "false"
    GF_AUTH_ANONYMOUS_ENABLED: "true"
    GF_AUTH_ANONYMOUS_ORG_ROLE: Viewer
    GF_AUTH_DISABLE_LOGIN_FORM: "true"
  volumes: {_listed(volumes)}
  networks: [watch]
  ports: ["127.0.0.1:${{GRAFANA_PORT:-{settings.ports.grafana}}}:3000"]
  cpus: 1.0
  mem_limit: 512m
  healthcheck: {{<<: *healthcheck, test: [CMD, wget, -q, --spider, "http://127.0.0.1:3000/api/health"]}}
"""
    return indent(body, "  ")


def _networks(topology: Topology) -> str:
    lines = ["# The wide-area network, the sites, and a network of those who only look on."]
    lines += ["networks:", "  wan: {}"]
    lines += [f"  site-{cluster}: {{}}" for cluster in topology.cluster_ids]
    return "\n".join([*lines, "  watch: {}"])


def _sites(topology: Topology, *others: str) -> str:
    names = [f"site-{cluster}" for cluster in topology.cluster_ids] + list(others)
    return f"[{', '.join(names)}]"


def _build(topology: Topology, settings: ComposeSettings) -> str | None:
    """How the image is built. What it has anyway is not said."""
    if settings.build is None:
        return None
    extras = containers.extras(topology, tls=settings.tls)
    told = "" if extras == containers.EXTRAS else f", args: {{EXTRAS: {_quoted(' '.join(extras))}}}"
    return f"{{context: {_quoted(settings.build)}, dockerfile: deploy/Dockerfile{told}}}"


def _listed(words: Sequence[str]) -> str:
    return f"[{', '.join(map(_quoted, words))}]"


def _quoted(text: str) -> str:
    """Text for YAML; compose would replace what begins with a dollar."""
    return quoted(text.replace("$", "$$"))
