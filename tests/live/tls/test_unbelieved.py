"""Which certificate was not believed, as a line tells it."""

import asyncio
import ssl
import sys
from contextlib import asynccontextmanager

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from spillover.live.http1 import securing
from spillover.live.http1.securing import Unbelieved
from spillover.live.tls import unbelieved
from spillover.live.tls.contexts import server_context
from spillover.live.tls.material import described
from support.loop import until

ON_ASYNCIO = pytest.mark.parametrize("loop", [asyncio.new_event_loop])
"""Whose servers see at once that a connection is closed."""


class Silent(asyncio.Protocol):
    """Notes who has come."""

    def __init__(self, came):
        self._came = came

    def connection_made(self, transport):
        self._came.append(transport)


@asynccontextmanager
async def serving(context):
    """A server that says nothing by itself: its port, and who has come."""
    came = []
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Silent(came), "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1], came
    finally:
        for transport in came:
            transport.abort()
        server.close()


@pytest.mark.parametrize("callers", [ssl.CERT_NONE, ssl.CERT_OPTIONAL, ssl.CERT_REQUIRED])
async def test_it_is_told_which_one_is_shown(material, callers):
    """Also where nobody gets in without a certificate, and whatever its name."""
    async with serving(server_context(material, callers=callers)) as (port, _):
        told = await Unbelieved("b.test.spillover").look("127.0.0.1", port)
        assert told == f"; it shows {described(material.leaf)}"


def test_what_cannot_be_read_is_not_told(material, monkeypatch):
    """Where nothing is installed that reads certificates, and where one is none."""
    der = material.leaf.public_bytes(Encoding.DER)
    assert unbelieved._in_words(der) == described(material.leaf)
    assert unbelieved._in_words(b"nothing") is None
    monkeypatch.setitem(sys.modules, "cryptography", None)
    assert unbelieved._in_words(der) is None


@ON_ASYNCIO
async def test_who_was_looked_at_is_let_go_of(loop, material):
    """At once: it may have few connections."""
    context = server_context(material, callers=ssl.CERT_NONE)
    async with serving(context) as (port, came):
        assert await unbelieved.certificate_shown("127.0.0.1", port, "a.test.spillover")
        await until(lambda: came and came[0].is_closing())


@ON_ASYNCIO
async def test_it_is_looked_at_now_and_then(loop, material, monkeypatch):
    context = server_context(material, callers=ssl.CERT_NONE)
    async with serving(context) as (port, came):
        seen = Unbelieved("a.test.spillover")
        told = {await seen.look("127.0.0.1", port) for _ in range(5)}
        await until(lambda: len(came) == 1)
        assert len(told) == 1
        monkeypatch.setattr(securing, "LOOK_AGAIN_S", 0.0)
        assert {await seen.look("127.0.0.1", port)} == told
        await until(lambda: len(came) == 2)


async def test_nothing_is_told_of_who_shows_none(monkeypatch):
    """Who speaks no TLS, who says nothing, and who is not there."""
    monkeypatch.setattr(unbelieved, "LOOK_S", 0.2)

    async with serving(None) as (port, _):
        assert not await Unbelieved("a.test.spillover").look("127.0.0.1", port)
    assert not await Unbelieved("a.test.spillover").look("127.0.0.1", port)
