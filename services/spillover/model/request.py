"""A request as the clusters see it, and the answer that travels back. `work` is carried, never
looked into. What a payload means is not known here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from spillover.model.affinity import RanAt, SessionWork
from spillover.model.causes import Cause
from spillover.model.ids import ClusterId, RequestId
from spillover.model.load import LoadNow
from spillover.model.trace_context import TraceContext

NAME_LENGTH_MAX = 200
TYPE_LENGTH_MAX = 100
KIND_LENGTH_MAX = 100


class Outcome(StrEnum):
    """How an accepted request ended."""

    DONE = "done"
    FAILED = "failed"
    REJECTED = "rejected"
    """The handler refused this request as its client's fault; the ledger says failed."""
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"
    """The request was handed on without a key, and it may have run or not; the ledger says
    failed."""


DONE, FAILED = Outcome.DONE, Outcome.FAILED
"""These members are bound once, for code on the way of every request: Python 3.11 takes longer to
look a member up on its enum than to compare it or to count it."""

REPLAYED = frozenset({Outcome.DONE, Outcome.CANCELLED, Outcome.REJECTED})
"""After these ends a repeat of the request gets the same answer. After any other it runs again."""


class Refusal(StrEnum):
    """The reason for which a cluster does not accept a request: it surely was and will not be run
    there."""

    QUEUE_FULL = "queue_full"
    MEMORY_FULL = "memory_full"
    """The cluster would hold more bytes than it may with this request."""
    TOO_LARGE = "too_large"
    """The cluster would hold more bytes than it may even if this were its only request."""
    DRAINING = "draining"
    NO_SERVERS = "no_servers"
    """The service here is gone for now, and no neighbor takes the request."""
    DEGRADED = "degraded"
    """Work fails here, or the service asks to be left alone; a neighbor's request is not for such a
    cluster."""
    TOO_LATE = "too_late"
    """The request would wait in the queue beyond its deadline."""
    BLOCKED = "blocked"
    """No token that the request may take is free, and requests of the cluster do not wait for
    one."""
    RATE_LIMITED = "rate_limited"
    """The tenant of the request uses as much as it may."""
    UNKNOWN_TYPE = "unknown_type"
    """Neither this cluster nor a neighbor serves the type of the request."""


@dataclass(slots=True)
class Request:
    """One request. `path` lists the clusters that it was at before this one, its home first."""

    id: RequestId
    keyed: bool
    work: Any
    path: tuple[ClusterId, ...] = ()
    type: str = "default"
    priority: int = 0
    trace: TraceContext | None = None
    size_bytes: int = field(default=0, compare=False)
    """The memory that it takes here, in bytes; 0 in simulations."""
    kind: str = field(default="", compare=False)
    """A finer kind than the type, where it is known here: the method and the beginning of the
    path."""
    asked: SessionWork | None = field(default=None, compare=False)
    """What affinity goes by at its home; None elsewhere, and where there is none."""

    features: tuple[float, ...] | None = field(default=None, compare=False)
    """What it says of its size, where the cluster that has it counts work; None where nothing is
    asked, or it says nothing that can be read."""
    measure: int = field(default=0, compare=False)
    """Which of the cluster's sources they were read by: bytes and tokens are not alike."""

    @property
    def hops(self) -> int:
        return len(self.path)

    def onward(self, cluster: ClusterId) -> Request:
        onward = Request(
            self.id,
            self.keyed,
            self.work,
            (*self.path, cluster),
            self.type,
            self.priority,
            self.trace,
            self.size_bytes,
            self.kind,
        )
        if self.features is not None:  # which do not travel: a node reads them of what does
            onward.features, onward.measure = self.features, self.measure
        return onward


def is_name(text: str, length_max: int) -> bool:
    """Returns whether this can be a request's id or type: it must fit into a header, which drops
    blanks at its ends, and into a path, where . and .. mean something else.
    """
    fits = 0 < len(text) <= length_max and text.isprintable() and text == text.strip()
    return fits and text not in (".", "..")


@dataclass(slots=True)
class Answer:
    """The one answer to a request, as seen by the holder that gives it.

    The durations sum up all that happened from receipt at this holder on: waits in queues, the
    one-way legs of forwards with the delivery to the server, the service, and (apart) the legs
    on the way back. `path` ends with the cluster that answered.
    """

    outcome: Outcome
    path: tuple[ClusterId, ...]
    result: Any = None
    problem: str | None = None
    queued_s: float = 0.0
    network_s: float = 0.0
    service_s: float = 0.0
    return_s: float = 0.0
    upstream_status: int | None = None
    """The status of the service behind the handler, where there is one and it said no."""
    upstream_body: Any = None
    """The rest of that answer, as JSON, bounded by its reader."""
    retry_after_s: float | None = None
    """The seconds after which that service said that trying again may help."""
    cause: Cause | None = field(default=None, compare=False)
    """The cause for which it was not done, where the node that answers knows: see
    `model.causes`."""
    has_not_run: bool = field(default=False, compare=False)
    """The deadline has passed, and the work was surely not begun anywhere."""
    upstream: str | None = field(default=None, compare=False)
    """The name of the service that ran it, where that was behind this node."""
    load: LoadNow | None = field(default=None, compare=False)
    """The load of the cluster that hands the answer back, for the one that gets it next."""
    ran: RanAt | None = field(default=None, compare=False)
    """Where it ran at the cluster at the end of the path, where that has affinity."""

    @property
    def total_s(self) -> float:
        """Returns the system time from receipt at this holder; the way back is not in it."""
        return self.queued_s + self.network_s + self.service_s
