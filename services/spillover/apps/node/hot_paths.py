"""The paths that carry the traffic, dispatched in front of FastAPI: `POST /requests` and what
nodes say to each other. They do their own error handling; everything else goes on to the app.

Measured reason: design, decision 1. What the answers mean is in `intake`, what neighbors say in
`peer_paths`, what happens to a request in the machine.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from typing import Any, TypeAlias

from spillover.apps.node.exchange import ClientGone, Exchange
from spillover.apps.node.http_protocol import EXCHANGE
from spillover.apps.node.intake import Headers, answer_body, problem_of, read_request
from spillover.apps.node.peer_paths import PeerPaths
from spillover.apps.node.problems import Problem
from spillover.apps.node.request_view import encode_view, location, node_ended
from spillover.core.names import Entry
from spillover.live import wire
from spillover.live.logs import OncePerPeriod
from spillover.live.node_shell import NodeShell
from spillover.live.reception import fingerprint
from spillover.model.request import Answer, Outcome, Request

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
AsgiApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

HotPath: TypeAlias = Callable[[Exchange, Scope, Send], Awaitable[None]]

JSON_LINE = b"content-type: application/json\r\n"

_log = logging.getLogger(__name__)
_log.addFilter(OncePerPeriod())


class HotPaths:
    """An ASGI app: the hot paths of a node, and behind them `app` for the rest."""

    def __init__(self, app: AsgiApp, shell: NodeShell) -> None:
        self._app = app
        self._shell = shell
        self._reception = shell.reception
        self._default_deadline_ms = shell.topology.default_deadline_ms
        self._payload_limit_bytes = shell.topology.payload_limit_bytes
        peers = PeerPaths(shell)
        self._routes: dict[str, tuple[str, HotPath]] = {
            "/requests": ("POST", self._post_request),
            wire.FORWARD_PATH: ("POST", peers.forward),
            wire.CANCEL_PATH: ("POST", peers.cancel),
            wire.REPORTS_PATH: ("GET", peers.reports),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Taken out: left there, each request would be a reference cycle.
        exchange: Exchange = scope.pop(EXCHANGE)
        route = self._routes.get(scope["path"])
        if route is None:
            await self._app(scope, receive, send)
            return
        method, answer = route
        try:
            if scope["method"] != method:
                detail = f"{scope['method']} {scope['path']}: expected {method}"
                allow = [(b"allow", method.encode())]
                raise Problem("method_not_allowed", detail, headers=allow)  # noqa: TRY301 - see below
            await answer(exchange, scope, send)
        except Problem as problem:
            await exchange.answer(problem.status, problem.all_headers(), problem.body())
        except ClientGone:
            return
        except Exception:  # noqa: BLE001 - nothing behind this turns a bug into an answer
            await self._internal_error(exchange, scope)

    async def _internal_error(self, exchange: Exchange, scope: Scope) -> None:
        _log.exception("internal error in %s %s", scope["method"], scope["path"])
        internal = Problem("internal", "internal error; the node's log has the details")
        await exchange.answer(internal.status, internal.all_headers(), internal.body())

    # --- clients ------------------------------------------------------------------------------

    async def _post_request(self, exchange: Exchange, scope: Scope, _: Send) -> None:
        received_s = self._shell.now_s
        headers = Headers()
        try:
            headers.read(scope["headers"])
            deadline_ms = headers.deadline_ms
            if deadline_ms is None:
                deadline_ms = self._default_deadline_ms
            limit_bytes = self._payload_limit_bytes
            body = await exchange.read_body(headers.framing, limit_bytes, deadline_ms / 1e3)
            request = read_request(headers, body)
            self._check_fit(request)
        except Problem as problem:
            problem.id = problem.id or headers.key
            raise
        deadline_s = received_s + deadline_ms / 1e3
        if request.keyed:
            entry = self._reception.find(request.id)
            if entry is not None:
                await self._replay(exchange, entry, request, deadline_s, headers)
                return
        await self._take(exchange, request, deadline_s, headers)

    def _check_fit(self, request: Request) -> None:
        unfit = self._shell.workers.problem_with(request.work)
        if unfit is not None:
            raise Problem("invalid", unfit, id=request.id or None)

    async def _take(
        self, exchange: Exchange, request: Request, deadline_s: float, headers: Headers
    ) -> None:
        """A new request: answer 202 at once, or with what becomes of it."""
        reception = self._reception
        asynchronous = headers.asynchronous
        taken = reception.take(request, deadline_s, asynchronous=asynchronous)
        if not isinstance(taken, Entry):
            raise problem_of(request.id, taken)
        if asynchronous:
            await self._answer_accepted(exchange, taken)
            return
        answer = taken.answer
        if answer is None:
            future = reception.wait(taken)
            if not request.keyed:  # keyed work goes on when its client leaves
                exchange.watch(partial(reception.abandon, taken))
            try:
                answer = await future
            except asyncio.CancelledError:
                raise node_ended(request.id) from None
        await self._answer(exchange, taken, answer)

    async def _replay(
        self,
        exchange: Exchange,
        entry: Entry,
        request: Request,
        deadline_s: float,
        headers: Headers,
    ) -> None:
        """A name that is known: wait for the first answer, or give it again."""
        if entry.fingerprint != fingerprint(request):
            detail = "this name was given to another request before"
            raise Problem("conflict", detail, id=entry.name)
        answer = entry.answer
        if answer is None and headers.asynchronous:
            await self._answer_accepted(exchange, entry, REPLAYED_LINE)
            return
        if answer is None:
            future = self._reception.wait(entry)
            try:
                async with asyncio.timeout(max(0.0, deadline_s - self._shell.now_s)):
                    answer = await future
            except TimeoutError:
                self._reception.leave(entry, future)
                detail = "the first request of this name was still under way at the deadline"
                raise Problem("deadline_exceeded", detail, id=entry.name) from None
            except asyncio.CancelledError:
                raise node_ended(entry.name) from None
        await self._answer(exchange, entry, answer, REPLAYED_LINE)

    async def _answer(
        self, exchange: Exchange, entry: Entry, answer: Answer, lines: bytes = b""
    ) -> None:
        if not entry.fetched:
            self._reception.fetch(entry)
        if answer.outcome is not Outcome.DONE:
            problem = problem_of(entry.name, answer)
            if lines:
                problem.headers.append((b"spillover-replayed", b"true"))
            raise problem
        lines = b"%bspillover-request-id: %b\r\n%b" % (JSON_LINE, entry.name.encode(), lines)
        await exchange.answer_raw(200, lines, answer_body(entry.name, answer))

    async def _answer_accepted(self, exchange: Exchange, entry: Entry, lines: bytes = b"") -> None:
        """202, and where to ask."""
        name = entry.name.encode()
        where = location(entry.name).encode()
        applied = b"preference-applied: respond-async\r\n"
        lines = b"%b%blocation: %b\r\nspillover-request-id: %b\r\n%b" % (
            JSON_LINE, applied, where, name, lines,
        )  # fmt: skip
        await exchange.answer_raw(202, lines, encode_view(self._shell, entry))


REPLAYED_LINE = b"spillover-replayed: true\r\n"
