"""Requests per CPU-second of the process that handles them: the local path and the forwarded one.

Askers are few, so that no node is measured in saturation, and in a process of their own.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from spillover.model.errors import RunError
from spillover.tools.bench.haproxy import find_haproxy, haproxy_relay
from spillover.tools.bench.load_process import ASYNCHRONOUS, Closed, Held, LoadProcess
from spillover.tools.bench.model import Figure, Side, Stage
from spillover.tools.bench.nodes import (
    FOREVER_MS,
    answer_of,
    cluster,
    request_body,
    running_nodes,
    state_of,
    topology_of,
    until_state,
)
from spillover.tools.bench.servers import Bare, Relay, Server, running
from spillover.tools.bench.usage import cpu_s
from spillover_loadgen.record import Answer

if TYPE_CHECKING:
    from spillover.tools.bench.session import Session

UNIT = "requests/CPU-s"
CONNECTIONS = 12
"""In flight at a time."""
FREE_SERVERS = 256
"""More than ever are in flight: nothing waits."""
BUSY_SERVERS = 64
TURNS = 4
"""Of each side in a run: a machine that is shared swings within seconds."""

KIB = 1024
SIZES = {"1 KiB": KIB, "64 KiB": 64 * KIB}
LOCAL = {f"local, {name}": size for name, size in SIZES.items()}
KEYED = {f"local, keyed, {name}": size for name, size in SIZES.items()}
ASYNC = {f"local, asynchronous, {name}": size for name, size in SIZES.items()}
FORWARDED = {f"forwarded, {name}": size for name, size in SIZES.items()}

BARE_APP = "bare ASGI app"
READING_APP = "bare ASGI app that checks its JSON"
AIOHTTP_RELAY = "bare aiohttp relay"
HAPROXY = "HAProxy"


class Asker:
    """Asks for as long as the plan says, and relates the answers to the CPU time they took."""

    def __init__(self, session: Session, load: LoadProcess) -> None:
        self._load = load
        self._turn_s = session.plan.of(1.2, 0.6) / TURNS
        self._warm_up_s = session.plan.of(0.4, 0.2)

    async def side(self, name: str, server: Server, job: Closed, *behind: Server) -> Side:
        """A side of the comparison that has been warmed up with the same requests: a figure of the
        server that is asked, and one of each that is `behind` it."""
        job = replace(job, url=server.url)
        await self._load.count(replace(job, duration_s=self._warm_up_s))
        pids = [server.pid, *(one.pid for one in behind)]

        async def measure() -> tuple[tuple[float, float], ...]:
            before_s = [cpu_s(pid) for pid in pids]
            done = await self._load.count(replace(job, duration_s=self._turn_s))
            return tuple(
                (done, cpu_s(pid) - before) for pid, before in zip(pids, before_s, strict=True)
            )

        return Side(name, measure)


def job_of(size_bytes: int) -> Closed:
    """Returns requests whose payload takes that many bytes, and no time."""
    body = request_body(0, size_bytes)
    return Closed(url="", body=body, connections=CONNECTIONS, duration_s=0)


async def measure_local(session: Session) -> None:
    """Measures a node with free servers beside a bare app that gives the same answer, byte for
    byte."""
    jobs = {case: job_of(size) for case, size in LOCAL.items()}
    jobs |= {case: replace(job_of(size), keyed=True) for case, size in KEYED.items()}
    statuses = frozenset((200, 202))
    for case, size in ASYNC.items():
        jobs[case] = replace(job_of(size), headers=(ASYNCHRONOUS,), statuses=statuses)
    topology = topology_of([cluster("a", servers=FREE_SERVERS, queue_limit=10_000)])
    async with AsyncExitStack() as stack:
        nodes = await stack.enter_async_context(running_nodes(topology, session.plan.seed))
        node = nodes["a"]
        answer = await answer_of(node, request_body(0, KIB))
        bare = await stack.enter_async_context(running(Bare(answer=answer)))
        reading = await stack.enter_async_context(running(Bare(answer=answer, reads_json=True)))
        asker = Asker(session, stack.enter_context(LoadProcess()))
        for case, job in jobs.items():
            if session.wants(case):
                ours = await asker.side("node", node, job)
                peers = [await asker.side(BARE_APP, bare, job)]
                if case in LOCAL:
                    peers.append(await asker.side(READING_APP, reading, job))
                await session.compare([Figure(case, UNIT)], ours, *peers, turns=TURNS)


async def measure_forwarded(session: Session) -> None:
    """Measures a node whose servers are all taken for good, so that its neighbor gets every
    request, beside relays in front of a bare app."""
    topology = topology_of(
        [
            cluster("a", servers=BUSY_SERVERS, queue_limit=0),
            cluster("b", servers=FREE_SERVERS, queue_limit=0),
        ],
        [("a", "b")],
    )
    async with AsyncExitStack() as stack:
        nodes = await stack.enter_async_context(running_nodes(topology, session.plan.seed))
        occupier = stack.enter_context(LoadProcess())
        body = request_body(FOREVER_MS, 256)
        await occupier.count(Held(url=nodes["a"].url, body=body, requests=BUSY_SERVERS))
        await until_state(nodes["a"], busy=BUSY_SERVERS)
        answer = await answer_of(nodes["a"], request_body(0, KIB))
        if msgspec.json.decode(answer, type=Answer).hops != 1:
            raise RunError("the request to a busy node was not forwarded")
        upstream = await stack.enter_async_context(running(Bare(answer=answer)))
        peers = {
            AIOHTTP_RELAY: await stack.enter_async_context(running(Relay(upstream=upstream.url)))
        }
        if find_haproxy() is not None:
            peers[HAPROXY] = await stack.enter_async_context(haproxy_relay(upstream.url))
        else:
            session.note("HAProxy is not installed: no row beside it")
        asker = Asker(session, stack.enter_context(LoadProcess()))
        await _compare_relays(session, asker, nodes["a"], peers)


async def _compare_relays(
    session: Session, asker: Asker, node: Server, peers: dict[str, Server]
) -> None:
    for case, size_bytes in FORWARDED.items():
        if session.wants(case):
            job = job_of(size_bytes)
            ours = await asker.side("node", node, job)
            sides = [await asker.side(name, server, job) for name, server in peers.items()]
            await session.compare([Figure(case, UNIT)], ours, *sides, turns=TURNS)
    if (await state_of(node))["busy"] != BUSY_SERVERS:
        raise RunError("the node served requests itself that it was to forward")


STAGES = (
    Stage((*LOCAL, *KEYED, *ASYNC), measure_local),
    Stage(tuple(FORWARDED), measure_forwarded),
)
