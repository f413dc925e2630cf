"""A client that follows the federation has a session at one node, which sends it the list of nodes,
and goes where the rule says (decision 0041). Requests go to the node of the session, and to the
others when it fails. Given the Redis in which nodes keep their configuration, it reads the list
from there, too."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING

from spillover.client.nodes import Nodes
from spillover.core.membership.session_events import servers_of
from spillover.live.http1.client import HttpClient
from spillover.live.http1.trust import Trust
from spillover.live.membership.session_shell import SessionShell, session_of
from spillover.model.errors import blamed_on
from spillover.model.extras import check_extra

if TYPE_CHECKING:
    from spillover.live.membership.store import ConfigurationStore
    from spillover.live.redis.rotation import RedisUrl
    from spillover.model.configuration import Configuration

CONNECT_S = 2.0
USER_TIMEOUT_S = 10.0


class FederationFollower:
    """This keeps `nodes` as the federation has them, from `start` to `close`. `headers` go with
    each request of the session. With a `store` it reads from there, too, until it is closed."""

    def __init__(
        self,
        nodes: Nodes,
        headers: Sequence[tuple[bytes, bytes]],
        trust: Trust,
        store: ConfigurationStore | None = None,
    ) -> None:
        self._nodes = nodes
        self._store = store
        self._listening: asyncio.Task[None] | None = None
        self._headers = headers
        self._trust = trust
        self._random = Random()
        self._clients: dict[str, HttpClient] = {}
        self.session: SessionShell | None = None
        self._listed: set[str] = set()

    def start(self) -> None:
        """Begin to follow, in the running loop."""
        name = secrets.token_hex(12)
        urls = self._nodes.urls
        self.session = session_of(name, urls, self._random, self._client, self._changed)
        self.session.start()
        if self._store is not None:
            listening = self._store.listen(self._stored)
            self._listening = asyncio.create_task(listening, name="the configuration in Redis")

    async def close(self) -> None:
        """End the session at the node, and stop reading from the store."""
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait([self._listening])
        if self._store is not None:
            await self._store.close()
        if self.session is not None:
            await self.session.close()
        for client in self._clients.values():
            await client.close()

    def close_copies(self) -> None:
        """Close the copies of the connections in a forked process."""
        for client in self._clients.values():
            client.close_copies()

    def _stored(self, kept: Configuration) -> None:
        if self.session is not None:
            self.session.listed(kept.stamp, servers_of(kept.topology))

    def _changed(self) -> None:
        session = self.session
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


def store_at(redis_url: RedisUrl, federation: str) -> ConfigurationStore:
    """Returns the store of a federation's configuration. Raises InputError if the url is none, or
    the library is not there, which is loaded only here."""
    check_extra("redis_url", "leases", "redis")
    from spillover.live.membership.store import ConfigurationStore  # noqa: PLC0415

    with blamed_on("redis_url"):
        return ConfigurationStore(redis_url, federation)
