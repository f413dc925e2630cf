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
"""Pauses before a neighbor that may have run a request, and was lost with it, is given it again:
each time it may run once more. Without them it would be, with each report of a neighbor."""


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
"""Bound once, as in `model.request`."""


@dataclass(slots=True, eq=False)
class Visit:
    """What the machine knows of one visit. Durations add up over decisions taken again."""

    ref: int
    request: Request
    origin: int
    is_home: bool
    """Whether it came from a client of this cluster, and not from a neighbor."""
    deadline_s: float
    came_s: float
    group: Group = field(init=False)
    """The one that its type belongs to. Set by the machine."""
    target: Neighbor = field(init=False)
    """The neighbor it is away to, or was last; not set before."""
    missed: bool = field(init=False)
    """Its answer is late there, or will not come, and that counts against the neighbor already."""
    promised: bool = field(init=False)
    """The neighbor had told of an idle server for it when it left."""
    state: VisitState = ARRIVED
    since_s: float = 0.0
    """When the present state began; 0 before the first one."""
    queued_s: float = 0.0
    network_s: float = 0.0
    work_s: float = 0.0
    """For how long it is expected to run, where that is counted; 0 before anybody has asked."""
    place: Any = None
    """Where it waits, by the pool that it waits for; None while it does not."""
    pulled: bool = False
    """This cluster has asked for it."""
    tried: tuple[int, ...] = ()
    """Handles of neighbors that refused or lost it: not asked again during this visit."""
    losses: int = 0
    """How often it was lost while it was away: it may have run there each time."""
    again_s: dict[int, float] = field(default_factory=dict)
    """The instants from which on it is offered again to neighbors that have lost it, by handle."""
    may_have_run: bool = False
    """The service here was lost with it, and it may run twice."""
    undone: str | None = None
    """Why it surely was not run when it was last tried here."""
    undone_by: Cause | None = None
    """The cause of that, for logs and metrics."""
    refused_on: tuple[int, ...] = ()
    """Where servers are unlike: the pool's numbers of those that go without it."""
    refused_by_all: bool = False
    """All of them that could run it have said that they surely did not."""
    refused_with: int | None = None
    """The status of an answer by which the service here has refused it, which is held back."""
    refused_there: tuple[ClusterId, int] | None = None
    """A neighbor whose service has refused it, and the status by which that said so."""
    expected: Expected | None = None
    """Where it is expected to run, if it is away for the sake of that."""
    answering: bool = False
    """Its answer has begun to pass: it runs or is away, and nothing is decided about it."""
    cancelling: bool = False
    """It is to be cancelled where it is: whatever comes back, it is not placed again."""

    @property
    def is_new(self) -> bool:
        """Not accepted yet, so that it may still be refused."""
        return self.state is ARRIVED and not self.tried

    def was_lost(self, now_s: float) -> None:
        """No answer will come from where it was, and it may have run there. The pause, which grows
        with each time that it may have run anywhere, is that neighbor's alone."""
        pause_s = backoff_s(self.losses, AGAIN_FIRST_S, AGAIN_LONGEST_S, 0.0)
        self.again_s[self.target.handle] = now_s + pause_s
        self.losses += 1

    def why_late(self, *, stranded: bool) -> str | None:
        """Returns why it was not done before its deadline, where that is known. `stranded`: it
        waited at a cluster that has no servers now."""
        if self.undone is not None:
            return f"the deadline passed; when it was last tried here, {self.undone}"
        if self.refused_there is not None:
            cluster, status = self.refused_there
            return f"the deadline passed; the service behind cluster {cluster} answered {status}"
        if stranded:
            return "the deadline passed; nothing behind this cluster can run requests for now"
        return None

    def why_expired(self, *, stranded: bool) -> Cause:
        """Returns where its time went, at its deadline. `stranded` as above."""
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
        """Returns an answer given here, with what the visit has cost so far."""
        path = (*self.request.path, path_end)
        return Answer(outcome, path, None, problem, self.queued_s, self.network_s)

    def so_far(self, event: ResponseBegan, path_end: ClusterId) -> SoFar:
        """Returns what it took until its answer began, here or at a neighbor."""
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
