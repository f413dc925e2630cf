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

from spillover.apps.node.intake import Headers, answer_body, problem_of, read_request
from spillover.apps.node.problems import Problem
from spillover.live import wire
from spillover.live.node_shell import NodeShell, Settled
from spillover.model.ids import ClusterId, RequestId
from spillover.model.request import Answer, Outcome

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
AsgiApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

ENVELOPE_LIMIT_BYTES = 65_536
"""What a forward may take beyond its payload: path, names, numbers."""

JSON_HEADER = (b"content-type", b"application/json")

_log = logging.getLogger(__name__)


class ClientGone(Exception):
    """The client went away before its request was read."""


class HotPaths:
    """An ASGI app: the hot paths of a node, and behind them `app` for the rest."""

    def __init__(self, app: AsgiApp, shell: NodeShell) -> None:
        self._app = app
        self._shell = shell
        self._default_deadline_ms = shell.topology.default_deadline_ms
        self._payload_limit_bytes = shell.topology.payload_limit_bytes
        self._routes: dict[tuple[str, str], AsgiApp] = {
            ("POST", "/requests"): self._post_request,
            ("POST", wire.FORWARD_PATH): self._forward,
            ("GET", wire.REPORTS_PATH): self._reports,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = None
        if scope["type"] == "http":
            route = self._routes.get((scope["method"], scope["path"]))
        if route is None:
            await self._app(scope, receive, send)
            return
        try:
            await route(scope, receive, send)
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
        shell = self._shell
        received_s = shell.now_s
        headers = Headers(scope["headers"])
        body = await _read_body(receive, headers.content_length, self._payload_limit_bytes)
        name, request = read_request(headers, body)
        if name is None:
            request.id = RequestId(shell.new_request_id())
        unfit = shell.workers.problem_with(request.work)
        if unfit is not None:
            raise Problem("invalid", unfit, id=request.id)
        deadline_ms = headers.deadline_ms
        if deadline_ms is None:
            deadline_ms = self._default_deadline_ms
        ref, future = shell.submit(request, received_s + deadline_ms / 1e3)
        if request.keyed:
            # Keyed work goes on when its client leaves, so nobody need watch for that.
            settled = await future
        else:
            settled = await self._unless_gone(ref, future, receive)
        if isinstance(settled, Answer) and settled.outcome is Outcome.DONE:
            name_header = (b"spillover-request-id", request.id.encode("latin-1", "replace"))
            await _send(send, 200, [JSON_HEADER, name_header], answer_body(request.id, settled))
        else:
            raise problem_of(request.id, settled)

    async def _unless_gone(
        self, ref: int, future: asyncio.Future[Settled], receive: Receive
    ) -> Settled:
        """Wait for the outcome; a client that disconnects meanwhile cancels its request."""

        def on_message(watch: asyncio.Future[MutableMapping[str, Any]]) -> None:
            if not watch.cancelled() and watch.result()["type"] == "http.disconnect":
                self._shell.cancel(ref)

        watch = asyncio.ensure_future(receive())
        watch.add_done_callback(on_message)
        try:
            return await future
        finally:
            watch.cancel()

    # --- neighbors ----------------------------------------------------------------------------

    async def _forward(self, scope: Scope, receive: Receive, send: Send) -> None:
        shell = self._shell
        received_s = shell.now_s
        limit_bytes = self._payload_limit_bytes + ENVELOPE_LIMIT_BYTES
        body = await _read_body(receive, _content_length(scope), limit_bytes)
        try:
            sender, request, remaining_s = wire.decode_forward(body)
        except wire.MalformedMessage as error:
            raise Problem("invalid", f"body: {error}") from error
        origin = self._neighbor(sender)
        ref, future = shell.submit(request, received_s + remaining_s, origin)
        settled = await self._unless_gone(ref, future, receive)
        if not isinstance(settled, Answer):
            raise problem_of(request.id, settled)
        held_s = shell.now_s - received_s
        answer_delay_s = shell.link_delay_s(origin)
        body = wire.encode_answer(settled, held_s=held_s, answer_delay_s=answer_delay_s)
        await _send(send, 200, [JSON_HEADER], body)

    async def _reports(self, scope: Scope, receive: Receive, send: Send) -> None:
        query = parse_qs(scope["query_string"].decode("latin-1"), max_num_fields=8)
        neighbor = self._neighbor(query.get("from", [""])[0])
        stream = self._shell.streams.open(neighbor)
        if stream is None:
            raise Problem("too_many_streams", "this neighbor reads as many streams as it may")
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


async def _read_body(receive: Receive, content_length: int, limit_bytes: int) -> bytes:
    if content_length > limit_bytes:
        raise _too_large(limit_bytes)
    message = await receive()
    body: bytes = message.get("body", b"")
    if message.get("more_body"):
        parts, size = [body], len(body)
        while message.get("more_body"):
            message = await receive()
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > limit_bytes:
                raise _too_large(limit_bytes)
        body = b"".join(parts)
    if message["type"] == "http.disconnect":
        raise ClientGone
    if len(body) > limit_bytes:
        raise _too_large(limit_bytes)
    return body


def _too_large(limit_bytes: int) -> Problem:
    """The rest of the body is not read, so that the connection cannot be used again."""
    detail = f"expected a body of at most {limit_bytes} bytes"
    return Problem("too_large", detail, headers=[(b"connection", b"close")])


def _content_length(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value)
    return 0


async def _send(send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
