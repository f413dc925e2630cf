"""Connections whose certificates have changed or are over end with what they carry; and one counts
only once the other end has answered on it, where that is asked for."""

import asyncio
import ssl
from contextlib import asynccontextmanager, suppress

import pytest

pytest.importorskip("cryptography")

from spillover.live.http1.client import HttpClient
from spillover.live.tls.contexts import server_context, trusting_context
from spillover.live.tls.material import read_material
from spillover.model.errors import NotBelieved, OutcomeUnknown
from support.certificates import Authority, put
from support.loop import turn, until

LIMIT_S = 20.0
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
STREAM = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nline\n\r\n"


@pytest.fixture
def files(tmp_path):
    """The files of a server that is 127.0.0.1 and localhost."""
    authority = Authority()
    signed = authority.sign("localhost", addresses=("127.0.0.1",))
    return put(tmp_path, "server", signed, authority)


class Server:
    """Answers once it may. What was asked for on each connection; None where it has ended."""

    def __init__(self):
        self.asked = []
        self.open = []
        self.may_answer = asyncio.Event()
        self.hangs_up_on = ()
        self.said = {b"/stream": STREAM}

    async def talk(self, reader, writer):
        own = []
        self.asked.append(own)
        self.open.append(own)
        with suppress(asyncio.IncompleteReadError, OSError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                assert b"content-length" not in head.lower()
                path = head.split()[1]
                own.append(path)
                if path in self.hangs_up_on:
                    break
                if path == b"/slow":
                    await self.may_answer.wait()
                writer.write(self.said.get(path, OK))
        self.open.remove(own)
        writer.close()


@asynccontextmanager
async def serving(files, **options):
    server = Server()
    context = None
    if files is not None:
        context = server_context(read_material(files, None), callers=ssl.CERT_NONE)
        options["tls"] = trusting_context(files.ca)
    async with await asyncio.start_server(server.talk, "127.0.0.1", 0, ssl=context) as listening:
        scheme = "http" if files is None else "https"
        url = f"{scheme}://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        client = HttpClient(url, **options)
        try:
            yield client, server
        finally:
            await client.close()
            await until(lambda: not server.open)


def get(client, path="/"):
    return client.request("GET", path, timeout_s=LIMIT_S)


async def busy_all_ways(client, server):
    """One connection with a request, one with lines that never end, one with an answer that is
    handed on and one idle; and what comes of these."""
    slow = get(client, "/slow")
    lines = []
    reading = asyncio.ensure_future(client.stream_lines("/stream", lines.append, silence_s=None))
    ends, pieces = [], []
    await until(lambda: lines)
    client.send("GET", "/stream", ends.append, timeout_s=None, on_head=lambda *_: pieces.append)
    await until(lambda: pieces and any(b"/slow" in own for own in server.asked))
    assert (await get(client)).status == 200
    assert (client.idle, client.busy, len(server.open)) == (1, 3, 4)
    return slow, reading, ends


@pytest.mark.parametrize("how", ["renewed", "over"])
async def test_what_is_idle_ends_now_and_what_is_carried_is_carried_to_its_end(files, how):
    """Lines of reports have no end: they are broken off."""
    async with serving(files) as (client, server):
        slow, reading, ends = await busy_all_ways(client, server)
        if how == "renewed":
            client.renew(trusting_context(files.ca))
        else:
            client.retire(lambda _: True)
        await until(lambda: len(server.open) == 2)
        with pytest.raises(OutcomeUnknown, match="certificates of this connection have change"):
            await reading
        assert (client.idle, client.busy, slow.done(), ends) == (0, 2, False, [])
        assert (await get(client, "/new")).status == 200
        assert client.idle == 1
        server.may_answer.set()
        assert (await slow).body == b"ok"
        await until(lambda: len(server.open) == 2)
        assert client.idle == 1, "the new one"
        assert [b"/new"] in server.open


async def test_only_what_is_over_ends(files):
    """Each has shown its own certificate; those that are gone are not asked about any more."""
    async with serving(files) as (client, server):
        await client.warm(3)
        seen = []

        def is_over(certificate):
            seen.append(certificate)
            return len(seen) == 2

        client.retire(is_over)
        await until(lambda: len(server.open) == 2)
        assert client.idle == 2
        assert {name for one in seen for name in one.names} == {"localhost"}
        client.retire(seen.append)
        assert len(seen) == 5


async def test_from_then_on_it_goes_by_what_is_new(files, tmp_path):
    other = tmp_path / "other.crt"
    other.write_bytes(Authority("another").pem)

    failures = []
    async with serving(files, on_tls_failure=failures.append) as (client, _):
        assert (await get(client)).status == 200
        client.renew(trusting_context(str(other)))
        with pytest.raises(NotBelieved, match="its certificate is not believed"):
            await get(client)
        assert failures == ["untrusted"]
        client.renew(trusting_context(files.ca))
        assert (await get(client)).status == 200
        assert failures == ["untrusted"]


async def test_one_that_was_opened_by_what_is_old_by_now_carries_what_it_was_opened_for(files):
    """And nothing else."""
    async with serving(files, first="/slow") as (client, server):
        asked = get(client, "/1")
        await until(lambda: server.asked and server.asked[0])
        client.renew(trusting_context(files.ca))
        server.may_answer.set()
        assert (await asked).body == b"ok"
        assert (client.idle, client.busy) == (0, 0)
        for _ in range(2):
            assert (await get(client, "/2")).body == b"ok"
        assert server.asked == [[b"/slow", b"/1"], [b"/slow", b"/2", b"/2"]]


async def test_without_tls_there_are_no_certificates():
    async with serving(None) as (client, server):
        await client.warm(1)
        client.retire(lambda _: True)
        client.renew(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        assert (await get(client)).status == 200
        assert len(server.asked) == 1


async def test_a_connection_counts_once_it_was_answered_on(files):
    """Nothing else is sent on it before; and once is enough."""
    async with serving(files, first="/first") as (client, server):
        answers = await asyncio.gather(*(get(client, f"/{number}") for number in range(3)))
        assert [one.body for one in answers] == [b"ok"] * 3
        assert all(own[0] == b"/first" for own in server.asked)
        assert (await get(client, "/last")).body == b"ok"
        told = [path for own in server.asked for path in own]
        assert told.count(b"/first") == len(server.asked)
        assert sorted(path for path in told if path != b"/first") == [
            b"/0",
            b"/1",
            b"/2",
            b"/last",
        ]


async def test_one_that_is_not_answered_on_is_not_believed_and_carries_nothing(files):
    """Who does not believe a certificate hangs up, without a word that loops would tell of."""
    failures = []
    options = {"first": "/first", "on_tls_failure": failures.append}
    async with serving(files, **options) as (client, server):
        server.hangs_up_on = (b"/first",)
        with pytest.raises(NotBelieved, match="a new connection was not accepted, perhaps"):
            await get(client)
        assert (server.asked, failures) == ([[b"/first"]], ["refused"])
        assert (client.idle, client.busy) == (0, 0)


async def test_a_client_that_gives_up_before_a_connection_counts_leaves_none(files):
    async with serving(files, first="/slow") as (client, server):
        asked = get(client)
        await until(lambda: server.open and server.open[0])
        asked.cancel()
        await turn()
        assert (client.idle, client.busy) == (0, 0)
        server.may_answer.set()
        await until(lambda: not server.open)
        assert server.asked == [[b"/slow"]]


async def test_a_client_that_gives_up_within_a_handshake_leaves_no_socket(monkeypatch):
    """Whatever time the handshake would have had."""
    monkeypatch.setattr("spillover.live.tls.handshakes.HANDSHAKE_S", 3600.0)
    said, ended = [], []

    async def say_nothing(reader, writer):
        said.append(await reader.read(1))
        with suppress(OSError):
            ended.append(await reader.read())
        writer.close()

    async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        client = HttpClient(f"https://127.0.0.1:{port}")
        asked = get(client)
        await until(lambda: said)
        asked.cancel()
        await until(lambda: ended)
        assert (client.idle, client.busy) == (0, 0)
        await client.close()
