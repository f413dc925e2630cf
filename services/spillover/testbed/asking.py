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


async def is_ready(client: httpx.AsyncClient, url: str) -> bool:
    """Returns whether the node there takes requests, and hears all its neighbors. If somebody else
    is there, the node will find out and tell."""
    try:
        if (await client.get(f"{url}/readyz")).status_code != httpx.codes.OK:
            return False
        state = await told(client, f"{url}/state")
        return all(neighbor["alive"] for neighbor in state["neighbors"])
    except (httpx.HTTPError, LookupError, TypeError):
        return False
