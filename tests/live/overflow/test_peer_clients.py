"""The HTTP clients that a node asks others with: how much of an answer one takes, and where it
connects to."""

from types import SimpleNamespace

import pytest

from spillover.live.overflow.identity import HELLO, hello_of
from spillover.live.overflow.peer_clients import (
    CANCELS_AT_ONCE_MAX,
    CONNECTIONS_SPARE,
    CONNECTIONS_TLS_MAX,
    PeerClients,
)
from spillover.live.overflow.report_streams import STREAMS_PER_NEIGHBOR_MAX
from spillover.live.overflow.wire import Caller
from spillover.model.errors import InputError, OutcomeUnknown
from spillover.model.topology import Cluster, Topology
from support.scripted_server import answer, scripted

CLIENTS_TOPOLOGY = Topology(name="test", clusters=(Cluster(id="a", servers=1),))
CLIENTS = PeerClients(CLIENTS_TOPOLOGY, None)


async def test_what_a_question_is_answered_with_is_read_up_to_a_limit():
    """Whoever answers may be no good: what is announced as more is not waited for."""
    async with scripted(answer(200, b"x" * 100), answer(200, b"x" * 101)) as node:
        client = CLIENTS.of_question(node.url, Caller("a", "b"), 100)
        try:
            response = await client.request("GET", "/peer/configuration", timeout_s=20.0)
            assert response.body == b"x" * 100
            with pytest.raises(OutcomeUnknown, match="answer exceeds 100 bytes"):
                await client.request("GET", "/peer/configuration", timeout_s=20.0)
        finally:
            await client.close()


def test_without_certificates_only_what_is_not_encrypted_is_called():
    assert CLIENTS.can_call("http://h:1")
    assert not CLIENTS.can_call("https://h:1")


SECURE = Topology(name="test", clusters=(Cluster(id="a", servers=1, url="https://a:1"),))


def test_certificates_are_needed_where_nodes_have_to_prove_who_they_are():
    with pytest.raises(InputError, match="expected certificates for nodes whose urls are https://"):
        PeerClients(SECURE, None)
    shown = SimpleNamespace(on_look=[])
    secure, plain = PeerClients(SECURE, shown), PeerClients(CLIENTS_TOPOLOGY, shown)
    assert (secure.is_secure, plain.is_secure) == (True, False), "they are for other doors"
    assert len(shown.on_look) == 1
    assert secure.can_call("https://h:1")
    assert not secure.can_call("http://h:1")
    assert (secure.streams_max, plain.streams_max) == (1, STREAMS_PER_NEIGHBOR_MAX)


def test_a_link_has_a_connection_for_each_request_away_for_cancels_and_some_to_spare():
    """Up to a limit where each takes much."""
    secure = PeerClients(SECURE, SimpleNamespace(on_look=[]))
    spare = CANCELS_AT_ONCE_MAX + CONNECTIONS_SPARE
    assert CLIENTS.connections_max(1000) == 1000 + spare
    assert secure.connections_max(100) == 100 + spare
    assert secure.connections_max(1000) == CONNECTIONS_TLS_MAX


async def test_a_client_of_a_link_says_who_calls_and_has_no_more_connections_than_that():
    caller = Caller("a", "b", "test")

    async with scripted(answer(200)) as node:
        client = CLIENTS.of_link(node.url, caller, 7, reads_small=False)
        try:
            assert client.connections_max == CLIENTS.connections_max(7)
            await client.request("GET", "/", timeout_s=20.0)
            ((_, headers),) = node.seen
            assert headers[HELLO.decode().lower()] == hello_of(caller).decode()
        finally:
            await client.close()
