"""Whole nodes on loopback: a federation in one process and one event loop, and what waits for it.

Tests get this module as the fixture `nodes`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise

import uvloop

from spillover.apps.http.access import Access
from spillover.apps.http.server import HttpServer
from spillover.apps.node.app import create_app
from spillover.apps.node.server import LAST_WORDS_S, close_node
from spillover.live.http1.client import HttpClient
from spillover.live.membership.store import ConfigurationStore
from spillover.live.overflow.shell import NodeShell
from spillover.live.process.listening import bind_socket
from spillover.model.topology import Cluster, Link, Topology
from support.loop import turn, until

__all__ = [
    "Federation",
    "Node",
    "alone",
    "answer_of",
    "run",
    "topology_of",
    "turn",
    "until",
]

LIMIT_S = 30.0


def topology_of(*ids, delay_ms=0.0, links=None, clusters=None, **fields):
    """A chain of clusters with one server each; `clusters` has the fields that differ, by id."""
    given = {"servers": 1, "service_ms": 10.0}
    return Topology(
        name="test",
        clusters=tuple(Cluster(id=c, **given | (clusters or {}).get(c, {})) for c in ids),
        links=tuple(
            Link(between=pair, delay_ms=delay_ms)
            for pair in (pairwise(ids) if links is None else links)
        ),
        **{"gossip_period_ms": 20.0, "policy": "two-choice"} | fields,
    )


@dataclass
class Node:
    """One running node, and a client of it."""

    shell: NodeShell
    server: HttpServer
    running: asyncio.Task
    serving: asyncio.Task
    client: HttpClient
    url: str

    @property
    def machine(self):
        return self.shell.machine

    @property
    def ledger(self):
        return self.machine.ledger

    def post(self, payload=None, *, headers=(), **fields):
        """A request that runs; the future of its Response."""
        body = json.dumps({"payload": payload, **fields}).encode()
        return self.client.request(
            "POST", "/requests", headers=headers, body=body, timeout_s=LIMIT_S
        )

    async def get(self, path):
        response = await self.client.request("GET", path, timeout_s=LIMIT_S)
        return response.status, json.loads(response.body)

    async def send(self, method, path, body=b"", headers=()):
        """Any call; (status, headers, body decoded if it is JSON)."""
        response = await self.client.request(
            method, path, body=body, headers=headers, timeout_s=LIMIT_S
        )
        return response.status, response.headers, json.loads(response.body)

    async def connect(self):
        """A connection of its own: reader, writer."""
        return await asyncio.open_connection("127.0.0.1", int(self.url.rpartition(":")[2]))

    async def talk(self, *segments):
        """Write bytes to a connection of its own, and read until it is closed."""
        reader, writer = await self.connect()
        for segment in segments:
            writer.write(segment)
            await writer.drain()
        answer = await reader.read()
        writer.close()
        return answer

    def knows(self, cluster):
        neighbors = self.machine.neighbors
        return neighbors.by_handle[neighbors.index[cluster]].known

    def may_send_to(self, cluster):
        neighbors = self.machine.neighbors
        return neighbors.by_handle[neighbors.index[cluster]].accepting

    async def close(self, last_words_s=LAST_WORDS_S):
        await self.client.close()
        await close_node(self.shell, [self.server], self.running, self.serving, last_words_s)


@dataclass
class Federation:
    """Nodes by id. Entered, all hear from their neighbors (those that are `absent` aside)."""

    topology: Topology
    absent: tuple = ()
    seed: int | None = 1
    journals: dict = field(default_factory=dict)
    config_redis: str | None = None
    make_shell: Callable[..., NodeShell] = NodeShell
    access: Access | None = None
    wary: tuple = ()
    """Nodes that take no configuration from others."""
    nodes: dict = field(default_factory=dict)

    scheme = "http"

    def __getitem__(self, cluster):
        return self.nodes[cluster]

    async def __aenter__(self):
        self.errors = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: self.errors.append(context))
        self.sockets = {c: bind_socket("127.0.0.1", 0) for c in self.topology.cluster_ids}
        ports = {c: s.getsockname()[1] for c, s in self.sockets.items()}
        urls = {c: f"{self.scheme}://127.0.0.1:{port}" for c, port in ports.items()}
        self.topology = self.topology.with_urls(urls)
        for cluster in self.topology.cluster_ids:
            if cluster in self.absent:
                self.sockets.pop(cluster).close()
            else:
                await self.start(cluster)
        await until(self.all_linked)
        return self

    async def __aexit__(self, kind, error, trace):
        # All at once, so that there is no neighbor left for last words.
        await asyncio.gather(*(node.close(last_words_s=0.0) for node in self.nodes.values()))
        for listening in self.sockets.values():
            listening.close()
        if error is not None:
            return
        for node in self.nodes.values():
            node.machine.check()
            assert node.ledger.imbalance() == 0
        await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})
        assert not self.errors, self.errors

    async def start(self, cluster):
        url = self.topology.cluster(cluster).url
        if cluster not in self.sockets:
            self.sockets[cluster] = bind_socket("127.0.0.1", int(url.rpartition(":")[2]))
        shell, server, client = self.make(cluster, url)
        running = asyncio.create_task(shell.run())
        serving = asyncio.create_task(server.serve(sockets=[self.sockets[cluster]]))
        await server.ready.wait()
        node = Node(shell, server, running, serving, client, url)
        self.nodes[cluster] = node
        return node

    def make(self, cluster, url):
        """What a node consists of, and a client of it."""
        journal = self.journals.get(cluster)
        shell = self.make_shell(self.topology, cluster, seed=self.seed, journal=journal)
        store = None
        if self.config_redis is not None:
            store = ConfigurationStore(self.config_redis, self.topology.name)
        return (
            shell,
            HttpServer(self.app_of(shell, store)),
            HttpClient(url),
        )

    def app_of(self, shell, store):
        from_peers = shell.cluster.id not in self.wary
        return create_app(shell, store=store, access=self.access, config_from_peers=from_peers)

    async def stop(self, cluster):
        await self.nodes.pop(cluster).close()
        self.sockets.pop(cluster).close()

    def all_linked(self):
        """Whether all that run hear each other, and know it."""
        return all(
            node.may_send_to(neighbor.id)
            for cluster, node in self.nodes.items()
            for neighbor in self.topology.neighbors(cluster)
            if neighbor.id in self.nodes
        )


async def answer_of(reader):
    """(status, body) of the next answer on a connection that stays open."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = int(head.partition(b"content-length: ")[2].split()[0])
    return int(head.split()[1]), json.loads(await reader.readexactly(length))


@asynccontextmanager
async def alone(*ids, access=None, **fields):
    """The node of the first of a chain of clusters; of one alone if none are named."""
    topology = topology_of(*(ids or "a"), **fields)
    async with Federation(topology, access=access) as federation:
        yield federation[topology.cluster_ids[0]]


def run(main, loop_factory=uvloop.new_event_loop, limit_s=2 * LIMIT_S):
    """Run a coroutine function to its end on the loop that nodes use, under a time limit."""

    async def limited():
        async with asyncio.timeout(limit_s):
            await main()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(limited())
