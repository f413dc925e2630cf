"""Nodes in front of a service that goes away and comes back, or that takes requests and never
answers: what becomes of the requests that found it out. The handler alone: `test_http_handler`.
"""

from __future__ import annotations

import asyncio

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 3\r\n\r\n[1]"


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
