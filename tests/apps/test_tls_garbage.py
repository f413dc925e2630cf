"""What comes at a door with TLS and is none: it ends, costs nothing that stays, and nobody else
minds. 1 000 beginnings, and 500 requests behind a handshake that are none; 100 000 of each with
SPILLOVER_SOAK_S in the environment.
"""

import asyncio
import gc
import ssl
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from spillover.apps.http.connection import HttpConnection
from spillover.live.http1.client import HttpClient
from spillover.live.overflow.protocol import FIRST
from spillover.live.tls.contexts import trusting_context
from spillover.model.errors import NotDelivered
from support.federation import run, topology_of, until
from support.malformed import BATCH, BODY, IS_SOAK, Dialect, Sender
from support.secure_federation import SecureFederation

BEGINNINGS = 100_000 if IS_SOAK else 1000
LIMIT_S = 1800.0 if IS_SOAK else 30.0
"""For all of them."""
AT_ONCE = 50
DESCRIPTORS = Path("/proc/self/fd")


def _hello_of_a_client(name=b"a"):
    """The first bytes of a handshake."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(
        incoming, outgoing, server_hostname=name.decode()
    )
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def _beginning(draw, hello):
    """One of many kinds of what is no handshake, or not all of one."""
    place = draw.randrange(1, len(hello))
    return draw.choice(
        (
            b"",
            b"GET /peer/v2/hello HTTP/1.1\r\nHost: a\r\n\r\n",
            draw.randbytes(draw.randrange(1, 3000)),
            hello[:place],
            hello + draw.randbytes(place),
            hello[:place] + draw.randbytes(1) + hello[place + 1 :],
            b"\x16\x03\x01\x40\x00" + draw.randbytes(100),  # more is announced than comes
        )
    )


async def _knock(port, content):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(content)
    with suppress(OSError):
        writer.write_eof()
        while await reader.read(65_536):
            pass
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


def _sockets():
    return sum(1 for _ in DESCRIPTORS.iterdir())


def _objects():
    gc.collect()
    kinds = (HttpConnection, ssl.SSLObject)
    return Counter(type(one).__name__ for one in gc.get_objects() if isinstance(one, kinds))


@pytest.mark.slow
@pytest.mark.skipif(not DESCRIPTORS.exists(), reason="counts sockets as Linux does")
def test_malformed_beginnings_leave_nothing(tmp_path):
    """Thousands of them; requests are served all the while, and by the end nothing is left."""

    async def main():
        async with SecureFederation(topology_of("a"), directory=tmp_path) as alone:
            node, draw, hello = alone["a"], Random(1), _hello_of_a_client()
            port = int(node.url.rpartition(":")[2])
            assert (await node.get("/healthz"))[0] == 200
            sockets, objects = _sockets(), _objects()
            for _ in range(BEGINNINGS // AT_ONCE):
                knocks = (_knock(port, _beginning(draw, hello)) for _ in range(AT_ONCE))
                await asyncio.gather(*knocks)
            assert (await node.post()).status == 200
            await until(lambda: _sockets() <= sockets)
            assert _objects() <= objects
            failures = alone.credentials["a"].failures
            assert failures["in", "no_tls"] > BEGINNINGS / 10

    run(main, limit_s=LIMIT_S)


DIALECT = Dialect(
    fields={b"/requests": (b"payload", b"type"), b"/peer/v2/forward": (b"id", b"path", b"payload")},
    good={
        b"payload": b'{"service_ms":0.1}',
        b"type": b'"default"',
        b"id": b'"f"',
        b"path": b'["b"]',
    },
    odd_paths=[b"/requests/%00", b"/peer/", b"/peer/v2/forward", b"/requests/" + b"x" * 9000, b"*"],
    seeds=[
        b"POST /requests HTTP/1.1\r\nHost: a\r\nContent-Length: 13\r\n\r\n" + BODY,
        b"GET /state HTTP/1.1\r\nHost: a\r\n\r\nGET /healthz HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /peer/v2/hello HTTP/1.1\r\nHost: a\r\nSpillover-Peer: from=b&to=a&speaks=2\r\n\r\n",
    ],
)
JOBS = (100_000 if IS_SOAK else 500) // BATCH


@pytest.mark.slow
@pytest.mark.skipif(not DESCRIPTORS.exists(), reason="counts sockets as Linux does")
def test_malformed_requests_behind_a_handshake_leave_nothing(tmp_path):
    """As without TLS (`test_malformed`): each is answered as it should be, or the connection ends;
    by the end nothing is left."""

    async def main():
        topology = topology_of("a", clusters={"a": {"servers": 20, "service_ms": 0.1}})
        alone = SecureFederation(topology, directory=tmp_path)
        alone.certify("a", name="localhost")
        async with alone:
            node, tls = alone["a"], trusting_context(alone.files["a"].ca)
            sockets, objects = _sockets(), _objects()
            sender = Sender("127.0.0.1", int(node.url.rpartition(":")[2]), DIALECT, tls)
            await sender.run(range(JOBS))
            assert sender.answers.sent == JOBS * BATCH
            assert {200, 400, 403, 422} <= set(sender.answers.by_status)
            await until(lambda: _sockets() <= sockets)
            with suppress(AssertionError):  # what is left says more
                await until(lambda: _objects() <= objects)
            assert _objects() <= objects

    run(main, limit_s=LIMIT_S)


async def test_a_server_name_that_is_no_text(tmp_path, capfd):
    """Is looked at by nobody, and nothing is said of it."""
    async with SecureFederation(topology_of("a"), directory=tmp_path) as alone:
        port = int(alone["a"].url.rpartition(":")[2])
        await _knock(port, _hello_of_a_client(b"name").replace(b"name", b"\xd5ame"))
        assert (await alone["a"].post()).status == 200
    assert "UnicodeDecodeError" not in capfd.readouterr().err


class _Silent(asyncio.Protocol):
    """Takes connections, and says nothing."""

    def __init__(self, taken):
        self._taken = taken

    def connection_made(self, transport):
        self._taken.append(transport)


async def test_handshakes_at_once_are_few(tmp_path):
    """However many requests want a connection; the others wait their turn, or are cancelled."""
    taken, loop = [], asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Silent(taken), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = HttpClient(f"https://127.0.0.1:{port}", tls=trusting_context(None), first=FIRST)
    asked = [client.request("POST", "/x", timeout_s=None) for _ in range(40)]
    await until(lambda: len(taken) == 8)
    for answer in asked[:8]:
        answer.cancel()
    await until(lambda: len(taken) == 16)
    for transport in taken:
        transport.abort()
    told = await asyncio.gather(*asked[8:16], return_exceptions=True)
    assert {type(error) for error in told} == {NotDelivered}
    await client.close()
    for transport in taken:
        transport.abort()
    told = await asyncio.gather(*asked[16:], return_exceptions=True)
    assert {type(error) for error in told} == {NotDelivered}
    server.close()
    await server.wait_closed()
