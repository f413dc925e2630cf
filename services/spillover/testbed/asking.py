"""What nodes of a testbed say of themselves over HTTP, however they are just now."""

from __future__ import annotations

from typing import Any

import httpx


async def told(client: httpx.AsyncClient, url: str) -> dict[str, Any]:
    """Returns the object that is told at this url; an empty one where that is none."""
    try:
        said = (await client.get(url)).json()
    except (httpx.HTTPError, ValueError):
        return {}
    return said if isinstance(said, dict) else {}


async def answers(client: httpx.AsyncClient, url: str, cluster: str) -> bool:
    """Returns whether the node of this cluster is there."""
    return bool((await told(client, f"{url}/state")).get("cluster") == cluster)


async def is_up(client: httpx.AsyncClient, url: str) -> bool:
    """Returns whether the node there takes requests, and hears all its neighbors. It may be that
    nothing runs them: they can wait, or go elsewhere. If somebody else is there, the node will find
    out and tell."""
    state = await told(client, f"{url}/state")
    try:
        return not state["draining"] and all(one["alive"] for one in state["neighbors"])
    except (LookupError, TypeError):
        return False
