"""Which paths are answered at which socket: the public one, and the one for neighbors alone.

Thin ASGI apps around the node's own. What is behind a path is not known here.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Protocol

from spillover.apps.http.asgi import AsgiApp, Receive, Scope, Send
from spillover.apps.http.exchange import EXCHANGE
from spillover.apps.http.problems import Problem
from spillover.apps.http.service import Edge

PEER_PREFIX = "/peer/"
SPOKEN = "v1"
"""The version of what nodes say to each other: the first part of a path behind /peer/."""

_OTHER_VERSION = re.compile(rf"{PEER_PREFIX}(?!{SPOKEN}(?:/|\Z))v[0-9]+(?:/|\Z)")


class EdgedApp(Protocol):
    """One that says how its connections are to be served."""

    @property
    def edge(self) -> Edge: ...

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...


class PublicOnly:
    """For clients, where neighbors have a socket of their own: nothing under /peer/."""

    def __init__(self, app: EdgedApp) -> None:
        self._app = app
        self.edge: Edge = app.edge

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"].startswith(PEER_PREFIX):
            scope[EXCHANGE].refuse(_not_here(scope))
            return
        await self._app(scope, receive, send)


class PeersOnly:
    """For neighbors: /peer/ and /healthz alone."""

    def __init__(self, app: EdgedApp) -> None:
        self._app = app
        self.edge = replace(app.edge, direct=None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if path != "/healthz" and not path.startswith(PEER_PREFIX):
            scope[EXCHANGE].refuse(_not_here(scope))
            return
        await self._app(scope, receive, send)


class PeerVersions:
    """Refuses paths of another version of the protocol between nodes with a reason of its own.
    It stands behind the hot paths, which have the version that is spoken."""

    def __init__(self, app: AsgiApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if _OTHER_VERSION.match(scope["path"]):
            detail = f"{scope['path']}: expected {PEER_PREFIX}{SPOKEN}/, the version spoken here"
            scope[EXCHANGE].refuse(Problem("wrong_version", detail))
            return
        await self._app(scope, receive, send)


def _not_here(scope: Scope) -> Problem:
    return Problem("not_found", f"{scope['method']} {scope['path']}: Not Found")
