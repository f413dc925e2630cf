"""The HTTP clients that a node asks others with: how much of an answer one takes, and where it
connects to."""

from __future__ import annotations

import asyncio

import pytest

from spillover.live.overflow.peer_clients import PeerClients
from spillover.live.overflow.wire import Caller
from spillover.model.errors import OutcomeUnknown
from spillover.model.topology import Cluster, Topology
from support.scripted_server import answer, scripted

CLIENTS = PeerClients(Topology(name="test", clusters=(Cluster(id="a", servers=1),)), None)


def test_what_a_question_is_answered_with_is_read_up_to_a_limit():
    """Whoever answers may be no good: what is announced as more is not waited for."""

    async def main():
        async with scripted(answer(200, b"x" * 100), answer(200, b"x" * 101)) as node:
            client = CLIENTS.of_question(node.url, Caller("a", "b"), 100)
            try:
                response = await client.request("GET", "/peer/configuration", timeout_s=20.0)
                assert response.body == b"x" * 100
                with pytest.raises(OutcomeUnknown, match="answer exceeds 100 bytes"):
                    await client.request("GET", "/peer/configuration", timeout_s=20.0)
            finally:
                await client.close()

    asyncio.run(main())


def test_without_certificates_only_what_is_not_encrypted_is_called():
    assert CLIENTS.can_call("http://h:1")
    assert not CLIENTS.can_call("https://h:1")
