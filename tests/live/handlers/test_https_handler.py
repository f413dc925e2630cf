"""The handler `http:https://...`: a service has to prove that it is the host of its url, to a CA of
the file that the environment names, or of the system. One that does not gets nothing."""

import asyncio
import ssl

import pytest

pytest.importorskip("cryptography")

from spillover.core.overflow.events import NotStarted
from support.certificates import Authority, put
from support.handler_rig import Rig, result

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Type: application/json\r\n\r\n[1]"


@pytest.fixture
def authority():
    return Authority()


@pytest.fixture
def served(authority, tmp_path):
    """What a service shows: that it is localhost."""
    files = put(tmp_path, "service", authority.sign("localhost"), authority)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.cert, files.key)
    return context, files.ca


async def outcome(context, host):
    """What a request comes to that a service with this context gets, and how many it gets."""
    got = []

    async def serve(reader, writer):
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]
            got.append(await reader.readexactly(int(length)))
            writer.write(OK)
            await reader.read()
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        async with Rig(f"http:https://{host}:{port}/run", servers=1) as rig:
            return await rig.run(b'{"n": 1}'), got


async def test_a_service_that_proves_its_name_gets_the_work(served, monkeypatch):
    context, ca_file = served
    monkeypatch.setenv("SPILLOVER_CA_FILE", ca_file)
    event, got = await outcome(context, "localhost")
    assert result(event) == [1]
    assert got == [b'{"n": 1}']


async def test_others_get_nothing(served, tmp_path, monkeypatch):
    """One of another name, and one that a stranger vouches for. The work is decided again."""
    context, ca_file = served
    foreign = tmp_path / "foreign.ca"
    foreign.write_bytes(Authority("another").pem)
    for file, host in ((ca_file, "127.0.0.1"), (str(foreign), "localhost"), ("", "localhost")):
        monkeypatch.setenv("SPILLOVER_CA_FILE", file)
        event, got = await outcome(context, host)
        assert isinstance(event, NotStarted)
        assert got == []
