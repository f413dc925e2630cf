"""The watcher of a node, which notes what happens to requests that are traced: the events that the
machine gets, its commands, and its records. Of requests that are not sampled nothing is noted.

A call that goes on, to a neighbor or to a service, gets its place in the trace here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

from spillover.core.overflow import events as ev
from spillover.core.overflow.decisions import Decision
from spillover.core.overflow.history import Note
from spillover.live.overflow.protocol import PASS, SPOKEN
from spillover.live.overflow.shell import NodeShell
from spillover.live.overflow.tracing.visits import (
    RECORDS_MAX,
    REQUESTS,
    URL_LENGTH_MAX,
    AttemptContext,
    SpanPlace,
    VisitTrace,
)
from spillover.live.process.logs import Message, OncePerPeriod
from spillover.model.passed import MalformedPassed, PassedRequest
from spillover.model.request import DONE, Answer, Outcome, Request
from spillover.model.trace_context import TraceContext

REFUSED, LOST, NOT_STARTED, TRUNCATED = "refused", "lost", "not_started", "truncated"
"""The ways in which an attempt can fail, besides the reasons of problems and statuses."""

FLUSH_S = 3.0
"""The longest time, in seconds, for which the end of a node waits for spans to leave."""

StatusOf: TypeAlias = Callable[[Answer | ev.Refuse], tuple[int, str]]
"""Returns the status that a client gets where there is no result, and the reason in words."""

_log = logging.getLogger(__name__)
_log.addFilter(OncePerPeriod())


class Sampler(Protocol):
    """The rule that decides what is traced, before anything else."""

    def place(self, trace: TraceContext | None, name: str) -> SpanPlace:
        """Returns the place in its trace of a request that has come with this context, or without
        one."""

    def span_id(self) -> int:
        """Returns a new number of a span."""


class Recorder(Protocol):
    """The receiver of visits that have ended."""

    @property
    def counts(self) -> Mapping[str, int]:
        """Returns the numbers of spans, by how they ended."""

    def put(self, visit: VisitTrace) -> None:
        """Take a visit, or drop it. Returns at once."""

    def close(self, timeout_s: float) -> None:
        """Send what is left, if that does not take longer."""


class Tracing:
    """The watcher of one node."""

    def __init__(self, sampler: Sampler, recorder: Recorder, status_of: StatusOf) -> None:
        self._sampler = sampler
        self._recorder = recorder
        self._status_of = status_of
        self._open: dict[int, VisitTrace] = {}
        self._by_id: dict[str, VisitTrace] = {}
        self._now_s = 0.0
        hears: dict[type, Callable[[Any], None]] = {
            ev.Arrived: self._arrived,
            ev.ServiceEnded: self._service_ended,
            ev.NotStarted: lambda event: self._over(event.ref, NOT_STARTED, event.problem),
            ev.ForwardAnswered: self._forward_answered,
            ev.ForwardRefused: lambda event: self._over(event.ref, REFUSED),
            ev.ForwardLost: lambda event: self._over(event.ref, LOST),
        }
        self._hears = {kind: _safe(hear) for kind, hear in hears.items()}

    def make_shell(self, *told: Any, **given: Any) -> NodeShell:
        """Returns a shell whose requests are traced; arguments are those of NodeShell."""
        shell = self._shell = NodeShell(*told, **given, journal=self._hear)
        shell.machine.decider.log.listen(self._on_record)
        shell.metrics.spans = self._recorder.counts
        looks: dict[type, Callable[[Any], None]] = {
            ev.Start: self._start,
            ev.Forward: self._forward,
            ev.Began: self._answer_began,
            ev.Reply: self._reply,
            ev.Refuse: self._refuse,
        }
        for kind, look in looks.items():
            shell.interpreters[kind] = self._before(_safe(look), shell.interpreters[kind])
        return shell

    def close(self) -> None:
        self._recorder.close(FLUSH_S)

    def _hear(self, event: ev.Event, now_s: float) -> None:
        """Take each event before the machine does, as its journal."""
        self._now_s = now_s
        hear = self._hears.get(type(event))
        if hear is not None:
            hear(event)

    def _before(
        self, look: Callable[[Any], None], interpret: Callable[[Any], None]
    ) -> Callable[[Any], None]:
        """Look at the commands about sampled requests before they are carried out."""

        def obey(command: Any) -> None:
            if command.ref in self._open:
                look(command)
            interpret(command)

        return obey

    # --- what the machine hears ---------------------------------------------------------------

    def _arrived(self, event: ev.Arrived) -> None:
        request, is_home = event.request, event.origin == ev.HOME
        passes = self._shell.machine.settings.passes
        route = None if is_home and passes else _route(is_home=is_home, passes=passes)
        came_with = request.trace
        place = self._sampler.place(came_with, f"POST {route}" if route else "HTTP")
        if place.is_sampled:
            visit = VisitTrace(place, request, self._now_s, is_home=is_home)
            if route is not None:
                visit.route = visit.path = route
            else:
                _read_passed(visit, request)
            self._open[event.ref] = self._by_id[request.id] = visit
        elif came_with is not None and came_with.parent.endswith("00"):
            return  # whoever sent it has decided that, and nothing is to be told in between
        request.trace = TraceContext(place.parent(place.span_id), place.state)
        if is_home:
            self._shell.requests.home.placed(event.ref, request.trace)

    def _service_ended(self, event: ev.ServiceEnded) -> None:
        visit = self._open.get(event.ref)
        if visit is None or visit.under_way is None:
            return
        if event.outcome is DONE:
            visit.end_attempt(self._now_s, None)
            return
        if event.upstream_status is not None:
            visit.under_way.status = event.upstream_status
        error = self._status_of(Answer(event.outcome, ()))[1]
        if visit.head_status is not None and event.outcome is Outcome.FAILED:
            error = _failed(event.upstream_status)
        visit.end_attempt(self._now_s, error, event.problem)

    def _forward_answered(self, event: ev.ForwardAnswered) -> None:
        visit = self._open.get(event.ref)
        if visit is None or visit.under_way is None:
            return
        visit.under_way.status = 200
        answer = event.answer
        error = None if answer.outcome is DONE else self._status_of(answer)[1]
        visit.end_attempt(self._now_s, error, answer.problem)

    def _over(self, ref: int, error: str, problem: str | None = None) -> None:
        if (visit := self._open.get(ref)) is not None:
            visit.end_attempt(self._now_s, error, problem)

    def _on_record(self, record: Decision | Note) -> None:
        visit = self._by_id.get(record.request_id)
        if visit is not None and len(visit.records) < RECORDS_MAX:
            visit.records.append(record)

    # --- what the machine says ----------------------------------------------------------------

    def _start(self, command: ev.Start) -> None:
        visit = self._open[command.ref]
        attempt = visit.begin(self._sampler.span_id(), command.at_s)
        command.request.trace = AttemptContext(visit, attempt, self._sampler.span_id)

    def _forward(self, command: ev.Forward) -> None:
        visit = self._open[command.ref]
        attempt = visit.begin(self._sampler.span_id(), self._now_s)
        link = self._shell.neighborhood.links[command.neighbor]
        attempt.method, attempt.url = "POST", link.url + link.forward_path
        attempt.neighbor, attempt.pulled = link.cluster, command.pulled
        parent = visit.place.parent(attempt.span_id)
        command.request.trace = TraceContext(parent, visit.place.state)

    def _answer_began(self, command: ev.Began) -> None:
        visit = self._open[command.ref]
        head = self._shell.requests.relays.head_of(command.ref)
        if head is not None:
            visit.head_status = head.status
            if visit.under_way is not None:
                visit.under_way.status = head.status if visit.under_way.neighbor is None else 200

    def _reply(self, command: ev.Reply) -> None:
        answer = command.answer
        status, reason = (200, "") if answer.outcome is DONE else self._status_of(answer)
        visit = self._open[command.ref]
        if visit.head_status is not None and answer.outcome is Outcome.FAILED:
            reason = _failed(answer.upstream_status)
        if not visit.is_home:
            status = 200  # whatever it says: the neighbor has its answer
        elif visit.head_status is not None:
            status = visit.head_status
        self._end(command.ref, answer, status, reason, command.delay_s)

    def _refuse(self, command: ev.Refuse) -> None:
        self._end(command.ref, command, *self._status_of(command))

    def _end(
        self, ref: int, told: Answer | ev.Refuse, status: int, reason: str, delay_s: float = 0.0
    ) -> None:
        visit = self._open.pop(ref)
        if self._by_id.get(visit.request_id) is visit:
            del self._by_id[visit.request_id]
        is_cancelled = isinstance(told, Answer) and told.outcome is Outcome.CANCELLED
        gone = is_cancelled and visit.is_home and visit.head_status is None
        # Whether somebody was there to be told of a cancel is not known here.
        visit.end(self._now_s, delay_s, told, None if gone else status, reason)
        self._recorder.put(visit)


def _route(*, is_home: bool, passes: bool) -> str:
    """Returns the route by which requests come in. Which version a neighbor speaks is not known."""
    if is_home:
        return REQUESTS
    return PASS if passes else SPOKEN[0].forward


def _failed(upstream_status: int | None) -> str:
    """Returns why an answer counts as failed that had begun. If it came whole, its status says
    why."""
    return TRUNCATED if upstream_status is None else str(upstream_status)


def _read_passed(visit: VisitTrace, request: Request) -> None:
    work = request.work
    try:
        is_encoded = isinstance(work, bytes | memoryview)
        passed = PassedRequest.decode(work) if is_encoded else work
    except MalformedPassed:
        return
    visit.method, visit.path = passed.method, passed.path[:URL_LENGTH_MAX]


def _safe(look: Callable[[Any], None]) -> Callable[[Any], None]:
    """Returns the callable, guarded: a bug in here is no reason for the node to end."""

    def safely(told: Any) -> None:
        try:
            look(told)
        except Exception:  # noqa: BLE001 - see above
            _log.exception(Message("a request is not traced"))

    return safely
