"""How well a cluster's own work goes, as the machine judges it: for `/state`, metrics and probes.

The one place where that is read; nothing is judged here.
"""

from __future__ import annotations

from dataclasses import dataclass

from spillover.core.neighbors import NeighborView
from spillover.core.node import NodeMachine

WELL, RECOVERING, DEGRADED = "well", "recovering", "degraded"


@dataclass(frozen=True, slots=True)
class Health:
    """`health` is WELL, RECOVERING or DEGRADED, `failed_share` of the work run here of late."""

    degraded: bool
    health: str
    failed_share: float


def health_of(machine: NodeMachine) -> Health:  # noqa: ARG001 - machines do not judge it yet
    """Of this cluster, now."""
    return Health(degraded=False, health=WELL, failed_share=0.0)


def is_degraded(neighbor: NeighborView) -> bool:  # noqa: ARG001 - reports do not say it yet
    """Whether the newest report of a neighbor says that it is."""
    return False
