"""`spillover bench node`: what a request costs at a node, and what it costs to have a node at all.

The cases and what they are compared with: decision 0011.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from itertools import count

import msgspec

from spillover.live.http1.client import HttpClient
from spillover.model.errors import PeerError, RunError
from spillover.model.ids import ClusterId
from spillover.model.schedule import Schedule
from spillover.model.statistics import percentile
from spillover.model.topology import Topology
from spillover.testbed.ports import free_urls
from spillover.workloads import generated
from spillover_lab.bench.load_process import (
    ASYNCHRONOUS,
    Closed,
    Held,
    LoadProcess,
    Queued,
    Replayed,
)
from spillover_lab.bench.nodes import (
    FOREVER_MS,
    answer_of,
    cluster,
    request_body,
    running_nodes,
    state_of,
    topology_of,
    until_state,
)
from spillover_lab.bench.relays import find_program, haproxy_relay
from spillover_lab.bench.servers import Bare, Relay, Server, running
from spillover_lab.bench.session import Figure, Session, Side, Stage
from spillover_lab.bench.usage import CpuUse, cpu_s, resident_bytes
from spillover_loadgen.record import Answer

# --- requests per CPU-second: the local path and the forwarded one --------------------------------

# Of the process that handles them. Askers are few, so that no node is measured in saturation, and
# in a process of their own.


UNIT = "requests/CPU-s"
CONNECTIONS = 12
"""In flight at a time."""
FREE_SERVERS = 256
"""More than ever are in flight: nothing waits."""
BUSY_SERVERS = 64
TURNS = 4
"""The turns of each side in a run: a machine that is shared swings within seconds."""

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
        if find_program("haproxy") is not None:
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


# --- added latency at half load -------------------------------------------------------------------

# What a request takes beyond waiting and being served. The exact waiting time comes from the
# recursion of a FIFO with m servers on the intended schedule.


SLEEPERS = 5
SLEEP_MS = 4.0
RATE_PER_S = 625.0
"""Half of what the servers can do."""
SHARES = {"p50": 0.50, "p99": 0.99}
LATENCY = "added latency at half load"
LATENCIES = tuple(f"{LATENCY}, {name}" for name in SHARES)


def ideal_system_times_ms(
    arrivals_s: Sequence[float], *, servers: int, service_ms: float
) -> list[float]:
    """Returns wait and service of each arrival, in ascending order of time, at a FIFO with equal
    servers and constant service."""
    free_at_ms = [0.0] * servers
    times_ms = []
    for arrival_s in arrivals_s:
        arrival_ms = arrival_s * 1e3
        end_ms = max(arrival_ms, free_at_ms[0]) + service_ms
        heapq.heapreplace(free_at_ms, end_ms)
        times_ms.append(end_ms - arrival_ms)
    return times_ms


def added(response_ms: Sequence[float], ideal_ms: Sequence[float]) -> tuple[float, ...]:
    """Returns the percentiles of `SHARES` of what came on top, in ms."""
    extra = sorted(r - i for r, i in zip(response_ms, ideal_ms, strict=True))
    return tuple(percentile(extra, share) for share in SHARES.values())


def lag_note(lags_ms: Sequence[float]) -> str:
    """Returns how much of what came on top was the generator's."""
    in_order = sorted(lags_ms)
    lag = ", ".join(f"{n} {percentile(in_order, s):.2f} ms" for n, s in SHARES.items())
    return f"{LATENCY}: of it, on both sides, requests left late by {lag}"


async def measure_latency(session: Session) -> None:
    """Measures one cluster beside a bare app that sleeps as long as one service takes."""
    duration_s = session.plan.of(3.0, 1.0)
    seeds = count(session.plan.seed)
    topology = topology_of(
        [cluster("a", servers=SLEEPERS, queue_limit=10_000, service_ms=SLEEP_MS)]
    )
    async with AsyncExitStack() as stack:
        nodes = await stack.enter_async_context(running_nodes(topology, session.plan.seed))
        answer = await answer_of(nodes["a"], request_body(SLEEP_MS, 64))
        peer = Bare(answer=answer, sleep_s=SLEEP_MS / 1e3)
        bare = await stack.enter_async_context(running(peer))
        load = stack.enter_context(LoadProcess())

        lags_ms: list[float] = []

        async def respond(server: Server) -> tuple[Schedule, list[float]]:
            seed = next(seeds)
            schedule = generated.poisson(
                [ClusterId("a")], rate_per_s=RATE_PER_S, duration_s=duration_s, seed=seed
            )
            targets = {ClusterId("a"): server.url}
            fates = await load.fates(Replayed(targets=targets, schedule=schedule, seed=seed))
            if fates.others:
                raise RunError(f"{server.url}: not every request was answered by 200")
            lags_ms.extend(fates.lag_ms)
            return schedule, [time_ms or 0.0 for time_ms in fates.response_ms]

        async def ours() -> tuple[float, ...]:
            schedule, response_ms = await respond(nodes["a"])
            arrivals_s = [arrival.time_s for arrival in schedule]
            ideal_ms = ideal_system_times_ms(arrivals_s, servers=SLEEPERS, service_ms=SLEEP_MS)
            return added(response_ms, ideal_ms)

        async def peers() -> tuple[float, ...]:
            schedule, response_ms = await respond(bare)
            return added(response_ms, [SLEEP_MS] * len(schedule))

        figures = [Figure(case, "ms") for case in LATENCIES]
        name = f"{BARE_APP} that sleeps"
        await session.compare(figures, Side("node", ours), Side(name, peers))
        session.note(lag_note(lags_ms))


