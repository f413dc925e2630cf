"""`/console` as routes: the page, its files, the stream of events, and what operators may do.

The service that mounts it says what to show and what there is to do.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from spillover.apps.http.access import may_in, name_in, still_let_in
from spillover.apps.http.asgi import Receive, Scope, Send
from spillover.apps.http.console.assets import (
    ASKED_AGAIN,
    KEPT,
    SAFE_HEADERS,
    assets,
    digest,
    page,
)
from spillover.apps.http.console.broadcast import Broadcast, TooManyListeners
from spillover.apps.http.console.operators import Operators
from spillover.apps.http.exchange import EXCHANGE, Exchange
from spillover.apps.http.problems import Problem, as_response
from spillover.model.access import Role

PATH = "/console"
EVENTS_PATH = "/console/events"

UNREAD_S = 15.0
"""Whoever has not read what was sent so long ago is cut off."""

NO_OPERATOR = "The API token that was given here has not got the role operate."

RETRY_MS = 1000
RETRY_AFTER_S = 10


class Console:
    """The console of one service. `kind` is what the page has to draw, `about` what does not change
    while the service runs, `actions` what operators can do, by name."""

    def __init__(
        self,
        kind: str,
        about: Mapping[str, object],
        look: Callable[[], Awaitable[bytes]],
        *,
        period_s: float,
        actions: Mapping[str, Callable[[], object]],
        operators: Operators,
    ) -> None:
        self.broadcast = Broadcast(look, period_s)
        self._title = f"Spillover {about.get('name', '')}".strip()
        self._about = {"kind": kind, "assets": digest(), **about}
        self._actions = actions
        self._operators = operators

    def close(self) -> None:
        self.broadcast.close()

    def mount(self, app: FastAPI) -> None:
        @app.get(PATH, response_class=HTMLResponse)
        async def console(request: Request) -> Response:
            """Shows what happens here, live, for people."""
            return self._page(request)

        hidden: dict[str, Any] = {"include_in_schema": False}
        app.add_api_route("/", _to_the_page, methods=["GET", "HEAD"], **hidden)
        app.add_api_route(f"{PATH}/", _without_slash, **hidden)
        app.add_api_route(f"{PATH}/assets/{{version}}/{{name:path}}", _asset, **hidden)
        app.add_api_route(f"{PATH}/{{action}}", self._act, methods=["POST"], **hidden)
        app.add_api_route(EVENTS_PATH, self._listen, methods=["GET"], **hidden)

    # --- routes -------------------------------------------------------------------------------

    def _page(self, request: Request) -> Response:
        tag = f'"{digest()}"'
        headers = {**SAFE_HEADERS, "cache-control": ASKED_AGAIN, "etag": tag}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return HTMLResponse(page(self._title), headers=headers)

    async def _listen(self, request: Request) -> Response:
        return _Stream(self.broadcast, self._hello(request), request.scope)

    async def _act(self, action: str, request: Request) -> Response:
        if action not in self._actions:
            return _refusal(404, "not_found", f"POST {PATH}/{action}: Not Found")
        why_not = self._operators.why_not_now(_client(request), request.headers)
        if why_not is not None:
            return _refusal(403, "not_allowed", why_not)
        self._actions[action]()
        return Response(status_code=202, headers=SAFE_HEADERS)

    def _hello(self, request: Request) -> bytes:
        """Returns the first message to the page. Its request decides whether it may operate."""
        why_not = self._operators.why_not(_client(request), request.headers)
        if not may_in(request.scope, Role.OPERATE):
            why_not = NO_OPERATOR
        told = {**self._about, "actions": list(self._actions), "why_not": why_not}
        return b"retry: %d\nevent: hello\ndata: %b\n\n" % (RETRY_MS, json.dumps(told).encode())


async def _to_the_page() -> Response:
    """Relative, so that it works behind a prefix."""
    return RedirectResponse(PATH.removeprefix("/"), 307)


async def _without_slash() -> Response:
    return RedirectResponse("../console", 308)


async def _asset(version: str, name: str) -> Response:
    found = assets().get(name) if version == digest() else None
    if found is None:
        return _refusal(404, "not_found", f"GET {PATH}/assets/{version}/{name}: Not Found")
    headers = {**SAFE_HEADERS, "cache-control": KEPT, "content-type": found.content_type}
    return Response(found.content, headers=headers)


def _refusal(status: int, reason: str, detail: str, retry_after_s: float | None = None) -> Response:
    problem = Problem(reason, detail, retry_after_s=retry_after_s, own_status=status)
    return as_response(problem, SAFE_HEADERS)


def _client(request: Request) -> str | None:
    return None if request.client is None else request.client.host


class _Stream(Response):
    """Server-sent events to one listener, if there is a place."""

    def __init__(self, broadcast: Broadcast, hello: bytes, scope: Scope) -> None:
        headers = {"content-type": "text/event-stream", "cache-control": "no-store"}
        super().__init__(headers={**headers, "x-accel-buffering": "no", **SAFE_HEADERS})
        del self.headers["content-length"]  # nobody knows it yet
        self._broadcast = broadcast
        self._hello = hello
        self._still_let_in = partial(still_let_in, scope)
        self._holder = name_in(scope)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._broadcast.join(self._holder)
        except TooManyListeners as error:
            detail = f"expected at most {error}"
            refusal = _refusal(503, "too_many_listeners", detail, RETRY_AFTER_S)
            await refusal(scope, receive, send)
            return
        exchange: Exchange = scope[EXCHANGE]
        break_off = exchange.take_over()
        writing = asyncio.create_task(self._write(send))
        leaving = asyncio.create_task(_gone(receive))
        try:
            await asyncio.wait((writing, leaving), return_when=asyncio.FIRST_COMPLETED)
            if writing.done() and not writing.result():
                break_off()
        finally:
            self._broadcast.leave(self._holder)
            for task in (writing, leaving):
                task.cancel()
            await asyncio.gather(writing, leaving, return_exceptions=True)

    async def _write(self, send: Send) -> bool:
        """Write updates, and return whether the listener has kept up until the end."""
        with suppress(TimeoutError):
            start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
            await send(start)
            await _send(send, self._hello)
            async for event in self._broadcast.events():
                if not self._still_let_in():
                    break
                await _send(send, event)
            await _send(send, b"", more=False)
            return True
        return False


async def _send(send: Send, body: bytes, *, more: bool = True) -> None:
    async with asyncio.timeout(UNREAD_S):
        await send({"type": "http.response.body", "body": body, "more_body": more})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
