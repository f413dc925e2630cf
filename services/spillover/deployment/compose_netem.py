"""The overlay that lets the kernel delay the links, instead of the nodes themselves.

Beside each node runs a container in the node's own network, which may change that network and
nothing else; deploy/netem/ is what it runs. Only where the kernel has netem.
"""

from __future__ import annotations

import json

from spillover.deployment.containers import TOPOLOGY_PATH, heading, nodes_of
from spillover.inputs.yaml_text import quoted
from spillover.model.topology import Topology

IMAGE = "spillover-netem:local"

_INTRODUCTION = """\
#
#   docker compose -f compose.yaml -f compose.netem.yaml up -d
#
# The nodes run without delays of their own; netem delays what leaves them, for each neighbor by as
# much as the link says. It needs the kernel module sch_netem. A node that was restarted has a new
# network: restart its netem too.
#
# The policy two-choice reckons with the delays in the topology file, which here are none.

services:
"""


def netem_text(topology: Topology, build: str | None) -> str:
    """Returns the overlay; `build` is the checkout that the image is built from, if it is to be
    built."""
    parts = [heading("compose", topology) + _INTRODUCTION]
    for index, node in enumerate(nodes_of(*topology.clusters)):
        volume = f"./topology/netem.yaml:{TOPOLOGY_PATH}:ro"
        parts.append(f"  node-{node.label}:\n    volumes: [{json.dumps(volume)}]\n")
        delays = [
            f"node-{there.label}={neighbor.delay_ms:g}"
            for neighbor in topology.neighbors(node.cluster.id)
            for there in nodes_of(topology.cluster(neighbor.id))
        ]
        if delays:
            parts.append(_sidecar(node.label, delays, build if index == 0 else None))
    return "".join(parts)


def _sidecar(label: str, delays: list[str], build: str | None) -> str:
    building = ""
    if build is not None:
        context = quoted(f"{build}/deploy/netem".replace("$", "$$"))
        building = f"    build: {context}\n"
    return f"""\
  netem-{label}:
    image: {IMAGE}
{building}\
    command: {json.dumps(delays)}
    depends_on: [node-{label}]
    network_mode: "service:node-{label}"
    cap_drop: [ALL]
    cap_add: [NET_ADMIN]
    restart: "no"
    healthcheck: {{disable: true}}
"""
