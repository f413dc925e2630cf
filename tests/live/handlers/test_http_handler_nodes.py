"""Nodes in front of a service that goes away and comes back, or that takes requests and never
answers: what becomes of the requests that found it out. The handler alone: `test_http_handler`.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 3\r\n\r\n[1]"
KEY = (b"Idempotency-Key", b"one")


class Service:
    """Answers every request, while it is there."""

    def __init__(self):
        self.calls = 0
        self.connections = 0
        self.server = None
        self.writers = []
        self.port = 0

    async def come(self):
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", self.port)
        self.port = self.server.sockets[0].getsockname()[1]

    async def serve(self, reader, writer):
        self.connections += 1
        self.writers.append(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                await reader.readexactly(int(head.partition("content-length: ")[2].split()[0]))
                self.calls += 1
                writer.write(OK)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            self.connections -= 1
            writer.close()

    def leave(self):
        self.server.close()
        for writer in self.writers:
            writer.transport.abort()


@asynccontextmanager
async def in_front_of_a_service(nodes, *ids):
    """(the node a, its service), which has just gone, and nobody has found out."""
    service = Service()
    await service.come()
    fields = {"handler": f"http:http://127.0.0.1:{service.port}/", "servers": 2}
    try:
        async with nodes.Federation(nodes.topology_of(*ids, clusters={"a": fields})) as federation:
            node = federation["a"]
            if len(ids) > 1:
                await nodes.until(lambda: node.may_send_to("b"))
            assert (await node.post(0)).status == 200
            service.leave()
            upstream = node.shell.requests.workers.upstreams._all[0]
            await nodes.until(lambda: not (service.connections or upstream.client.idle))
            assert not node.machine.servers.down
            yield node, service
    finally:
        service.leave()


def test_it_goes_to_the_neighbor(nodes):
    """Also the very request that found it out, and the name keeps that answer."""

    async def main():
        async with in_front_of_a_service(nodes, "a", "b") as (node, service):
            for _ in range(2):
                answer = await node.post(1, headers=[KEY])
                assert (answer.status, json.loads(answer.body)["path"]) == (200, ["a", "b"])
            assert service.calls == 1
            _, told = await node.get("/explain/one")
            events = [record["event"] for record in told["story"]]
            assert events == ["decided", "not_started", "decided", "ended"]

    nodes.run(main)


def test_it_waits_where_there_is_no_neighbor(nodes):
    """Until the service is back; the next one is refused meanwhile."""

    async def main():
        async with in_front_of_a_service(nodes, "a") as (node, service):
            waiting = node.post(1, headers=[KEY])
            await nodes.until(lambda: node.machine.queue_length == 1)
            assert node.machine.servers.busy == 0
            refused = await node.post(2)
            assert (refused.status, json.loads(refused.body)["reason"]) == (503, "no_servers")
            await service.come()
            answer = await waiting
            assert (answer.status, json.loads(answer.body)["result"]) == (200, [1])
            assert service.calls == 2

    nodes.run(main)


def test_a_service_that_never_answers_is_not_the_least_busy_one(nodes):
    """It breaks off at once: what it costs is what it takes to find out that it fails."""
    broken, sound = Service(), Service()

    async def break_off(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        broken.calls += 1
        writer.transport.abort()

    async def main():
        await sound.come()
        server = await asyncio.start_server(break_off, "127.0.0.1", 0)
        ports = (server.sockets[0].getsockname()[1], sound.port)
        handler = "http:" + ",".join(f"http://127.0.0.1:{port}/" for port in ports)
        try:
            topology = nodes.topology_of("a", clusters={"a": {"handler": handler}})
            async with nodes.Federation(topology) as federation:
                told = [(await federation["a"].post(0)).status for _ in range(40)]
        finally:
            server.close()
            sound.leave()
        assert 1 <= told.count(502) == broken.calls <= 5
        assert told.count(200) == sound.calls == 40 - broken.calls

    nodes.run(main)
