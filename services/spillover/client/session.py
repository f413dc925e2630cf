"""A client that follows the federation: it has a session at one node, is told there which nodes
there are, and goes where the rule says (decision 0041). Requests go to the node of the session; the
others are where they go when it fails.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from random import Random

from spillover.client.nodes import Nodes
from spillover.live.http.client import HttpClient
from spillover.live.http.trust import Trust
from spillover.live.membership.session_shell import SessionShell, session_of

CONNECT_S = 2.0
USER_TIMEOUT_S = 10.0


class Following:
    """Keeps `nodes` as the federation has them, from `start` to `close`. `headers` go with what is
    asked for."""

    def __init__(self, nodes: Nodes, headers: Sequence[tuple[bytes, bytes]], trust: Trust) -> None:
        self._nodes = nodes
        self._headers = headers
        self._trust = trust
        self._random = Random()
        self._clients: dict[str, HttpClient] = {}
        self._session: SessionShell | None = None
        self._listed: set[str] = set()

    @property
    def session(self) -> SessionShell | None:
        """The session, once it has begun."""
        return self._session

    def start(self) -> None:
        """Begin, in the running loop."""
        name = secrets.token_hex(12)
        urls = self._nodes.urls
        self._session = session_of(name, urls, self._random, self._client, self._changed)
        self._session.start()

    async def close(self) -> None:
        """Leave the node."""
        if self._session is not None:
            await self._session.close()
        for client in self._clients.values():
            await client.close()

    def _changed(self) -> None:
        session = self._session
        if session is None:
            return
        urls = {server.url for server in session.servers}
        if urls != self._listed:
            self._listed = urls
            # Each client in an order of its own: where one node fails, not all go to one other.
            self._nodes.replace(self._random.sample(sorted(urls), len(urls)))
        if session.in_use is not None and session.in_use.url != self._nodes.current:
            self._nodes.use(session.in_use.url)

    def _client(self, url: str) -> HttpClient:
        client = self._clients.get(url)
        if client is None:
            client = self._clients[url] = HttpClient(
                url,
                headers=self._headers,
                connect_timeout_s=CONNECT_S,
                user_timeout_s=USER_TIMEOUT_S,
                tls=self._trust.of(url),
            )
        return client
