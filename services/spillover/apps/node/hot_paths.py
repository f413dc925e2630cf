"""The paths that carry the traffic, dispatched in front of FastAPI: `POST /requests` and what
nodes say to each other. They do their own error handling; everything else goes on to the app.

Measured reason: design, decision 1. What the answers mean is in `intake`, what happens to a
request in the machine.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias
from urllib.parse import parse_qs

from spillover.apps.node.bodies import ClientGone, Framing, Receive, read_body
from spillover.apps.node.intake import Headers, answer_body, problem_of, read_request
from spillover.apps.node.problems import Problem
from spillover.core.node_events import ReportAsked
from spillover.live import wire
from spillover.live.logs import OncePerPeriod
from spillover.live.node_shell import NodeShell, Settled
from spillover.model.ids import ClusterId, RequestId
from spillover.model.request import Answer, Outcome, Request

Scope: TypeAlias = MutableMapping[str, Any]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
AsgiApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

ENVELOPE_LIMIT_BYTES = 65_536
"""What a forward may take beyond its payload: path, names, numbers."""

FORWARD_READ_S = 10.0
"""For a neighbor to send all of a request that it hands on."""

JSON_HEADER = (b"content-type", b"application/json")

_log = logging.getLogger(__name__)
_log.addFilter(OncePerPeriod())


class HotPaths:
    """An ASGI app: the hot paths of a node, and behind them `app` for the rest."""

    def __init__(self, app: AsgiApp, shell: NodeShell) -> None:
        self._app = app
        self._shell = shell
        self._default_deadline_ms = shell.topology.default_deadline_ms
        self._payload_limit_bytes = shell.topology.payload_limit_bytes
        self._routes: dict[str, tuple[str, AsgiApp]] = {
            "/requests": ("POST", self._post_request),
            wire.FORWARD_PATH: ("POST", self._forward),
            wire.REPORTS_PATH: ("GET", self._reports),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = None
        if scope["type"] == "http":
            route = self._routes.get(scope["path"])
        if route is None:
            await self._app(scope, receive, send)
            return
        method, answer = route
        try:
            _check_method(scope, method)
            await answer(scope, receive, send)
        except Problem as problem:
            await _send(send, problem.status, problem.all_headers(), problem.body())
        except ClientGone:
            return
        except Exception:  # noqa: BLE001 - nothing behind this turns a bug into an answer
            _log.exception("internal error in %s %s", scope["method"], scope["path"])
            internal = Problem("internal", "internal error; the node's log has the details")
            await _send(send, internal.status, internal.all_headers(), internal.body())

    # --- clients ------------------------------------------------------------------------------

    async def _post_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        received_s = self._shell.now_s
        headers = Headers()
        try:
            headers.read(scope["headers"])
            deadline_ms = headers.deadline_ms
            if deadline_ms is None:
                deadline_ms = self._default_deadline_ms
            deadline_s = received_s + deadline_ms / 1e3
            limit_bytes = self._payload_limit_bytes
            body = await read_body(receive, headers.framing, limit_bytes, deadline_ms / 1e3)
            request = read_request(headers, body)
        except Problem as problem:
            problem.id = problem.id or headers.key
            raise
        if not request.keyed:
            request.id = RequestId(self._shell.new_request_id())
        settled = await self._run(request, deadline_s, receive)
        if not isinstance(settled, Answer) or settled.outcome is not Outcome.DONE:
            raise problem_of(request.id, settled)
        name_header = (b"spillover-request-id", request.id.encode())
        await _send(send, 200, [JSON_HEADER, name_header], answer_body(request.id, settled))

    async def _run(self, request: Request, deadline_s: float, receive: Receive) -> Settled:
        """Hand a client's request in and wait for what becomes of it."""
        self._check_fit(request)
        ref, future = self._shell.submit(request, deadline_s)
        try:
            if request.keyed:
                # Keyed work goes on when its client leaves, so nobody need watch for that.
                return await future
            return await self._unless_gone(ref, future, receive)
        except asyncio.CancelledError:
            raise _ended(request.id) from None

    def _check_fit(self, request: Request) -> None:
        unfit = self._shell.workers.problem_with(request.work)
        if unfit is not None:
            raise Problem("invalid", unfit, id=request.id)

    async def _unless_gone(
        self, ref: int, future: asyncio.Future[Settled], receive: Receive
    ) -> Settled:
        """Wait for the outcome; a client that disconnects meanwhile cancels its request."""

        def on_gone(watch: asyncio.Future[None]) -> None:
            if not watch.cancelled():
                self._shell.cancel(ref)

        watch = asyncio.ensure_future(receive_until_gone(receive))
        watch.add_done_callback(on_gone)
        try:
            return await future
        finally:
            watch.cancel()

    # --- neighbors ----------------------------------------------------------------------------

    async def _forward(self, scope: Scope, receive: Receive, send: Send) -> None:
        shell = self._shell
        received_s = shell.now_s
        limit_bytes = self._payload_limit_bytes + ENVELOPE_LIMIT_BYTES
        framing = Framing.of(dict(scope["headers"]))
        body = await read_body(receive, framing, limit_bytes, FORWARD_READ_S)
        read_s = shell.now_s
        try:
            sender, request, remaining_s = wire.decode_forward(body)
        except wire.MalformedMessage as error:
            raise Problem("invalid", f"body: {error}") from error
        origin = self._neighbor(sender)
        # Its home may have another handler: refused, it is decided again there.
        self._check_fit(request)
        ref, future = shell.submit(request, received_s + remaining_s, origin)
        try:
            settled = await self._unless_gone(ref, future, receive)
        except asyncio.CancelledError:
            raise _ended(request.id) from None
        if not isinstance(settled, Answer):
            raise problem_of(request.id, settled)
        stay = wire.Stay(
            held_s=shell.now_s - received_s,
            reading_s=read_s - received_s,
            answer_delay_s=shell.link_delay_s(origin),
        )
        await _send(send, 200, [JSON_HEADER], wire.encode_answer(settled, stay))

    async def _reports(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            query = parse_qs(scope["query_string"].decode("latin-1"), max_num_fields=8)
        except ValueError as error:
            raise Problem("invalid", f"query: {error}") from error
        neighbor = self._neighbor(query.get("from", [""])[0])
        stream = self._shell.streams.open(neighbor)
        if stream is None:
            raise Problem("not_ready", "the node ends")
        self._shell.feed(ReportAsked())
        watch = asyncio.ensure_future(receive_until_gone(receive))
        watch.add_done_callback(lambda _: stream.end())
        try:
            headers = [(b"content-type", b"application/x-ndjson")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            async for chunk in stream.chunks():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._shell.streams.drop(neighbor, stream)
            watch.cancel()

    def _neighbor(self, cluster: str) -> int:
        neighbor = self._shell.machine.neighbors.index.get(ClusterId(cluster))
        if neighbor is None:
            own = self._shell.cluster.id
            raise Problem("not_a_neighbor", f"cluster {own} has no link to {cluster!r}")
        return neighbor


async def receive_until_gone(receive: Receive) -> None:
    """Return when the other side has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _check_method(scope: Scope, method: str) -> None:
    if scope["method"] != method:
        detail = f"{scope['method']} {scope['path']}: expected {method}"
        raise Problem("method_not_allowed", detail, headers=[(b"allow", method.encode())])


def _ended(request_id: str) -> Problem:
    """For whoever still waits when the node ends. A neighbor may decide a keyed request again."""
    detail = "the node ended before the work did; whether it was done is not known"
    return Problem("outcome_unknown", detail, id=request_id)


async def _send(send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
