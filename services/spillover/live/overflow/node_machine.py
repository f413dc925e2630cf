"""The machine of one node: what its topology says of it, on this computer and in this life."""

from __future__ import annotations

import time
from dataclasses import replace
from random import Random

from spillover.core.overflow.confirming import ConfirmingMachine
from spillover.core.overflow.machine import NodeMachine
from spillover.core.overflow.settings import NodeSettings
from spillover.live.process.memory_limit import default_held_limit_bytes
from spillover.model.ids import ClusterId
from spillover.model.topology import NODES_MAX, Topology


def make_machine(
    topology: Topology,
    cluster: ClusterId,
    number: int,
    random: Random,
    now_s: float,
    *,
    processes: int,
    confirms: bool,
) -> NodeMachine:
    """Returns the machine of this node of a cluster, which may be one of several processes of one
    node. With `confirms` the machine asks about each request before that counts as accepted."""
    settings = NodeSettings.of(topology, cluster, node=number, epoch=epoch_of(number))
    own_bytes = (topology.cluster(cluster).at(number).held_part_bytes or 0) // processes
    nodes = max(settings.nodes, processes)
    settings = replace(
        settings,
        held_limit_bytes=own_bytes or default_held_limit_bytes(processes),
        nodes=nodes,
        affinity=settings.affinity and nodes == 1,  # others send to the same services
    )
    ways = [(one.id, one.delay_ms / 1e3) for one in topology.neighbors(cluster, number)]
    make = ConfirmingMachine if confirms else NodeMachine
    machine = make(settings, ways, random, now_s)
    machine.spares_node = True
    return machine


def epoch_of(number: int) -> int:
    """Returns the epoch of a life that begins now. Later lives have higher epochs, and no two nodes
    of a cluster have the same: so no two stamps of configurations are the same either."""
    return time.time_ns() // 1_000_000 // NODES_MAX * NODES_MAX + number - 1
