"""The CAs that a client believes: their file is read again once it has changed, for the next
connection."""

import asyncio
import logging
import os
import ssl
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from spillover.live.http1 import securing, trusted
from spillover.live.http1.client import HttpClient
from spillover.live.http1.trusted import TrustedCas
from spillover.model.errors import InputError, NotBelieved
from support.certificates import Authority, put

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"


@pytest.fixture
def of_service(tmp_path):
    """The files of a service that is localhost."""
    authority = Authority()
    return put(tmp_path, "service", authority.sign("localhost"), authority)


async def test_a_file_that_changes_counts_from_the_next_connection_on(
    of_service, tmp_path, monkeypatch, caplog
):
    """Also where the environment names it; and one that is no such file leaves them, and is told
    once."""
    file = tmp_path / "trusted.crt"
    file.write_bytes(Authority("another").pem)
    monkeypatch.setenv("SPILLOVER_CA_FILE", str(file))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(of_service.cert, of_service.key)
    ca = Path(of_service.ca).read_bytes()  # noqa: ASYNC240 - nobody waits

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)
        writer.close()

    caplog.set_level(logging.INFO, trusted.__name__)

    async with await asyncio.start_server(serve, "localhost", 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        given = (None, TrustedCas(str(file)))
        clients = [HttpClient(f"https://localhost:{port}", tls=tls) for tls in given]

        async def asked():
            calls = (one.request("GET", "/", timeout_s=10.0) for one in clients)
            return await asyncio.gather(*calls, return_exceptions=True)

        assert [type(one) for one in await asked()] == [NotBelieved] * 2
        beside = file.with_suffix(".new")
        beside.write_bytes(ca)
        beside.replace(file)
        assert [one.status for one in await asked()] == [200, 200]
        file.write_bytes(b"-----BEGIN CERTIFICATE-----\n")
        assert [one.status for one in await asked()] == [200, 200]
        file.unlink()
        assert [one.status for one in await asked()] == [200, 200]
        said = [one.msg for one in caplog.records if one.name == trusted.__name__]
        assert {one.fields["file"] for one in said if "renewed" in one.words} == {str(file)}
        reasons = [one.fields["reason"] for one in said if "stay as they were" in one.words]
        assert len(reasons) == 4, "of each client, twice"
        assert all(str(file) in reason for reason in reasons)
        for client in clients:
            await client.close()


async def test_who_waits_for_a_turn_takes_what_is_free_by_then(of_service, monkeypatch):
    """No more handshakes are done than are needed; and of connections that are closed nothing is
    known any more."""
    monkeypatch.setattr(securing, "HANDSHAKES_AT_ONCE", 1)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(of_service.cert, of_service.key)
    opened = []

    async def serve(reader, writer):
        opened.append(writer)
        while await reader.read(65_536):
            writer.write(OK.replace(b"Connection: close\r\n", b""))
        writer.close()

    async with await asyncio.start_server(serve, "localhost", 0, ssl=context) as server:
        url = f"https://localhost:{server.sockets[0].getsockname()[1]}"
        client = HttpClient(url, tls=TrustedCas(of_service.ca))
        calls = (client.request("GET", "/", timeout_s=10.0) for _ in range(6))
        assert {one.status for one in await asyncio.gather(*calls)} == {200}
        assert len(client._securing.certificates) == len(opened) < 6
        await client.close()
        assert not client._securing.certificates


def test_a_file_that_is_given_counts_and_not_that_of_the_environment(of_service, monkeypatch):
    monkeypatch.setenv("SPILLOVER_CA_FILE", "/nowhere/at-all.crt")
    assert len(TrustedCas(of_service.ca).context().get_ca_certs()) == 1
    with pytest.raises(InputError):
        TrustedCas(None)


def test_a_pipe_is_no_file_of_cas(of_service, tmp_path, caplog):
    """Nobody waits for what is written to it: not at the start, and not where it takes the place of
    a file later."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(InputError, match="pipe: expected a file, got something else"):
        TrustedCas(str(pipe))
    cas = TrustedCas(of_service.ca)
    before = cas.context()
    pipe.replace(of_service.ca)
    for _ in range(2):
        assert cas.context() is before
    (told,) = caplog.records
    assert "stay as they were" in told.msg.words
    assert "got something else" in told.msg.fields["reason"]
