"""The records of decisions: why a request was started, kept, handed on or refused, in full.

A record holds what the decision was made from, so that it can be made again from the record alone
(`policy.overflow.choosers` with the same arguments and draw). `history` keeps them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from spillover.core.overflow.health import WELL
from spillover.core.overflow.knowledge import Knowledge
from spillover.core.overflow.loads_told import of_choice, of_neighbor, of_shadow
from spillover.core.overflow.shadow import ShadowChoice
from spillover.model.ids import ClusterId, RequestId
from spillover.model.request import Refusal
from spillover.policy.overflow.base import (
    KEEP,
    OwnLoad,
    accept_probability,
    neighborhood_reject_probability,
)
from spillover.policy.overflow.choosers import BY_LOAD

STARTED = "started"
KEPT = "kept"
FORWARDED = "forwarded"
REFUSED = "refused"

AFFINITY = "affinity"
"""The word in place of a policy for a request that went where it costs less for its session."""

RESTING = "resting"
"""The word in place of a health for a cluster whose service has asked to be left alone for a
while."""


@dataclass(slots=True)
class Decision:
    """One decision, and what it was made from.

    `choice`, `eligible` and `weights` are by position in `knowledge`, and the latter two are empty
    where the policy was not asked: with a free server, and for what is refused whatever neighbors
    say. `objection` is why the request should not be kept here, and where it was refused, why.
    """

    at_s: float
    request_id: RequestId
    outcome: str
    choice: int
    policy: str
    queue_length: int
    busy: int
    servers: int
    hops: int
    may_keep: bool
    service_s: float
    draw: float
    knowledge: Knowledge
    objection: Refusal | None
    eligible: tuple[bool, ...] = ()
    weights: tuple[float, ...] = ()
    health: str = WELL
    """The health of this cluster: see `health`, or RESTING."""
    own: OwnLoad | None = None
    """The load of this cluster as the policy got it; None where it was not asked."""
    shadow: ShadowChoice | None = None
    """The choice of the policy that is asked along; None where none was."""
    group: str = ""
    """The group of types to which the request belongs; empty where there is one."""
    granted: Any = None
    """The grant (`pool.Granted`), where servers are unlike."""
    older_went: bool = False
    """True if an older request was handed on in place of this one, which was kept whatever the
    choice."""

    @property
    def neighbor(self) -> ClusterId | None:
        """Returns the neighbor to which the request was handed; None if to none."""
        if self.choice == KEEP or self.older_went:
            return None
        return self.knowledge.ids[self.choice]

    @property
    def goes_by_load(self) -> bool:
        """Returns whether a policy that goes by load was asked, even if only along."""
        if self.own is None:
            return False
        return self.policy in BY_LOAD or (self.shadow is not None and self.shadow.policy in BY_LOAD)

    @property
    def accept_probability(self) -> float:
        """Returns the P of the decision: 0 where the request could not be kept."""
        if not self.may_keep:
            return 0.0
        return accept_probability(self.queue_length, self.servers)


def describe(decision: Decision) -> dict[str, Any]:
    """Returns a decision as users read it (docs/http.md, /explain).

    `eligible` and `weight` are None where the policy was not asked, `age_ms` where the neighbor was
    unknown, `reason` where there was no objection to keeping the request. The fields about load are
    there if a policy was asked that goes by it, `shadow` if one was asked along, and
    `older_went_to` if an older request was handed on in place of this one.
    """
    known, loads = decision.knowledge, decision.knowledge.loads
    accept = decision.accept_probability
    reject = neighborhood_reject_probability(accept, known.accept, known.known)
    neighbors = _neighbors(decision)
    told: dict[str, Any] = {
        "outcome": decision.outcome,
        "neighbor": decision.neighbor,
        "policy": decision.policy,
        "queue_length": decision.queue_length,
        "servers": decision.servers,
        "busy": decision.busy,
        "health": decision.health,
        "hops": decision.hops,
        "may_keep": decision.may_keep,
        "reason": decision.objection,
        "accept_probability": accept,
        "neighborhood_accept_probability": 1.0 - reject,
        "service_ms": decision.service_s * 1e3,
        "draw": decision.draw,
        "neighbors": neighbors,
    }
    if decision.older_went:
        told["older_went_to"] = known.ids[decision.choice]
    if decision.group:
        told["group"] = decision.group
    if decision.granted is not None:
        told["granted"] = decision.granted.as_dict()
    if decision.own is not None and decision.goes_by_load:
        told["by_load"] = of_choice(decision.own, loads, decision.eligible, decision.draw)
        for y, row in enumerate(neighbors):
            row.update(of_neighbor(decision.own, loads, y))
    if decision.shadow is not None:
        told["shadow"] = of_shadow(decision.shadow, decision.choice, known.ids)
    return told


def _neighbors(decision: Decision) -> list[dict[str, Any]]:
    """Returns the known state of each neighbor and, where there are several groups of types,
    whether it serves this one."""
    known, loads = decision.knowledge, decision.knowledge.loads
    rows = [
        {
            "id": neighbor_id,
            "accept_probability": known.accept[y],
            "neighborhood_accept_probability": 1.0 - loads.reject_near[y],
            "queue_length": loads.queue_length[y],
            "age_ms": (decision.at_s - known.reported_s[y]) * 1e3 if known.known[y] else None,
            "delay_ms": loads.delays_s[y] * 1e3,
            "alive": known.known[y],
            "degraded": known.degraded[y],
            "eligible": decision.eligible[y] if decision.eligible else None,
            "weight": decision.weights[y] if decision.weights else None,
        }
        for y, neighbor_id in enumerate(known.ids)
    ]
    if known.serves is not None:
        for row, serves in zip(rows, known.serves, strict=True):
            row["serves"] = serves
    return rows
