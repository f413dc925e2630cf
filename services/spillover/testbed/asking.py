"""Questions to nodes of a testbed over HTTP, in whatever state they are just now."""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from typing import Any, Self

from spillover.live.http1.client import HttpClient
from spillover.model.errors import PeerError

ANSWER_WITHIN_S = 2.0


class Asking:
    """Asks nodes by connections that are kept, to be used with `async with`. `shown` are headers
    that go with each question; nodes at `https://` are believed by `tls`."""

    def __init__(self, shown: Mapping[str, str], tls: ssl.SSLContext | None = None) -> None:
        self._headers = [(name.encode(), value.encode()) for name, value in shown.items()]
        self._tls = tls
        self._clients: dict[str, HttpClient] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self._clients.values():
            await client.close()

    async def told(self, url: str, path: str = "/state") -> dict[str, Any]:
        """Returns the object that is told there; an empty one where that is none."""
        client = self._clients.get(url)
        if client is None:
            tls = self._tls if url.startswith("https:") else None
            client = self._clients[url] = HttpClient(url, headers=self._headers, tls=tls)
        try:
            answer = await client.request("GET", path, timeout_s=ANSWER_WITHIN_S)
            said = json.loads(answer.body)
        except (PeerError, ValueError, RecursionError):
            return {}
        return said if isinstance(said, dict) else {}

    async def answers(self, url: str, cluster: str) -> bool:
        return bool((await self.told(url)).get("cluster") == cluster)

    async def is_up(self, url: str) -> bool:
        """Returns whether the node there takes requests, and hears all its neighbors. It may be
        that nothing runs them: they can wait, or go elsewhere. If somebody else is there, the node
        will find out and tell."""
        state = await self.told(url)
        try:
            return not state["draining"] and all(one["alive"] for one in state["neighbors"])
        except (LookupError, TypeError):
            return False
