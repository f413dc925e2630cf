"""Nodes in front of services that answer with no: which of them is asked how often, and all that a
client gets, also over a forward. What becomes of one answer: `test_http_handler_answers`.
"""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import asynccontextmanager

KEY = (b"Idempotency-Key", b"one")
JSON = {"Content-Type": "application/json"}
OK = (200, b"[1]", JSON)


class Service:
    """Answers all requests with `says`: (status, body, headers); counts them. `endless` goes on
    with the body until nobody reads it any more."""

    def __init__(self, says=OK, *, endless=False):
        self.says, self.endless, self.calls = says, endless, 0

    async def __aenter__(self):
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        port = self.server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/run"
        return self

    async def __aexit__(self, *_):
        self.server.close()

    async def serve(self, reader, writer):
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                await reader.readexactly(int(head.partition("content-length: ")[2].split()[0]))
                self.calls += 1
                await self.reply(writer)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.transport.abort()

    async def reply(self, writer):
        status, body, headers = self.says
        size = "Transfer-Encoding: chunked" if self.endless else f"Content-Length: {len(body)}"
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        writer.write(f"HTTP/1.1 {status} X\r\n{size}\r\n{head}\r\n".encode("latin-1") + body)
        while self.endless:
            writer.write(b"10000\r\n%b\r\n" % (b"x" * 65536))
            await writer.drain()


@asynccontextmanager
async def in_front_of(nodes, *services, ids="a", **fields):
    """Cluster a in front of these; the others sleep. The federation."""
    urls = ",".join(service.url for service in services)
    fields = {"handler": f"http:{urls}", "service_ms": 20.0, **fields}
    async with nodes.Federation(nodes.topology_of(*ids, clusters={"a": fields})) as federation:
        yield federation


def problem_of(response):
    assert dict(response.headers)[b"content-type"] == b"application/problem+json"
    return json.loads(response.body)


# --- the client's fault -----------------------------------------------------------------------


def test_a_rejection_reaches_the_client_as_it_was_said(nodes):
    """Status, reason and body; nothing is held against the upstream, and the name keeps it."""
    said, type_, told = b'{"field": [1, 2.50]}', "application/json", {"field": [1, 2.5]}

    async def main():
        async with (
            Service((404, said, {"Content-Type": type_})) as service,
            in_front_of(nodes, service) as federation,
        ):
            node = federation["a"]
            answer = await node.post(1, headers=[KEY])
            problem = problem_of(answer)
            assert (answer.status, problem["reason"]) == (404, "handler_rejected")
            assert (problem["status"], problem["upstream_status"]) == (404, 404)
            assert problem["upstream_body"] == told
            assert (problem["title"], problem["id"]) == ("Not Found", "one")
            service.says = OK
            again = await node.post(1, headers=[KEY])
            assert again.status == 404
            assert problem_of(again)["upstream_body"] == told
            assert service.calls == 1, "replayed"
            upstream = node.shell.requests.workers.upstreams._all[0]
            assert (upstream.failures, upstream.running) == (0.0, 0)
            assert node.shell.requests.workers.upstreams._usual_s == 0.02, "it was no success"
            assert node.machine.servers.cooling == 0
            assert node.machine.health.failed_share(time.monotonic()) == 0.0

    nodes.run(main)


def test_an_endless_body_of_what_was_not_run_loses_nothing(nodes):
    async def main():
        async with (
            Service((503, b"", {}), endless=True) as endless,
            Service() as well,
            in_front_of(nodes, endless, well, servers=4) as federation,
        ):
            answers = await asyncio.gather(*(federation["a"].post(1) for _ in range(8)))
            assert [answer.status for answer in answers] == [200] * 8

    nodes.run(main)


# --- surely not run ---------------------------------------------------------------------------


def test_however_fast_services_are_a_busy_one_is_not_stormed(nodes):
    """What says 503 at once must not be asked thousands of times a second for one request."""

    async def main():
        async with (
            Service((503, b"", {})) as service,
            in_front_of(nodes, service, servers=2, service_ms=0.0) as federation,
        ):
            node = federation["a"]
            waiting = node.post(1)
            begun_s = time.monotonic()
            await nodes.until(lambda: time.monotonic() - begun_s > 1.0)
            assert service.calls <= 20 * (time.monotonic() - begun_s)
            service.says = OK
            assert (await waiting).status == 200

    nodes.run(main)
