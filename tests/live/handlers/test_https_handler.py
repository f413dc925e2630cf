"""The handler `http:https://...`: a service has to prove that it is the host of its url, to a CA of
the file that the environment names, or of the system. One that does not gets nothing."""

from __future__ import annotations

import asyncio
import json
import ssl
import time

import msgspec
import pytest
import uvloop

pytest.importorskip("cryptography")

from spillover.core.overflow.events import NotStarted, Start
from spillover.live.engine.timers import Timers
from spillover.live.handlers.make import make_workers
from spillover.model.request import Outcome, Request
from spillover.model.topology import Cluster
from support.certificates import Authority, put
from support.loop import until

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


def outcome(context, host):
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

    async def main():
        told, health = [], []
        async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context) as server:
            port = server.sockets[0].getsockname()[1]
            timers = Timers(asyncio.get_running_loop())
            cluster = Cluster(id="a", servers=1, handler=f"http:https://{host}:{port}/run")
            workers = make_workers(
                cluster,
                "test: cluster a",
                timers,
                lambda event, _: told.append(event),
                health.append,
            )
            now_s = time.monotonic()
            request = Request(work=msgspec.Raw(b'{"n": 1}'), id="r", keyed=False)
            workers.start(Start(1, request, now_s, now_s + 30.0))
            await until(lambda: told)
            await workers.close()
            timers.close()
        return told[0]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main()), got


def test_a_service_that_proves_its_name_gets_the_work(served, monkeypatch):
    context, ca_file = served
    monkeypatch.setenv("SPILLOVER_CA_FILE", ca_file)
    event, got = outcome(context, "localhost")
    assert event.outcome is Outcome.DONE
    assert json.loads(bytes(memoryview(event.result))) == [1]
    assert got == [b'{"n": 1}']


def test_others_get_nothing(served, tmp_path, monkeypatch):
    """One of another name, and one that a stranger vouches for. The work is decided again."""
    context, ca_file = served
    foreign = tmp_path / "foreign.ca"
    foreign.write_bytes(Authority("another").pem)
    for file, host in ((ca_file, "127.0.0.1"), (str(foreign), "localhost"), ("", "localhost")):
        monkeypatch.setenv("SPILLOVER_CA_FILE", file)
        event, got = outcome(context, host)
        assert isinstance(event, NotStarted)
        assert got == []
