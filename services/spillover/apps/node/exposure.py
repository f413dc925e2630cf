"""The paths that are answered at each socket: the public one, and the one for neighbors alone.

They are thin ASGI apps around the node's own. What is behind a path is not known here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from spillover.apps.http.asgi import Receive, Scope, Send
from spillover.apps.http.exchange import EXCHANGE, Exchange
from spillover.apps.http.problems import Problem
from spillover.apps.http.service import Edge
from spillover.live.http1.written import CLOSE
from spillover.live.overflow.identity import HELLO, Peers, TurnedAway
from spillover.live.overflow.protocol import AT_SIBLING, PEER_PREFIX


class EdgedApp(Protocol):
    """An app that says how its connections are to be served."""

    @property
    def edge(self) -> Edge: ...

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...


class PublicOnly:
    """The app at a socket for clients, where nothing under /peer/ is answered: neighbors have a
    socket of their own."""

    def __init__(self, app: EdgedApp) -> None:
        self._app = app
        self.edge: Edge = _edge_of(app, of_peers=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"].startswith(PEER_PREFIX):
            scope[EXCHANGE].refuse(_not_here(scope))
            return
        await self._app(scope, receive, send)


class PeersOnly:
    """The app at a socket for neighbors, which get only /peer/ and /healthz. It also serves other
    nodes of the cluster, unless those have a socket of their own (`has_siblings`)."""

    def __init__(self, app: EdgedApp, *, has_siblings: bool = True) -> None:
        self._app = app
        self._has_siblings = has_siblings
        self.edge: Edge = _edge_of(app, of_peers=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        is_for_them = path == "/healthz" or path.startswith(PEER_PREFIX)
        if not is_for_them or (path.startswith(AT_SIBLING) and not self._has_siblings):
            scope[EXCHANGE].refuse(_not_here(scope))
            return
        await self._app(scope, receive, send)


class CertifiedPeers:
    """The app in front of /peer/ that lets in nodes which have proved to be the cluster that they
    claim. Which of them is a neighbor is checked where that matters."""

    def __init__(self, app: EdgedApp, peers: Peers) -> None:
        self._app = app
        self._peers = peers
        self.edge: Edge = app.edge

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange: Exchange = scope[EXCHANGE]
        if scope["path"].startswith(PEER_PREFIX) and exchange.connection.peer is None:
            try:
                self._peers.member(exchange.connection, dict(exchange.headers).get(HELLO))
            except TurnedAway as error:
                headers = self._peers.who_this_is()
                if exchange.connection.certificate is None:
                    headers.append(CLOSE)  # a new connection may have a valid one
                exchange.refuse(Problem("not_a_neighbor", str(error), headers=headers))
                return
        await self._app(scope, receive, send)


def _edge_of(app: EdgedApp, *, of_peers: bool) -> Edge:
    """Returns the requests that need no task at a socket for neighbors alone, or at that of all
    others."""
    direct = app.edge.direct
    return replace(app.edge, direct=None if direct is None else direct.only(of_peers=of_peers))


def _not_here(scope: Scope) -> Problem:
    return Problem("not_found", f"{scope['method']} {scope['path']}: Not Found")
