"""A request as a caller that asks for it sees it: `GET /requests/{id}` and the body of a 202."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import msgspec

from spillover.apps.http.problems import Problem
from spillover.apps.node.answers import answer_fields, problem_of
from spillover.core.overflow.idempotency import IdempotencyRecord
from spillover.core.overflow.ledger import FAILURES
from spillover.core.overflow.visit import Visit, VisitState
from spillover.live.overflow.shell import NodeShell
from spillover.model.ids import name_of
from spillover.model.request import Answer, Outcome

RUNNING = "running"

_STATES = {
    VisitState.ARRIVED: "queued",
    VisitState.QUEUED: "queued",
    VisitState.RUNNING: RUNNING,
    VisitState.AWAY: "forwarded",
}


def request_view(shell: NodeShell, entry: IdempotencyRecord) -> dict[str, Any]:
    """Returns a request as its home knows it; if it has ended, with what its client was told."""
    shown: dict[str, Any] = {"id": entry.name, "state": "", "type": entry.type}
    answer = entry.answer
    if answer is None:
        visit = shell.machine.register.visits.get(entry.ref)
        # Neither in the register nor answered, its answer is being delivered from the server.
        shown["state"] = RUNNING if visit is None else _STATES[visit.state]
        if visit is not None:
            shown |= _whereabouts(visit)
    else:
        shown |= _end(entry.name, answer)
    return shown


def ended_view(entry: IdempotencyRecord, problem: Problem) -> dict[str, Any]:
    """Returns the view of a request that will not be answered any more, for this reason."""
    return {
        "id": entry.name,
        "state": "failed",
        "type": entry.type,
        "problem": problem.fields(),
    }


def visit_view(shell: NodeShell, visit: Visit, answer: Answer | None = None) -> dict[str, Any]:
    """Returns what a cluster that relays or runs a request knows of it; with its answer, how it
    ended."""
    shown = {
        "id": name_of(visit.request.id),
        "state": _STATES[visit.state],
        "type": visit.request.type,
        "path": [*visit.request.path, shell.cluster.id],
    }
    if answer is not None:
        return shown | _end(name_of(visit.request.id), answer)
    return shown | _whereabouts(visit)


def encode_view(shell: NodeShell, entry: IdempotencyRecord) -> bytes:
    """Returns `request_view` as JSON."""
    return msgspec.json.encode(request_view(shell, entry))


def location(name: str) -> str:
    """Returns the path at which to ask for the request."""
    return f"/requests/{quote(name, safe='')}"


def _end(name: str, answer: Answer) -> dict[str, Any]:
    """Returns the view of a request that has ended."""
    if answer.outcome is Outcome.DONE:
        return {"state": "done", **answer_fields(name, answer)}
    state = "failed" if answer.outcome in FAILURES else answer.outcome.value
    return {"state": state, "problem": problem_of(name, answer).fields()}


def _whereabouts(visit: Visit) -> dict[str, Any]:
    shown: dict[str, Any] = {"cancelling": True} if visit.cancelling else {}
    if visit.state is VisitState.AWAY:
        shown["forwarded_to"] = visit.target.id
    return shown
