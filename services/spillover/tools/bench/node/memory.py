"""Memory for each request that waits: the growth of a process from N of them to 2 N.

The first N are the warm-up: what a process allots once is not counted, what grows in steps, such
as hash tables, is, as far as a step falls in the second half.
"""

from __future__ import annotations

import resource
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from spillover.tools.bench.load_process import Held, LoadProcess, Queued
from spillover.tools.bench.model import Row, Stage
from spillover.tools.bench.nodes import (
    FOREVER_MS,
    answers_later,
    cluster,
    request_body,
    running_nodes,
    topology_of,
    until_state,
)
from spillover.tools.bench.servers import Bare, Server, running
from spillover.tools.bench.usage import resident_bytes

if TYPE_CHECKING:
    from spillover.tools.bench.session import Session

ASYNC_CASE = "memory per queued request, asynchronous"
SYNC_CASE = "memory per queued request, synchronous, above peer"
UNIT = "bytes"
PAYLOAD_BYTES = 256
QUEUE_LIMIT = 20_000
FILES_SPARE = 256
"""Open files of a process apart from the connections that it holds."""


async def measure_asynchronous(session: Session) -> None:
    """Measures a node of its own for each run; its one server is taken for good."""
    requests = int(session.plan.of(5000, 2000))
    body = request_body(FOREVER_MS, PAYLOAD_BYTES)
    values = []
    for run in range(session.plan.runs):
        session.say_run(ASYNC_CASE, run)
        async with AsyncExitStack() as stack:
            node = await _busy_node(session, stack)
            if not await answers_later(node, request_body(0, PAYLOAD_BYTES)):
                session.note(f"{ASYNC_CASE}: left out, the node does no asynchronous requests")
                return
            load = stack.enter_context(LoadProcess())
            job = Queued(url=node.url, body=body, requests=requests)
            await load.count(job)
            before = resident_bytes(node.pid)
            await load.count(job)
            values.append((resident_bytes(node.pid) - before) / requests)
            await until_state(node, queue_length=2 * requests + 1)  # and the one asked at first
    session.add(Row(case=ASYNC_CASE, unit=UNIT, values=tuple(values)))


async def measure_synchronous(session: Session) -> None:
    """Measures the same with clients that wait, less what a bare app takes that never answers."""
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    requests = connections_of(session, files)
    runs = []
    for run in range(session.plan.runs):
        session.say_run(SYNC_CASE, run)
        async with AsyncExitStack() as stack:
            node = await _busy_node(session, stack)
            ours = await _held_bytes(stack, node, requests)
        async with AsyncExitStack() as stack:
            bare = await stack.enter_async_context(running(Bare(answer=b"{}", holds=True)))
            runs.append((ours, await _held_bytes(stack, bare, requests)))
    session.add(row_above_peer(runs))


def row_above_peer(runs: Sequence[tuple[float, float]]) -> Row:
    """Returns the row of runs, of each of which is known what a request takes at a node, and at a
    bare app."""
    return Row(
        case=SYNC_CASE,
        unit=UNIT,
        values=tuple(ours - bare for ours, bare in runs),
        peer="bare ASGI app, pending",
        peer_values=tuple(bare for _, bare in runs),
    )


async def _busy_node(session: Session, stack: AsyncExitStack) -> Server:
    """A node without neighbors, where everything waits."""
    topology = topology_of([cluster("a", servers=1, queue_limit=QUEUE_LIMIT)])
    nodes = await stack.enter_async_context(running_nodes(topology, session.plan.seed))
    node = nodes["a"]
    occupier = stack.enter_context(LoadProcess())
    body = request_body(FOREVER_MS, PAYLOAD_BYTES)
    await occupier.count(Held(url=node.url, body=body, requests=1))
    await until_state(node, busy=1)
    return node


async def _held_bytes(stack: AsyncExitStack, server: Server, requests: int) -> float:
    """By how much the process grows for each request, from `requests` of them to twice as many."""
    load = stack.enter_context(LoadProcess())
    job = Held(url=server.url, body=request_body(0, PAYLOAD_BYTES), requests=requests)
    await load.count(job)
    await until_state(server, queue_length=requests)
    before = resident_bytes(server.pid)
    await load.count(job)
    await until_state(server, queue_length=2 * requests)
    return (resident_bytes(server.pid) - before) / requests


def connections_of(session: Session, files: int) -> int:
    """Returns how many are held at first, and how many more then: as the plan says, or half of what
    one process may have open, which is noted."""
    wanted = int(session.plan.of(2000, 500))
    if files == resource.RLIM_INFINITY or files >= 2 * wanted + FILES_SPARE:
        return wanted
    fewer = (files - FILES_SPARE) // 2
    session.note(f"only {files} files may be open: memory measured with {fewer} connections")
    return fewer


STAGES = (
    Stage((ASYNC_CASE,), measure_asynchronous),
    Stage((SYNC_CASE,), measure_synchronous),
)
