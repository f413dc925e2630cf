"""A client that follows at a node that lies about where the others are: its API token stays where
nobody on the way can read it, and with those whom its CA vouches for."""

import asyncio
import ssl

import pytest

pytest.importorskip("cryptography")

from spillover.client import AsyncSpillover, Retries, SpilloverError
from spillover.core.membership.session_events import SessionServer
from spillover.live.membership.session_wire import encode_announcement, encode_head
from support.certificates import Authority, put
from support.loop import until

SECRET = "spillover_of-nobody-else"  # noqa: S105 - it is none


def serving(context):
    """A certificate's server context."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(context.cert, context.key)
    return made


def files_of(directory, authority, *trusted):
    return put(directory, "files", authority.sign("localhost"), *trusted)


def door(heard, told):
    """What answers there: a session that says what is `told`; other requests are refused."""

    async def serve(reader, writer):
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            heard.append(head)
            if head.startswith(b"GET /session"):
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\n\r\n")
                writer.write(told[0])
                await reader.read()
            else:
                writer.write(b"HTTP/1.1 503 x\r\nContent-Length: 0\r\n\r\n")
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.close()

    return serve


async def test_an_api_token_goes_to_no_http_and_to_nobody_whom_another_ca_vouches_for(tmp_path):
    own, another = Authority(), Authority("another")
    files = files_of(tmp_path / "own", own, own)
    foreign = files_of(tmp_path / "foreign", another, another)
    heard = {"own": [], "plain": [], "foreign": []}
    told = []
    contexts = {"own": serving(files), "plain": None, "foreign": serving(foreign)}
    servers, urls = [], {}
    for name, context in contexts.items():
        server = await asyncio.start_server(door(heard[name], told), "localhost", 0, ssl=context)
        servers.append(server)
        scheme = "http" if context is None else "https"
        urls[name] = f"{scheme}://localhost:{server.sockets[0].getsockname()[1]}"
    listed = [SessionServer(name, url) for name, url in urls.items()]
    told.append(encode_announcement(encode_head("own", 1, (1, "own", 1), listed), 1, 0, 0.0))
    once = Retries(rounds=1, comeback_s=0.2)
    async with AsyncSpillover(
        urls["own"], token=SECRET, follow=True, ca_file=files.ca, retries=once
    ) as client:
        for _ in range(2):
            with pytest.raises(SpilloverError):
                await client.run(None, deadline_s=0.5)
            await until(lambda: len(client.nodes.urls) == 2)
        assert set(client.nodes.urls) == {urls["own"], urls["foreign"]}
    for server in servers:
        server.close()
    assert any(SECRET.encode() in head for head in heard["own"])
    assert heard["plain"] == []
    assert heard["foreign"] == []
