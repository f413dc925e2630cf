"""Doors in front of a service within one process, and clients of raw sockets."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from spillover.apps.http.audit import Audit
from spillover.apps.http.doors import Doors as NodeDoors
from spillover.apps.node.doors import TABLE
from spillover.apps.node.proxy_door import ProxyDoor
from spillover.core.overflow.events import ServersDown
from spillover.live.http1.framing import split_head
from spillover.live.overflow.shell import NodeShell
from spillover.live.process.listening import bind_socket
from support import federation
from support.lying_service import lying_service

READ_LIMIT_S = 20.0


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
    holding: list = field(default_factory=list)
    """Clients of those that are occupied."""

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


OCCUPIED = 3
"""Requests that one server holds: so many that the next one goes to an idle neighbor at once."""


async def _hold(talk, *_):
    await talk.until_closed()


def _in_front_of(url, handler="proxy:{url}"):
    return handler.format(url=url, other=url.replace("127.0.0.1", "localhost"))


@asynccontextmanager
async def doors(
    *ids,
    handler="proxy:{url}",
    cluster=None,
    each=None,
    occupied=(),
    between=None,
    bounds=None,
    access=None,
    shell=NodeShell,
    **fields,
):
    """As `federation.topology_of`; every cluster has a door in front of the same service, but those
    that are to be occupied: these are in front of one that never answers. `cluster` has fields of
    all of them, `each` those that differ, by id. `between` gives the port
    of what stands between the doors and the service, whose address it is told."""
    async with lying_service() as service, lying_service() as holding, AsyncExitStack() as stack:
        holding.answer = _hold
        ids = ids or ("a",)
        url = service.url
        if between is not None:
            port = await stack.enter_async_context(between(url.removeprefix("http://")))
            url = f"http://127.0.0.1:{port}"
        told = {"handler": _in_front_of(url, handler), **(cluster or {})}
        busy = told | {"handler": _in_front_of(holding.url), "servers": 1}
        given = {
            id_: (busy if id_ in occupied else told) | (each or {}).get(id_, {}) for id_ in ids
        }
        async with federation.Federation(
            federation.topology_of(*ids, clusters=given, **fields), make_shell=shell
        ) as nodes:
            made, ports, stop = await _listen(nodes, ids, bounds, access)
            here = Doors(service, nodes, made, ports, [])
            try:
                for id_ in occupied:
                    await _occupy(here, id_)
                yield here
                for client in here.holding:
                    client.close()
                await federation.until(here.is_idle)
            finally:
                for client in here.clients:
                    client.close()
                for one in (service, holding):
                    one.hang_up()  # on what stands between, too, which keeps its connections
                await stop()


async def _listen(nodes, ids, bounds, access):
    """A door for each, their ports, and what stops them all."""
    made, ports, serving, listening = {}, {}, [], []
    for id_ in ids:
        bound = bind_socket("127.0.0.1", 0)
        listening.append(bound)
        let_in = None if access is None else NodeDoors(access, Audit(time.monotonic), TABLE)
        door = made[id_] = ProxyDoor(nodes[id_].shell, bounds, doors=let_in)
        ports[id_] = bound.getsockname()[1]
        serving.append(asyncio.create_task(door.serve([bound])))
        await door.ready.wait()

    async def stop():
        for door in made.values():
            door.stop()
        await asyncio.gather(*serving)
        for bound in listening:
            bound.close()

    return made, ports, stop


async def _occupy(here, id_):
    """One of them runs, the others wait."""
    for count in range(1, OCCUPIED + 1):
        client = await here.client(id_)
        here.holding.append(client)
        client.writer.write(b"GET /held HTTP/1.1\r\nHost: h\r\n\r\n")
        home = here[id_].ledger.home
        await federation.until(
            lambda home=home, count=count: home["running"] + home["queued"] == count
        )


@asynccontextmanager
async def in_front(hops=0, **options):
    """Doors in front of a service. What comes to the first one runs at the last cluster: the first
    has no server, and those between have none that is free. The last has a few: what has just been
    cancelled there may still be in its last report."""
    ids = "abc"[: hops + 1]
    if hops:
        options.setdefault("each", {ids[-1]: {"servers": 4}})
    async with doors(*ids, occupied=ids[1:-1], **options) as here:
        if hops:
            here["a"].shell.feed(ServersDown())
        yield here


def told(read):
    """A problem of ours."""
    assert read.get(b"content-type") == "application/problem+json"
    assert read.get(b"proxy-status").startswith("spillover; error=")
    return json.loads(read.body)


def counted(node, name):
    """Of one metric, what is not 0: by its labels in their order, without the cluster."""
    told = {}
    for family in node.shell.metrics.registry.collect():
        for sample in family.samples:
            if sample.name == f"spillover_{name}" and sample.value:
                labels = sorted(sample.labels.items())
                told[tuple(value for key, value in labels if key != "cluster")] = sample.value
    return told
