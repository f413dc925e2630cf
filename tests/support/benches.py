"""Benchmarks in the loop of the test: nodes, and what would be a process beside them, go on here,
on sockets of loopback. What a benchmark has started, and had done by whom, is written down.

What it measures of a process is then of this one; that processes are started, and end, is in the
tests of `testbed` and of `processes`.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from types import SimpleNamespace

import psutil
import pytest

from spillover.apps.http.server import HttpServer
from spillover.apps.node.app import create_app
from spillover.apps.node.proxy_door import ProxyDoor
from spillover.apps.node.server import close_node
from spillover.live.overflow.shell import NodeShell
from spillover.live.process.listening import bind_socket
from spillover.tools.bench import asking, load_process, nodes, servers
from spillover.tools.bench.membership import crowd
from spillover.tools.bench.membership import measuring as membership
from spillover.tools.bench.model import BenchPlan
from spillover.tools.bench.peers import emulated_servers, relays
from spillover.tools.bench.proxy import readers, service, ways
from spillover.tools.bench.queue import killed, load, makers, waits
from spillover.tools.bench.queue import sides as queue_sides
from spillover.tools.bench.session import Session
from spillover.tools.bench.tokens import dispatchers, sharing_servers
from spillover.tools.processes.child import Child
from support.loop import turn
from support.queue_producers import producers

ENDS_S = 5.0
LIMIT_S = 30.0
PART = 20
THREADS = 40


class Brief(BenchPlan):
    """A plan whose lengths, and large numbers, are a `PART` of those of a quick run."""

    def of(self, full, quick):
        value = super().of(full, quick)
        return value / PART if isinstance(value, float) or value > 100 else value


@dataclass
class Here:
    """What a benchmark did."""

    beds: list = field(default_factory=list)
    """Of nodes or producers, each a `Bed` or `Producers`."""
    started: list = field(default_factory=list)
    """What else was: the name, and what it was told then."""
    started_s: list = field(default_factory=list)
    """When those were, by the monotonic clock."""
    children: list = field(default_factory=list)
    """The same, as who started them has them."""
    jobs: dict = field(default_factory=lambda: defaultdict(list))
    """What it was told later, by name."""
    said: list = field(default_factory=list)
    """Of its progress."""
    ending: list = field(default_factory=list)
    stack: ExitStack = field(default_factory=ExitStack)
    """Of sockets that are closed when all is over."""

    async def ended(self):
        """Once all that was to end has ended."""
        tasks, self.ending = self.ending, []
        if tasks:
            await asyncio.wait(tasks, timeout=ENDS_S)
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        for end in ends:
            if end is not None and not isinstance(end, EOFError | OSError | asyncio.CancelledError):
                raise end


class Bed:
    """In place of a `Testbed`; `wanted` is the topology as it was given, and `told` the rest. Nodes
    have no certificates, and one door for clients and neighbors."""

    def __init__(self, here, topology, **told):
        self._here = here
        self.wanted, self.told = topology, told
        self.topology = topology
        self.nodes = {}
        here.beds.append(self)

    @property
    def urls(self):
        return {c.id: c.url for c in self.topology.clusters}

    async def __aenter__(self):
        self._stack = AsyncExitStack()
        sockets, clusters = {}, []
        for cluster in self.topology.clusters:
            kinds = ["url", "proxy_url"] if cluster.passes else ["url"]
            sockets[cluster.id] = [
                self._stack.enter_context(bind_socket("127.0.0.1", 0)) for _ in kinds
            ]
            urls = [f"http://127.0.0.1:{one.getsockname()[1]}" for one in sockets[cluster.id]]
            clusters.append(replace(cluster, peer_url=None, **dict(zip(kinds, urls, strict=True))))
        self.topology = replace(self.topology, clusters=tuple(clusters))
        for cluster in clusters:
            await self._start(cluster, sockets[cluster.id])
            process = SimpleNamespace(pid=os.getpid())
            self.nodes[cluster.id] = SimpleNamespace(
                cluster=cluster.id, url=cluster.url, process=process
            )
        self.ready_s = time.monotonic()
        return self

    async def __aexit__(self, *_):
        await self._here.ended()
        await self._stack.aclose()

    async def _start(self, cluster, sockets):
        shell = NodeShell(self.topology, cluster.id, seed=self.told["seed"])
        app = create_app(shell)
        doors = [HttpServer(app)]
        if cluster.passes:
            doors.append(ProxyDoor(shell, doors=app.doors))
        running = asyncio.create_task(shell.run())
        each = zip(doors, sockets, strict=True)
        serving = asyncio.gather(*(door.serve([one]) for door, one in each))
        for door in doors:
            await door.ready.wait()
        self._stack.push_async_callback(close_node, shell, doors, running, serving, 0.0)


class Producers:
    """In place of a `ProducerBed`."""

    def __init__(self, here, count, **told):
        self._here = here
        self.count, self.told = count, told
        here.beds.append(self)

    async def __aenter__(self):
        self._stack = AsyncExitStack()
        wanted = {name: self.told[name] for name in ("buffers", "stores") if name in self.told}
        running = await self._stack.enter_async_context(producers(self.count, **wanted))
        self.running = {one.id: one for one in running}
        self.urls = {one.id: one.url for one in running}
        self.pids = dict.fromkeys(self.urls, os.getpid())
        return self

    async def __aexit__(self, *_):
        await self._here.ended()
        await self._stack.aclose()


async def _load(there):
    worker = load_process._Worker()
    try:
        await worker.do_jobs(there)
    finally:
        kept = [*worker._clients.values(), *(client for client, _ in worker._kept)]
        for client in kept:
            await client.close()
        await asyncio.gather(*(one for _, of in worker._kept for one in of), return_exceptions=True)


async def _peer(peer, there):
    with bind_socket("127.0.0.1", 0) as listening:
        await servers._serve_on(peer, listening, there)


async def _reading(there):
    worker = readers._Worker()
    try:
        await worker.do_jobs(there)
    finally:
        idle = chain(*worker._idle.values())
        for reader in chain(worker._streams.values(), worker._unread, idle):
            reader.leave()


async def _crowd(load, there):
    there.send(await crowd._have_clients(load, there))


WORK = {
    asking._work: asking._do_jobs,
    crowd._work: _crowd,
    load.work: load._work,
    load_process._work: _load,
    makers._work: makers._runs,
    readers._work: _reading,
    servers._serve: _peer,
    service.serve_service: service._serve,
}
"""What is done in place of each process."""
IN_STACK = {
    dispatchers.dispatch: dispatchers._dispatch,
    emulated_servers.serve: emulated_servers._serve,
    relays.relay: relays._relay,
    sharing_servers.serve: sharing_servers._serve,
}
"""The same, of those whose sockets end with the process."""


def _cpu_times(_):
    return SimpleNamespace(user=time.process_time(), system=0.0)


@contextmanager
def here(works=None):
    """What is started within goes on in the loop that runs; `works` has what is done in place of
    further processes, or of others."""
    told, doing = Here(), WORK | IN_STACK | (works or {})

    def start(child):
        target, *args = child._process._args
        child._pid = os.getpid()
        told.started.append((child._name, *args[:-1]))
        told.started_s.append(time.monotonic())
        told.children.append(child)
        more = (told.stack,) if target in IN_STACK else ()
        child._working = asyncio.create_task(doing[target](*args, *more))
        child._working.add_done_callback(lambda _: child._there.close())
        return child

    def end(child):
        child.connection.close()  # which ends those who wait for a word in a thread
        child._working.cancel()
        told.ending.append(child._working)

    send = Child.send

    def tell(child, value):
        told.jobs[child._name].append(value)
        send(child, value)

    with pytest.MonkeyPatch.context() as patch:
        for name, of in {"start": start, "end": end, "send": tell}.items():
            patch.setattr(Child, name, of)
        for module in (membership, nodes, ways):
            patch.setattr(module, "Testbed", lambda *args, **given: Bed(told, *args, **given))
        for module in (killed, queue_sides, waits):
            patch.setattr(
                module, "ProducerBed", lambda *args, **given: Producers(told, *args, **given)
            )
        # The system counts in steps that are longer than what goes on here.
        patch.setattr(psutil.Process, "cpu_times", _cpu_times)
        yield told


async def _hang_up():
    """What a process leaves open goes with it."""
    for transport in list(asyncio.get_running_loop()._transports.values()):
        transport.abort()
    await turn()


def do(work, works=None):
    """What a coroutine function gives that is told what it did: `await work(told)`."""
    with here(works) as told:

        async def main():
            # Each process waits for a word in a thread.
            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS))
            try:
                async with asyncio.timeout(LIMIT_S):
                    return await work(told)
            finally:
                await told.ended()
                await _hang_up()

        with told.stack:
            return asyncio.run(main())


def session_of(told, **fields):
    """Of one run, unless `fields` of its plan say something else."""
    return Session(Brief(**{"quick": True, "runs": 1} | fields), told.said.append)


def played(stages, works=None, **fields):
    """What a benchmark did, and its session at the end."""

    async def work(told):
        session = session_of(told, **fields)
        await session.run(stages)
        return told, session

    return do(work, works)