# --- what a link costs ----------------------------------------------------------------------------

# Reports sent and received, at rest, where what repeats is rarely said, and with a little work at
# all nodes, so that each period's report differs from the one before.


IDLE_LINK, BUSY_LINK = "idle CPU per link", "busy CPU per link"
WITHOUT_LINKS = {IDLE_LINK: "idle node without links", BUSY_LINK: "busy node without links"}
LINKS = 4

PERIOD_S = 0.1
LINK_SERVICE_MS = 50.0
"""The service of the one request each period: at any report the server may be free or busy, with
none left to hand on."""
BODY_BYTES = 64
ANSWER_WITHIN_S = 5.0


async def measure_gossip(session: Session) -> None:
    """Measures the CPU time of a node with links, less that of one without in the same seconds, for
    each link. The peer's value is all that the one without takes."""
    leaves = [f"leaf{number}" for number in range(LINKS)]
    names = ("hub", "alone", *leaves)
    topology = topology_of(
        [cluster(name, servers=1, queue_limit=0) for name in names],
        [("hub", leaf) for leaf in leaves],
    )
    async with AsyncExitStack() as stack:
        nodes = await stack.enter_async_context(running_nodes(topology, session.plan.seed))
        for case in (IDLE_LINK, BUSY_LINK):
            if not session.wants(case):
                continue
            if case == BUSY_LINK:
                await stack.enter_async_context(_worked(nodes.values()))
            await _measure_link(session, case, nodes["hub"].pid, nodes["alone"].pid)


async def _measure_link(session: Session, case: str, hub: int, alone: int) -> None:
    run_s = session.plan.of(5.0, 2.0)
    runs = []
    for _ in session.seeds(case):
        began_s = time.monotonic()
        use = CpuUse({"hub": [hub], "alone": [alone]})
        await asyncio.sleep(run_s)
        used_s = use.used_s()
        runs.append((time.monotonic() - began_s, used_s["hub"], used_s["alone"]))
    per_link_ms = [(hub_s - alone_s) / took_s / LINKS * 1e3 for took_s, hub_s, alone_s in runs]
    alone_ms = [alone_s / took_s * 1e3 for took_s, _, alone_s in runs]
    session.add_beside(case, "CPU-ms/s", {"": per_link_ms, WITHOUT_LINKS[case]: alone_ms})


@asynccontextmanager
async def _worked(nodes: Iterable[Server]) -> AsyncIterator[None]:
    """Each node is asked for something all the time, one request after the other. Raises PeerError
    or RunError in the end if one could not be, or did not do it."""
    asking = [asyncio.create_task(_ask_on(node)) for node in nodes]
    try:
        yield
    finally:
        for task in asking:
            task.cancel()
        ends = await asyncio.gather(*asking, return_exceptions=True)
    for end in ends:
        if isinstance(end, (PeerError, RunError)):
            raise end


async def _ask_on(node: Server) -> None:
    client = HttpClient(node.url)
    body = request_body(LINK_SERVICE_MS, BODY_BYTES)
    try:
        while True:
            pause = asyncio.create_task(asyncio.sleep(PERIOD_S))
            answer = await client.request("POST", "/requests", body=body, timeout_s=ANSWER_WITHIN_S)
            if answer.status != 200:
                raise RunError(f"{node.url}: expected a result, got {answer.status}")
            await pause
    finally:
        await client.close()


# --- memory for each request that waits -----------------------------------------------------------

# The growth of a process from N of them to 2 N. The first N are the warm-up: what a process allots
# once is not counted, what grows in steps, such as hash tables, is, as far as a step falls in the
# second half.


ASYNC_CASE = "memory per queued request, asynchronous"
SYNC_CASE = "memory per queued request, synchronous, above peer"
PENDING = "bare ASGI app, pending"
BYTES = "bytes"
PAYLOAD_BYTES = 256
QUEUE_LIMIT = 20_000


async def measure_asynchronous(session: Session) -> None:
    """Measures a node of its own for each run; its one server is taken for good."""
    requests = int(session.plan.of(5000, 2000))
    body = request_body(FOREVER_MS, PAYLOAD_BYTES)
    values = []
    for _ in session.seeds(ASYNC_CASE):
        async with AsyncExitStack() as stack:
            node = await _busy_node(session, stack)
            load = stack.enter_context(LoadProcess())
            job = Queued(url=node.url, body=body, requests=requests)
            await load.count(job)
            before = resident_bytes(node.pid)
            await load.count(job)
            values.append((resident_bytes(node.pid) - before) / requests)
            await until_state(node, queue_length=2 * requests)
    session.add_beside(ASYNC_CASE, BYTES, {"": values})


