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
    {"clusters": {id: state or {"unreachable": true, "last_seen_s"}}, "links": [[id, id], ...]}.
    `last_seen_s` is the age of the newest report that any neighbor has of it, None without one.

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
            to_ask: dict[str, str | None] = {}
            for state in fresh:
                for neighbor in state["neighbors"]:
                    one, other = sorted((state["cluster"], neighbor["id"]))
                    links.add((one, other))
                    if neighbor["id"] not in clusters:
                        to_ask[neighbor["id"]] = neighbor["url"]
            answers = await asyncio.gather(*(_state(client, u) for u in to_ask.values()))
            for cluster, answer in zip(to_ask, answers, strict=True):
                clusters[cluster] = {"unreachable": True} if answer is None else answer
            fresh = [answer for answer in answers if answer is not None]
    _add_last_seen(clusters)
    return {
        "clusters": {cluster: clusters[cluster] for cluster in sorted(clusters)},
        "links": [list(link) for link in sorted(links)],
    }


async def _state(client: httpx.AsyncClient, url: str | None) -> dict[str, Any] | None:
    """What `/state` says there, or None: nobody in time, or nobody that speaks as a node does."""
    if url is None:
        return None
    try:
        async with asyncio.timeout(ASK_WITHIN_S):
            response = await client.get(f"{url}/state")
        response.raise_for_status()
        state = response.json()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, OverflowError, TimeoutError):
        return None
    return state if _is_state(state) else None


def _is_state(answer: Any) -> bool:
    if not isinstance(answer, dict) or not isinstance(answer.get("cluster"), str):
        return False
    neighbors = answer.get("neighbors")
    return isinstance(neighbors, list) and all(
        isinstance(neighbor, dict) and {"id", "url", "alive", "age_ms"} <= neighbor.keys()
        for neighbor in neighbors
    )


def _add_last_seen(clusters: dict[str, Any]) -> None:
    seen_s: dict[str, float] = {}
    for state in clusters.values():
        for neighbor in state.get("neighbors", ()):
            if neighbor["age_ms"] is not None:
                age_s = neighbor["age_ms"] / 1e3
                seen_s[neighbor["id"]] = min(age_s, seen_s.get(neighbor["id"], age_s))
    for cluster, state in clusters.items():
        if "unreachable" in state:
            state["last_seen_s"] = seen_s.get(cluster)
