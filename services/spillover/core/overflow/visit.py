"""One visit of a request to one cluster, from arrival to answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from spillover.core.overflow.events import HOME, ResponseBegan, ServiceEnded, SoFar
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


_NOWHERE: Mapping[int, float] = MappingProxyType({})


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


class Visit:
    """What the machine knows of one visit. Durations add up over decisions taken again."""

    __slots__ = (
        "again_s",
        "answering",
        "cancelling",
        "deadline_s",
        "group",
        "is_home",
        "losses",
        "may_have_run",
        "network_s",
        "origin",
        "place",
        "pulled",
        "queued_s",
        "ref",
        "refused_by_all",
        "refused_on",
        "refused_there",
        "refused_with",
        "request",
        "since_s",
        "state",
        "target",
        "tried",
        "undone",
        "undone_by",
    )

    group: Group
    """The one that its type belongs to. Set by the machine."""
    target: Neighbor
    """The neighbor it is away to, or was last; not set before."""

    def __init__(
        self, ref: int, request: Request, origin: int, deadline_s: float, now_s: float
    ) -> None:
        self.ref = ref
        self.request = request
        self.origin = origin
        self.is_home = origin == HOME
        self.deadline_s = deadline_s
        self.state = ARRIVED
        self.since_s = now_s
        """When the present state began."""
        self.queued_s = 0.0
        self.network_s = 0.0
        self.place: Any = None
        """Where it waits, by the pool that it waits for; None while it does not."""
        self.pulled = False
        """This cluster has asked for it."""
        self.tried: tuple[int, ...] = ()
        """Handles of neighbors that refused or lost it: not asked again during this visit."""
        self.losses = 0
        """How often it was lost while it was away: it may have run there each time."""
        self.again_s: Mapping[int, float] = _NOWHERE
        """From when on it is offered again to neighbors that have lost it, by handle."""
        self.may_have_run = False
        """The service here was lost with it, and it may run twice."""
        self.undone: str | None = None
        """Why it surely was not run when it was last tried here,"""
        self.undone_by: Cause | None = None
        """and what that is to logs and metrics."""
        self.refused_on: tuple[int, ...] = ()
        """Where servers are unlike: the pool's numbers of those that go without it."""
        self.refused_by_all = False
        """All of them that could run it have said that they surely did not."""
        self.refused_with: int | None = None
        """The status of an answer by which the service here has refused it, which is held back."""
        self.refused_there: tuple[ClusterId, int] | None = None
        """A neighbor whose service has refused it, and the status by which that said so."""
        self.answering = False
        """Its answer has begun to pass: it runs or is away, and nothing is decided about it."""
        self.cancelling = False
        """It is to be cancelled where it is: whatever comes back, it is not placed again."""

    @property
    def is_new(self) -> bool:
        """Not accepted yet, so that it may still be refused."""
        return self.state is ARRIVED and not self.tried

    def was_lost(self, now_s: float) -> None:
        """No answer will come from where it was, and it may have run there. The pause, which grows
        with each time that it may have run anywhere, is that neighbor's alone."""
        pause_s = backoff_s(self.losses, AGAIN_FIRST_S, AGAIN_LONGEST_S, 0.0)
        self.again_s = {**self.again_s, self.target.handle: now_s + pause_s}
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
        if outcome is not DONE:
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
