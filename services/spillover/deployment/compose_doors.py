"""The profile `proxy` of a compose project: two sites in front of a service each, as users
would put Spillover there. The services stream (`spillover_lab.demo.streams.service`).

They have nothing to do with the clusters of the topology: these keep their handlers.
"""

from __future__ import annotations

import json
from itertools import pairwise
from textwrap import indent

from spillover.deployment import containers
from spillover.deployment.ports import DOORS, Ports
from spillover.model.ids import ClusterId
from spillover.model.topology import Cluster, Link, Topology

TOPOLOGY_FILE = "topology/doors.yaml"
SERVICE = "spillover_lab.demo.streams.service:app"
SERVICE_PORT = 9000
SERVERS = 4
NAMES = [f"door-{number}" for number in range(1, DOORS + 1)]


def doors_topology() -> Topology:
    """Returns what the nodes of the profile read."""
    clusters = [
        Cluster(
            id=ClusterId(name),
            servers=SERVERS,
            service_ms=2000.0,
            handler=f"proxy:http://service-{number}:{SERVICE_PORT}",
            url=f"http://{name}:{containers.API_PORT}",
            peer_url=f"http://{name}:{containers.PEER_PORT}",
            proxy_url=f"http://{name}:{containers.PROXY_PORT}",
        )
        for number, name in enumerate(NAMES, 1)
    ]
    links = [Link(between=(one.id, other.id)) for one, other in pairwise(clusters)]
    return Topology(name="doors", policy="adaptive", clusters=tuple(clusters), links=tuple(links))


def doors_text(ports: Ports) -> str:
    """Returns the services of the profile."""
    parts = []
    for number, cluster in enumerate(doors_topology().clusters, 1):
        api, proxy = ports.of("door", DOORS + number), ports.of("door", number)
        command = containers.node_command(cluster, testbed=True, tls=False)
        volume = f"./{TOPOLOGY_FILE}:{containers.TOPOLOGY_PATH}:ro"
        published = [
            f"127.0.0.1:${{DOOR_{number}_API_PORT:-{api}}}:{containers.API_PORT}",
            f"127.0.0.1:${{DOOR_{number}_PORT:-{proxy}}}:{containers.PROXY_PORT}",
        ]
        serve = ["-m", "uvicorn", SERVICE, "--host", "0.0.0.0", "--port", str(SERVICE_PORT)]  # noqa: S104 - of the container
        parts.append(f"""\
{cluster.id}:
  <<: *spillover
  profiles: [proxy]
  command: {json.dumps(command)}
  depends_on: [service-{number}]
  volumes: {json.dumps([volume])}
  networks: [wan, watch]
  ports: {json.dumps(published)}
  cpus: 1.0
  mem_limit: 256m

service-{number}:
  <<: *spillover
  profiles: [proxy]
  entrypoint: [python]
  command: {json.dumps(serve)}
  networks: [wan]
  healthcheck: {{disable: true}}
  cpus: 1.0
  mem_limit: 256m
""")
    return indent("\n".join(parts), "  ")
