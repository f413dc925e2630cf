"""Nodes that prove to each other who they are, on real sockets."""

from __future__ import annotations

import asyncio
import json

from support.federation import run, topology_of
from support.secure_federation import SecureFederation

BUSY = {"a": {"service_ms": 100.0}}


def _pair(tmp_path, **fields):
    return SecureFederation(topology_of("a", "b", **fields), directory=tmp_path)


async def _flood(node, number):
    """Requests at once, more than the node takes alone; their statuses and where they ran."""
    answers = await asyncio.gather(*(node.post({"service_ms": 30}) for _ in range(number)))
    return [answer.status for answer in answers], {
        json.loads(answer.body).get("cluster") for answer in answers
    }


def test_forwards_over_tls(tmp_path):
    """Requests go to a neighbor and come back, over one link that both ends believe."""

    async def main():
        async with _pair(tmp_path) as pair:
            statuses, clusters = await _flood(pair["a"], 20)
            assert set(statuses) == {200}
            assert clusters == {"a", "b"}
            assert pair.credentials["a"].failures == pair.credentials["b"].failures
            assert not any(pair.credentials["a"].failures.values())

    run(main)
