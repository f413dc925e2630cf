"""Which paths are answered at which socket: the public one, and the one for neighbors alone.

Thin ASGI apps around the node's own. What is behind a path is not known here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

from spillover.apps.node.problems import Problem
from spillover.live.overflow.protocol import PEER_PREFIX

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
AsgiApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


class PublicOnly:
    """For clients, where neighbors have a socket of their own: nothing under /peer/."""

    def __init__(self, app: AsgiApp) -> None:
        self._app = app
        # What the protocol looks for in an app; see `http_protocol`.
        self.direct = getattr(app, "direct", None)
        self.writes = getattr(app, "writes", None)
        self.moving = getattr(app, "moving", None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(PEER_PREFIX):
            await _refuse(send, _not_here(scope))
            return
        await self._app(scope, receive, send)


class PeersOnly:
    """For neighbors: /peer/ and /healthz alone."""

    def __init__(self, app: AsgiApp) -> None:
        self._app = app
        self.writes = getattr(app, "writes", None)
        self.moving = getattr(app, "moving", None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if scope["type"] == "http" and path != "/healthz" and not path.startswith(PEER_PREFIX):
            await _refuse(send, _not_here(scope))
            return
        await self._app(scope, receive, send)


def _not_here(scope: Scope) -> Problem:
    return Problem("not_found", f"{scope['method']} {scope['path']}: Not Found")


async def _refuse(send: Send, problem: Problem) -> None:
    body = problem.body()
    headers = [*problem.all_headers(), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
