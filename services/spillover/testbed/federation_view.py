"""The whole federation as seen by walking from node to node along the links."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from spillover.model.errors import RunError

ASK_WITHIN_S = 1.0
CLUSTERS_MAX = 1000


async def walk_federation(url: str) -> dict[str, Any]:
    """Every cluster that can be reached from `url`, in the shape of `GET /federation`:
    {"clusters": {id: state or {"unreachable": true}}, "links": [[id, id], ...]}.

    Raises RunError if the first node does not answer.
    """
    async with httpx.AsyncClient(timeout=ASK_WITHIN_S, trust_env=False) as client:
        first = await _state(client, url)
        if first is None:
            raise RunError(f"no Spillover node answers at {url}")
        clusters: dict[str, Any] = {first["cluster"]: first}
        links: set[tuple[str, str]] = set()
        fresh = [first]
        while fresh and len(clusters) < CLUSTERS_MAX:
            to_ask: dict[str, str] = {}
            for state in fresh:
                for neighbor in state["neighbors"]:
                    one, other = sorted((state["cluster"], neighbor["id"]))
                    links.add((one, other))
                    if neighbor["id"] not in clusters and neighbor["url"] is not None:
                        to_ask[neighbor["id"]] = neighbor["url"]
            answers = await asyncio.gather(*(_state(client, u) for u in to_ask.values()))
            for cluster, answer in zip(to_ask, answers, strict=True):
                clusters[cluster] = {"unreachable": True} if answer is None else answer
            fresh = [answer for answer in answers if answer is not None]
    return {
        "clusters": {cluster: clusters[cluster] for cluster in sorted(clusters)},
        "links": [list(link) for link in sorted(links)],
    }


async def _state(client: httpx.AsyncClient, url: str) -> dict[str, Any] | None:
    try:
        response = await client.get(f"{url}/state")
        response.raise_for_status()
        state: dict[str, Any] = response.json()
    except (httpx.HTTPError, ValueError):
        return None
    return state if "cluster" in state and "neighbors" in state else None