async def measure_synchronous(session: Session) -> None:
    """Measures the same with clients that wait, less what a bare app takes that never answers."""
    requests = int(session.plan.of(2000, 500))
    runs = []
    for _ in session.seeds(SYNC_CASE):
        async with AsyncExitStack() as stack:
            node = await _busy_node(session, stack)
            ours = await _held_bytes(stack, node, requests)
        async with AsyncExitStack() as stack:
            bare = await stack.enter_async_context(running(Bare(answer=b"{}", holds=True)))
            runs.append((ours, await _held_bytes(stack, bare, requests)))
    values = {"": [ours - bare for ours, bare in runs], PENDING: [bare for _, bare in runs]}
    session.add_beside(SYNC_CASE, BYTES, values)


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
    """Returns by how much the process grows for each request, from `requests` of them to twice as
    many."""
    load = stack.enter_context(LoadProcess())
    job = Held(url=server.url, body=request_body(0, PAYLOAD_BYTES), requests=requests)
    await load.count(job)
    await until_state(server, queue_length=requests)
    before = resident_bytes(server.pid)
    await load.count(job)
    await until_state(server, queue_length=2 * requests)
    return (resident_bytes(server.pid) - before) / requests


# --- what certificates between nodes cost ---------------------------------------------------------

# A forward, at both ends, beside one without; and what does not go from node to node. Both
# federations run at the same time, and differ in nothing else. Clients are not encrypted.


TLS_FORWARDED = "forwarded with TLS, 1 KiB"
TLS_RECEIVED = "received with TLS, 1 KiB"
TLS_LARGE = "forwarded with TLS, 64 KiB"
TLS_LARGE_RECEIVED = "received with TLS, 64 KiB"
TLS_PATHS = {KIB: (TLS_FORWARDED, TLS_RECEIVED), 64 * KIB: (TLS_LARGE, TLS_LARGE_RECEIVED)}
TLS_LOCAL = "local with TLS between nodes, 1 KiB"

FIRST_PORT = 8401
TLS_FREE_SERVERS = 1024

Pair = Mapping[str, Server]


async def measure_encrypted(session: Session) -> None:
    """Measures two nodes with certificates beside two without. The servers of the first of each are
    taken for good, so that the other one gets its requests."""
    async with AsyncExitStack() as stack:
        plain, secure = await _pairs(session, stack, BUSY_SERVERS)
        asker = Asker(session, stack.enter_context(LoadProcess()))
        for size_bytes, cases in TLS_PATHS.items():
            if session.wants(*cases):
                sides = [
                    await asker.side(name, pair["a"], job_of(size_bytes), pair["b"])
                    for name, pair in (("with TLS", secure), ("without TLS", plain))
                ]
                figures = [Figure(case, UNIT) for case in cases]
                await session.compare(figures, *sides, turns=TURNS)
        if session.wants(TLS_LOCAL):
            sides = [
                await asker.side(name, pair["b"], job_of(KIB))
                for name, pair in (("with TLS", secure), ("without TLS", plain))
            ]
            await session.compare([Figure(TLS_LOCAL, UNIT)], *sides, turns=TURNS)


async def _pairs(session: Session, stack: AsyncExitStack, busy: int) -> list[Pair]:
    """Without certificates, and with them; so many servers of each first node are taken."""
    from spillover.certificates.directory import certify  # noqa: PLC0415 - needs `tls`

    pairs = []
    for scheme, certified in (("http", None), ("https", certify)):
        nodes = running_nodes(_topology(scheme, busy), session.plan.seed, certified)
        pair = await stack.enter_async_context(nodes)
        occupier = stack.enter_context(LoadProcess())
        body = request_body(FOREVER_MS, 256)
        await occupier.count(Held(url=pair["a"].url, body=body, requests=busy))
        await until_state(pair["a"], busy=busy)
        pairs.append(pair)
    return pairs


def _topology(scheme: str, busy: int) -> Topology:
    """Returns a topology of two clusters whose doors for neighbors have this scheme."""
    topology = topology_of(
        [
            cluster("a", servers=busy, queue_limit=0),
            cluster("b", servers=TLS_FREE_SERVERS, queue_limit=0),
        ],
        [("a", "b")],
    )
    urls = iter(free_urls(4, FIRST_PORT))
    clusters = (
        replace(one, url=next(urls), peer_url=next(urls).replace("http", scheme))
        for one in topology.clusters
    )
    return replace(topology, clusters=tuple(clusters))


STAGES = (
    Stage((*LOCAL, *KEYED, *ASYNC), measure_local),
    Stage(tuple(FORWARDED), measure_forwarded),
    Stage(LATENCIES, measure_latency),
    Stage((IDLE_LINK, BUSY_LINK), measure_gossip),
    Stage((ASYNC_CASE,), measure_asynchronous),
    Stage((SYNC_CASE,), measure_synchronous),
    Stage(
        (TLS_FORWARDED, TLS_RECEIVED, TLS_LARGE, TLS_LARGE_RECEIVED, TLS_LOCAL), measure_encrypted
    ),
)
