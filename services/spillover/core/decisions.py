"""Decision records: why a request was started, kept, handed on or refused, in full.

A record holds what the decision was made from, so that it can be made again from the record alone
(`choosers` with the same arguments and draw). Records are kept in a ring of fixed size.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from spillover.model.ids import RequestId
from spillover.policy.acceptance import neighborhood_reject_probability

STARTED = "started"
KEPT = "kept"
FORWARDED = "forwarded"
REFUSED = "refused"


@dataclass(slots=True)
class Decision:
    """One decision. The tuples are by neighbor, and empty where no neighbor was asked about."""

    at_s: float
    request_id: RequestId
    outcome: str
    neighbor: int
    policy: str
    queue_length: int
    busy: int
    servers: int
    hops: int
    may_keep: bool
    accept_probability: float
    service_s: float
    draw: float
    accept: tuple[float, ...] = ()
    reject_near: tuple[float, ...] = ()
    lengths: tuple[int, ...] = ()
    reported_s: tuple[float, ...] = ()
    known: tuple[bool, ...] = ()
    eligible: tuple[bool, ...] = ()
    weights: tuple[float, ...] = ()


class DecisionLog:
    """The last `limit` decisions of one cluster."""

    __slots__ = ("_ring",)

    def __init__(self, limit: int) -> None:
        self._ring: deque[Decision] = deque(maxlen=limit)

    def __len__(self) -> int:
        return len(self._ring)

    def append(self, decision: Decision) -> None:
        self._ring.append(decision)

    def of(self, request_id: str) -> list[Decision]:
        """The decisions still held that concern one request, oldest first."""
        return [decision for decision in self._ring if decision.request_id == request_id]


def describe(decision: Decision, neighbor_ids: tuple[str, ...]) -> dict[str, Any]:
    """A decision as users read it (contract, section 4, /explain)."""
    reject = neighborhood_reject_probability(
        decision.accept_probability, decision.accept, decision.known
    )
    neighbors = [
        {
            "id": neighbor_ids[y],
            "accept_probability": decision.accept[y],
            "neighborhood_accept_probability": 1.0 - decision.reject_near[y],
            "queue_length": decision.lengths[y],
            "age_ms": (decision.at_s - decision.reported_s[y]) * 1e3 if known else None,
            "alive": known,
            "eligible": decision.eligible[y],
            "weight": decision.weights[y],
        }
        for y, known in enumerate(decision.known)
    ]
    return {
        "outcome": decision.outcome,
        "neighbor": neighbor_ids[decision.neighbor] if decision.neighbor >= 0 else None,
        "policy": decision.policy,
        "queue_length": decision.queue_length,
        "servers": decision.servers,
        "busy": decision.busy,
        "hops": decision.hops,
        "may_keep": decision.may_keep,
        "accept_probability": decision.accept_probability,
        "neighborhood_accept_probability": 1.0 - reject,
        "service_ms": decision.service_s * 1e3,
        "draw": decision.draw,
        "neighbors": neighbors,
    }
