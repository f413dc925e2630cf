"""A request as whoever asks for it sees it: `GET /requests/{id}` and the body of a 202."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import msgspec

from spillover.apps.node.intake import answer_fields, problem_of
from spillover.apps.node.problems import Problem
from spillover.core.names import Entry
from spillover.core.visit import State, Visit
from spillover.live.node_shell import NodeShell
from spillover.model.request import Outcome

RUNNING = "running"

_STATES = {
    State.ARRIVED: "queued",
    State.QUEUED: "queued",
    State.RUNNING: RUNNING,
    State.AWAY: "forwarded",
}


def request_view(shell: NodeShell, entry: Entry) -> dict[str, Any]:
    """What its home tells of a request. Of one that has ended, what its client was told."""
    shown: dict[str, Any] = {
        "id": entry.name,
        "state": "",
        "type": entry.type,
        "priority": entry.priority,
    }
    answer = entry.answer
    if answer is None:
        visit = shell.machine.register.visits.get(entry.ref)
        # Not in the register and not answered: on its way from the server, the delivery.
        shown["state"] = RUNNING if visit is None else _STATES[visit.state]
        if visit is not None:
            shown |= _whereabouts(shell, visit)
    elif answer.outcome is Outcome.DONE:
        shown["state"] = "done"
        shown |= answer_fields(entry.name, answer)
    else:
        unknown = answer.outcome is Outcome.UNKNOWN
        shown["state"] = "failed" if unknown else answer.outcome.value
        shown["problem"] = problem_of(entry.name, answer).fields()
    return shown


def visit_view(shell: NodeShell, visit: Visit) -> dict[str, Any]:
    """What a cluster that relays or runs a request knows of it."""
    shown = {
        "id": visit.request.id,
        "state": _STATES[visit.state],
        "type": visit.request.type,
        "priority": visit.request.priority,
        "path": [*visit.request.path, shell.cluster.id],
    }
    return shown | _whereabouts(shell, visit)


def encode_view(shell: NodeShell, entry: Entry) -> bytes:
    """`request_view` as JSON."""
    return msgspec.json.encode(request_view(shell, entry))


def location(name: str) -> str:
    """Where to ask for the request."""
    return f"/requests/{quote(name, safe='')}"


def node_ended(name: str) -> Problem:
    """For whoever still waits when the node ends. A neighbor may decide a keyed request again."""
    detail = "the node ended before the work did; whether it was done is not known"
    return Problem("outcome_unknown", detail, id=name)


def _whereabouts(shell: NodeShell, visit: Visit) -> dict[str, Any]:
    shown: dict[str, Any] = {"cancelling": True} if visit.cancelling else {}
    if visit.state is State.AWAY:
        shown["forwarded_to"] = shell.machine.neighbors.ids[visit.target]
    return shown
