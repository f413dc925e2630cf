"""Nodes whose urls are https: whom a client believes, and by what."""

import asyncio
import ssl

import pytest

pytest.importorskip("cryptography")

from spillover.client import AsyncSpillover, Retries, Spillover, Unreachable
from spillover.live.tls.contexts import server_context
from spillover.live.tls.material import read_material
from support.certificates import Authority, put
from support.scripted_server import done, scripted_aside

AT_ONCE = Retries(rounds=1)


@pytest.fixture
def node(tmp_path):
    """A node that is 127.0.0.1, and the file with the CA of its certificate."""
    authority = Authority()
    files = put(tmp_path, "a", authority.sign("localhost", addresses=("127.0.0.1",)), authority)
    context = server_context(read_material(files, None), callers=ssl.CERT_NONE)
    with scripted_aside(done(7), tls=context) as server:
        yield server, files.ca


def asked(url, *, awaits, **options):
    """What a client is answered there, twice."""

    async def ask():
        async with AsyncSpillover(url, retries=AT_ONCE, **options) as client:
            return [(await client.run(1)).result for _ in range(2)]

    if awaits:
        return asyncio.run(ask())
    with Spillover(url, retries=AT_ONCE, **options) as client:
        return [client.run(1).result for _ in range(2)]


@pytest.mark.parametrize("awaits", [False, True])
def test_a_node_is_believed_by_the_ca_of_the_file_that_the_client_was_given(node, awaits):
    server, ca_file = node
    assert asked(server.url, awaits=awaits, ca_file=ca_file) == [7, 7]
    assert len(server.seen) == 2


@pytest.mark.parametrize("awaits", [False, True])
def test_a_node_is_believed_by_the_file_that_the_environment_names(node, awaits, monkeypatch):
    server, ca_file = node
    monkeypatch.setenv("SPILLOVER_CA_FILE", ca_file)
    assert asked(server.url, awaits=awaits) == [7, 7]


@pytest.mark.parametrize("awaits", [False, True])
def test_a_node_that_nobody_vouches_for_is_shown_nothing(node, awaits, tmp_path):
    server, _ = node
    other = tmp_path / "other.crt"
    other.write_bytes(Authority("another").pem)
    with pytest.raises(Unreachable):
        asked(server.url, awaits=awaits, ca_file=other)
    assert server.seen == []
