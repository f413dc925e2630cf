"""The cancelling of requests by name; `lookups` has asking for them."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.responses import Response

from spillover.apps.http.access import tenant_in
from spillover.apps.http.openapi import problems
from spillover.apps.http.problems import Problem
from spillover.apps.node.lookups import UNKNOWN
from spillover.apps.node.openapi import RequestStateView
from spillover.apps.node.request_view import request_view, visit_view
from spillover.core.overflow.events import CancelAsked
from spillover.core.overflow.idempotency import IdempotencyRecord
from spillover.core.overflow.visit import Visit
from spillover.live.overflow.shell import NodeShell
from spillover.live.overflow.waiters import FutureWaiter
from spillover.model.ids import request_id_of
from spillover.model.request import Answer

CONFIRM_S = 1.0
"""The time within which another cluster has to confirm that it has cancelled a request."""

EVERY_METHOD = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"]


def add_request_routes(app: FastAPI, shell: NodeShell) -> None:
    """Adds `DELETE /requests/{id}`."""

    @app.api_route("/requests/", methods=EVERY_METHOD, include_in_schema=False)
    async def nameless(request: Request) -> Response:
        expected = "POST /requests, or GET or DELETE /requests/{id}"
        raise Problem("not_found", f"{request.method} /requests/: expected {expected}")

    told: dict[int | str, dict[str, Any]] = {
        200: {"model": RequestStateView},
        **problems("unknown_request", "another_site"),
    }

    accepted = {"model": RequestStateView, "description": "Not confirmed yet"}

    @app.delete("/requests/{request_id:path}", responses={**told, 202: accepted})
    async def delete_request(request_id: str, request: Request) -> Response:
        """Cancel a request, wherever it is. One that has ended stays as it ended."""
        own_id = request_id_of(tenant_in(request.scope), request_id)
        entry = shell.requests.home.find(own_id)
        if entry is not None:
            await _cancel(shell, entry)
            return _json(request_view(shell, entry), 200 if entry.answer is not None else 202)
        visit = shell.requests.visit_of(own_id)
        if visit is None:
            raise Problem("unknown_request", UNKNOWN, request_id)
        answer = await _cancel_visit(shell, visit)
        return _json(visit_view(shell, visit, answer), 202 if answer is None else 200)


async def _cancel(shell: NodeShell, entry: IdempotencyRecord) -> None:
    """Has a request cancelled, and waits a moment for its end."""
    home_requests = shell.requests.home
    if entry.answer is None:
        waiter = FutureWaiter()
        if shell.requests.waiters.wait(entry.ref, waiter):
            home_requests.cancel(entry)
            await asyncio.wait([waiter.future], timeout=CONFIRM_S)
            shell.requests.waiters.leave(entry.ref, waiter)
        else:
            home_requests.cancel(entry)
    if entry.answer is not None:
        home_requests.fetch(entry)


async def _cancel_visit(shell: NodeShell, visit: Visit) -> Answer | None:
    """Has a request cancelled that a neighbor has handed over. Returns how it has ended; None if
    that is not known within the time or before the node ends."""
    waiter = FutureWaiter()
    waits = shell.requests.waiters.wait(visit.ref, waiter)
    shell.feed(CancelAsked(visit.ref))
    if waits:
        await asyncio.wait([waiter.future], timeout=CONFIRM_S)
        shell.requests.waiters.leave(visit.ref, waiter)
    return waiter.answer


def _json(content: dict[str, Any], status: int = 200) -> Response:
    return Response(msgspec.json.encode(content), status, media_type="application/json")
