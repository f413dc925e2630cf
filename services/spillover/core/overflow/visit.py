"""One visit of a request to one cluster, from arrival to answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from spillover.core.affinity.sites import Expected
from spillover.core.overflow.events import ResponseBegan, ServiceEnded, SoFar
from spillover.core.overflow.neighbor import Neighbor
from spillover.model.causes import Cause
from spillover.model.ids import ClusterId
from spillover.model.request import DONE, Answer, Outcome, Request
from spillover.policy.backoff import backoff_s

if TYPE_CHECKING:
    from spillover.core.overflow.groups import Group


AGAIN_FIRST_S = 0.1
AGAIN_LONGEST_S = 5.0
"""The longest pause, in seconds, before a request is given again to a neighbor that was lost with
it: each time it may run once more. Without pauses it would be given again with each report of that
neighbor."""


class VisitState(StrEnum):
    """Where the request is now, as seen from here. The names are those of the ledger.

    ARRIVED lasts only while an event is handled: on its way in, or back from a neighbor.
    """

    ARRIVED = "arrived"
    QUEUED = "queued"
    RUNNING = "running"
    AWAY = "away"


ARRIVED, QUEUED = VisitState.ARRIVED, VisitState.QUEUED
RUNNING, AWAY = VisitState.RUNNING, VisitState.AWAY
"""The two states that are compared most, bound once as in `model.request`."""


@dataclass(slots=True, eq=False)
class Visit:
    """The machine's knowledge of one visit. Durations add up over decisions taken again."""

    ref: int
    request: Request
    origin: int
    is_home: bool
    """True if the visit came from a client of this cluster, and not from a neighbor."""
    deadline_s: float
    came_s: float
    group: Group = field(init=False)
    """The group to which the request's type belongs. The machine sets it."""
    target: Neighbor = field(init=False)
    """The neighbor to which the visit is away, or last was; it is not set before."""
    missed: bool = field(init=False)
    """True if the answer is late at the neighbor, or will not come, and that counts against it
    already."""
    promised: bool = field(init=False)
    """True if the neighbor had told of an idle server for the visit when it left."""
    state: VisitState = ARRIVED
    since_s: float = 0.0
    """The time when the present state began; 0 before the first one."""
    queued_s: float = 0.0
    network_s: float = 0.0
    work_s: float = 0.0
    """The time, in seconds, for which it is expected to run, where that is counted; 0 until it is
    first asked."""
    place: Any = None
    """The place in which it waits, in the terms of its pool; None while it does not."""
    pulled: bool = False
    """True if this cluster has asked for the visit."""
    tried: tuple[int, ...] = ()
    """The handles of neighbors that refused or lost it and are not asked again during this
    visit."""
    losses: int = 0
    """The number of times that it was lost while it was away: it may have run there each time."""
    again_s: dict[int, float] = field(default_factory=dict)
    """The times from which on it is offered again to neighbors that have lost it, by handle."""
    may_have_run: bool = False
    """True if the service here was lost with it, and it may run twice."""
    undone: str | None = None
    """The reason why it surely was not run when it was last tried here."""
    undone_by: Cause | None = None
    """The cause of that, for logs and metrics."""
    refused_on: tuple[int, ...] = ()
    """The servers that did not run it, by the pool's numbers, where servers are unlike."""
    refused_by_all: bool = False
    """True if all servers that could run it have said that they surely did not."""
    refused_with: int | None = None
    """The status of an answer by which the service here has refused it, and which is held back."""
    refused_there: tuple[ClusterId, int] | None = None
    """A neighbor whose service has refused it, and the status of that refusal."""
    expected: Expected | None = None
    """The place where it is expected to run, if it is away for the sake of that place."""
    answering: bool = False
    """True if its answer has begun to pass: it runs or is away, and nothing is decided about it."""
    cancelling: bool = False
    """True if it is to be cancelled where it is: whatever comes back, it is not placed again."""

    @property
    def is_new(self) -> bool:
        """Returns whether it is not accepted yet, so that it may still be refused."""
        return self.state is ARRIVED and not self.tried

    def was_lost(self, now_s: float) -> None:
        """Note that no answer will come from where it was, though it may have run there. The pause
        grows with each time that it may have run anywhere, and is that neighbor's alone."""
        pause_s = backoff_s(self.losses, AGAIN_FIRST_S, AGAIN_LONGEST_S, 0.0)
        self.again_s[self.target.handle] = now_s + pause_s
        self.losses += 1

    def why_late(self, *, stranded: bool) -> str | None:
        """Returns why it was not done before its deadline; None where that is not known. `stranded`
        says that it waited at a cluster that has no servers now."""
        if self.undone is not None:
            return f"the deadline passed; when it was last tried here, {self.undone}"
        if self.refused_there is not None:
            cluster, status = self.refused_there
            return f"the deadline passed; the service behind cluster {cluster} answered {status}"
        if stranded:
            return "the deadline passed; nothing behind this cluster can run requests for now"
        return None

    def why_expired(self, *, stranded: bool) -> Cause:
        """Returns the cause to which it lost its time, at its deadline. `stranded` is as above."""
        if self.state is AWAY:
            return Cause.NEIGHBOR
        if self.state is RUNNING:
            return Cause.TIMEOUT
        if self.undone is not None:
            return self.undone_by or Cause.CONNECTION
        if self.refused_there is not None:
            return Cause.UPSTREAM_STATUS
        return Cause.CONNECTION if stranded else Cause.QUEUE

    @property
    def service_said(self) -> int | None:
        """Returns the status by which a service has refused it, here or at a neighbor."""
        if self.refused_with is None and self.refused_there is not None:
            return self.refused_there[1]
        return self.refused_with

    def answer(self, outcome: Outcome, path_end: ClusterId, problem: str | None = None) -> Answer:
        """Returns an answer given here, with the costs of the visit so far."""
        path = (*self.request.path, path_end)
        return Answer(outcome, path, None, problem, self.queued_s, self.network_s)

    def so_far(self, event: ResponseBegan, path_end: ClusterId) -> SoFar:
        """Returns what the visit took until its answer began, here or at a neighbor."""
        there = event.so_far
        if there is None:
            path = (*self.request.path, path_end)
            return SoFar(path, self.queued_s, self.network_s, event.service_s)
        network_s = self.network_s + event.leg_s + there.network_s
        return SoFar(there.path, self.queued_s + there.queued_s, network_s, there.service_s)

    def answer_of(
        self, event: ServiceEnded, outcome: Outcome, path_end: ClusterId, delivery_s: float
    ) -> Answer:
        """Returns the answer of a service that has ended here, and counts as this outcome."""
        answer = Answer(
            outcome,
            (*self.request.path, path_end),
            event.result if outcome is DONE else None,
            event.problem,
            self.queued_s,
            self.network_s + delivery_s,
            event.service_s,
        )
        answer.upstream = event.upstream
        if outcome is DONE:
            answer.ran = event.ran
        else:
            answer.cause = event.cause if outcome is event.outcome else Cause.TIMEOUT
            answer.upstream_status = event.upstream_status
            answer.upstream_body = event.upstream_body
            answer.retry_after_s = event.retry_after_s
        return answer


def count_states(visits: Iterable[Visit]) -> tuple[Counter[str], Counter[str]]:
    """Returns how many visits are in each state, home and foreign, by the names of the ledger."""
    home: Counter[str] = Counter()
    foreign: Counter[str] = Counter()
    for visit in visits:
        if visit.is_home:
            home[visit.state] += 1
        else:
            foreign["handed_on" if visit.state is AWAY else visit.state] += 1
    return home, foreign
