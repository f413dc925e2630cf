"""What the cold routes show, as pydantic models: they check it and describe it in the OpenAPI."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from spillover import __version__
from spillover.core.decisions import describe
from spillover.live.node_shell import NodeShell


class NeighborState(BaseModel):
    """What a node believes of a neighbor, and how old that is; null before the first report."""

    id: str
    url: str | None
    accept_probability: float
    neighborhood_accept_probability: float
    queue_length: int
    age_ms: float | None
    alive: bool


class LedgerState(BaseModel):
    """The two balances: accepted = sum of the other home entries, received = of the foreign."""

    epoch: int
    home: dict[str, int]
    foreign: dict[str, int]


class NodeState(BaseModel):
    """One cluster as it is now."""

    cluster: str
    url: str | None
    servers: int
    busy: int
    queue_length: int
    accept_probability: float
    neighborhood_accept_probability: float
    policy: str
    version: str
    draining: bool
    drained: bool
    forwards: int
    """Requests handed to neighbors since the start, whatever came back."""
    neighbors: list[NeighborState]
    ledger: LedgerState


class Explanation(BaseModel):
    """The decisions taken here about one request, oldest first."""

    id: str
    cluster: str
    decisions: list[dict[str, Any]]


def node_state(shell: NodeShell, now_s: float) -> NodeState:
    """`/state` at this instant."""
    machine, topology = shell.machine, shell.topology
    urls = {n.id: n.url for n in topology.neighbors(shell.cluster.id)}
    return NodeState(
        cluster=shell.cluster.id,
        url=shell.cluster.url,
        servers=machine.settings.servers,
        busy=machine.busy,
        queue_length=machine.queue_length,
        accept_probability=machine.accept_probability,
        neighborhood_accept_probability=machine.neighborhood_accept_probability,
        policy=machine.settings.policy,
        version=__version__,
        draining=machine.draining,
        drained=machine.drained,
        forwards=shell.metrics.forwards_left,
        neighbors=[
            NeighborState(
                id=view.id,
                url=urls[view.id],
                accept_probability=view.accept_probability,
                neighborhood_accept_probability=view.neighborhood_accept_probability,
                queue_length=view.queue_length,
                age_ms=None if view.age_s is None else view.age_s * 1e3,
                alive=view.alive,
            )
            for view in machine.neighbors.view(now_s)
        ],
        ledger=LedgerState.model_validate(machine.ledger.as_dict()),
    )


def explanation(shell: NodeShell, request_id: str) -> Explanation | None:
    """None where no decision about the request is remembered."""
    decisions = shell.machine.decider.log.of(request_id)
    if not decisions:
        return None
    ids = shell.machine.neighbors.ids
    return Explanation(
        id=request_id,
        cluster=shell.cluster.id,
        decisions=[describe(decision, ids) for decision in decisions],
    )
