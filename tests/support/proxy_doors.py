"""Doors in front of a service within one process, and clients of raw sockets."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass

from spillover.apps.http.audit import Audit
from spillover.apps.node.doors import Doors as NodeDoors
from spillover.apps.node.proxy_door import ProxyDoor
from spillover.core.overflow.events import ServersDown
from spillover.live.handlers.proxy.framing import split_head
from spillover.live.overflow.shell import NodeShell
from spillover.live.process.listening import bind_socket
from support import federation
from support.lying_service import lying_service

READ_LIMIT_S = 5.0


@dataclass
class Read:
    """An answer as a strict client reads it. `body` is what came, `is_whole` whether that was all
    of it, `trailers` what came behind it."""

    start: bytes
    fields: tuple
    body: bytes
    is_whole: bool
    trailers: tuple = ()

    @property
    def status(self):
        return int(self.start.split(b" ")[1])

    def get(self, name):
        """The values of a header, joined."""
        told = [value for other, value in self.fields if other.lower() == name.lower()]
        return b", ".join(told).decode()


class Client:
    """One connection to a door."""

    def __init__(self, reader, writer):
        self.reader = reader
        self.writer = writer

    async def ask(self, raw, method="GET"):
        self.writer.write(raw)
        return await self.answer(method)

    async def answer(self, method="GET"):
        async with asyncio.timeout(READ_LIMIT_S):
            head = await self.reader.readuntil(b"\r\n\r\n")
            start, fields = split_head(head[:-2])
            read = Read(start, fields, b"", is_whole=False)
            try:
                await self._read_body(read, method)
                read.is_whole = True
            except (ConnectionError, asyncio.IncompleteReadError) as error:
                read.body += getattr(error, "partial", b"")
            return read

    async def _read_body(self, read, method):
        if method == "HEAD" or read.status in (204, 304) or read.status < 200:
            return
        if read.get(b"transfer-encoding") == "chunked":
            while size := int(await self.reader.readuntil(b"\r\n"), 16):
                read.body += (await self.reader.readexactly(size + 2))[:-2]
            lines = b""
            while (line := await self.reader.readuntil(b"\r\n")) != b"\r\n":
                lines += line
            read.trailers = split_head(b"x\r\n" + lines)[1]
        elif length := read.get(b"content-length"):
            read.body = await self.reader.readexactly(int(length))
        else:
            read.body = await self.reader.read()

    def close(self):
        self.writer.transport.abort()


@dataclass
class Doors:
    """A federation that passes requests to one service, and the door of each of its clusters."""

    service: object
    nodes: federation.Federation
    doors: dict
    ports: dict
    clients: list

    def __getitem__(self, cluster):
        return self.nodes[cluster]

    async def client(self, cluster="a", **options):
        told = await asyncio.open_connection("127.0.0.1", self.ports[cluster], **options)
        client = Client(*told)
        self.clients.append(client)
        return client

    async def ask(self, raw, method="GET", cluster="a"):
        """On a connection of its own."""
        client = await self.client(cluster)
        try:
            return await client.ask(raw, method)
        finally:
            client.close()

    def is_idle(self):
        """Whether nothing is under way anywhere."""
        return all(
            node.ledger.home["queued"] + node.ledger.home["running"] + node.ledger.home["away"] == 0
            for node in self.nodes.nodes.values()
        )


@asynccontextmanager
async def doors(
    *ids, handler="proxy:{url}", cluster=None, bounds=None, access=None, shell=NodeShell, **fields
):
    """As `federation.topology_of`; every cluster has a door in front of the same service."""
    async with lying_service() as service:
        ids = ids or ("a",)
        told = {
            "handler": handler.format(
                url=service.url, other=service.url.replace("127.0.0.1", "localhost")
            ),
            **(cluster or {}),
        }
        given = dict.fromkeys(ids, told)
        async with federation.Federation(
            federation.topology_of(*ids, clusters=given, **fields), make_shell=shell
        ) as nodes:
            made, ports, serving, listening = {}, {}, [], []
            for id_ in ids:
                bound = bind_socket("127.0.0.1", 0)
                listening.append(bound)
                let_in = None if access is None else NodeDoors(access, Audit(time.monotonic))
                door = made[id_] = ProxyDoor(nodes[id_].shell, bounds, doors=let_in)
                ports[id_] = bound.getsockname()[1]
                serving.append(asyncio.create_task(door.serve([bound])))
                await door.ready.wait()
            here = Doors(service, nodes, made, ports, [])
            try:
                yield here
                await federation.until(here.is_idle)
            finally:
                for client in here.clients:
                    client.close()
                for door in made.values():
                    door.stop()
                await asyncio.gather(*serving)
                for bound in listening:
                    bound.close()


def in_front(check, hops=0, **options):
    """Run the check with doors in front of a service; requests run at the last cluster."""

    async def main():
        async with doors(*"ab"[: hops + 1], **options) as here:
            if hops:
                here["a"].shell.feed(ServersDown())
            await check(here)

    federation.run(main)


def told(read):
    """A problem of ours."""
    assert read.get(b"content-type") == "application/problem+json"
    assert read.get(b"proxy-status").startswith("spillover; error=")
    return json.loads(read.body)
