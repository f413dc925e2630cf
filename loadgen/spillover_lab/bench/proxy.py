"""`spillover bench proxy`: what it costs to stand in front of a service, with 0, 1 and 2 hops.

The processes at both ends are in `proxy_ends`. The cases and what they are compared with: decision
0043.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TypeVar
from urllib.parse import urlsplit

from spillover.model.errors import RunError
from spillover.model.ids import ClusterId
from spillover.model.statistics import percentile
from spillover.model.topology import Cluster, Topology
from spillover.testbed.supervisor import Testbed
from spillover_lab.bench.load_process import JSON_HEADER, PATH, Closed, LoadProcess
from spillover_lab.bench.nodes import FOREVER_MS, ask, topology_of, until_state
from spillover_lab.bench.proxy_ends import (
    LONG,
    Arrived,
    Asked,
    Counted,
    Left,
    Opened,
    Readers,
    Unread,
    serve_service,
    stream_target,
)
from spillover_lab.bench.relays import find_program, haproxy_relay, nginx_relay
from spillover_lab.bench.servers import HOST, READY_WITHIN_S, Server
from spillover_lab.bench.session import Figure, Session, Side, Stage
from spillover_lab.bench.usage import CpuUse, cpu_s, resident_bytes
from spillover_lab.processes.child import Child

# --- ways to the service: straight, by nodes of ours, by HAProxy or nginx -------------------------


DIRECT, HAPROXY, NGINX = "direct", "HAProxy", "nginx"
OURS = "nodes"
BODY = b'{"payload": {}}'
"""The body of a request that asks for nothing."""
HOPS = {"local": 0, "one hop": 1, "two hops": 2}

SERVERS = 4096
"""More than ever are in use: nothing waits."""
DEADLINE_MS = 60_000.0
ANSWER_WITHIN_S = 10.0

HELD_PERIOD_MS = 10_000.0
"""Between the events of a stream that takes a server: one that says nothing is broken off."""
_PATIENT = f"Spillover-Deadline-Ms: {FOREVER_MS:.0f}"
_STREAMING = ("option http-no-delay", "option abortonclose", "timeout tunnel 600s")
"""Options of HAProxy by which what comes leaves at once, and a client that leaves is known of."""


@dataclass(frozen=True, slots=True)
class Way:
    """The way to the service, at `url`, through these processes."""

    name: str
    url: str
    pids: tuple[int, ...]

    def cpu_s(self) -> float:
        """Returns the CPU time that they have used together."""
        return sum(map(cpu_s, self.pids))


class Service(Child):
    """The service, and when its clients were lost. There on entry, ended on exit."""

    url = ""

    async def lost(self) -> dict[int, int]:
        """Returns when connections were lost on which streams were, since this was last asked."""
        self.send(None)
        lost: dict[int, int] = await self.receive(ANSWER_WITHIN_S)
        return lost


@asynccontextmanager
async def running_service() -> AsyncIterator[Service]:
    """Starts the service."""
    with Service("the service", serve_service) as service:
        service.url = f"http://{HOST}:{await service.receive(READY_WITHIN_S)}"
        yield service


def direct(service: Service) -> Way:
    """Returns the way without anything in between."""
    return Way(DIRECT, service.url, ())


@asynccontextmanager
async def nodes(service: Service, hops: int, seed: int) -> AsyncIterator[Way]:
    """Starts one node more than hops, whose doors pass requests to the service."""
    handler = f"proxy:{service.url}"
    async with _nodes(hops, handler, handler, "proxy_url", seed) as way:
        yield way


@asynccontextmanager
async def nodes_of_work(service: Service, hops: int, seed: int) -> AsyncIterator[Way]:
    """Runs nodes as `nodes` does, but the service does what comes by `POST /requests`."""
    async with _nodes(hops, f"http:{service.url}/do", "sleep", "url", seed) as way:
        yield way


@asynccontextmanager
async def _nodes(hops: int, handler: str, busy: str, door: str, seed: int) -> AsyncIterator[Way]:
    """The last one runs what the first one gets. All others have their one server taken for
    good."""
    topology = chain_of(hops, handler, busy)
    names = topology.cluster_ids
    async with Testbed(topology, seed=seed, drain_timeout_s=0.0) as bed, AsyncExitStack() as stack:
        running = {cluster.id: cluster for cluster in bed.topology.clusters}
        pids = tuple(bed.nodes[name].process.pid for name in names)
        servers = [Server(running[name].url or "", bed.nodes[name].process.pid) for name in names]
        for place in reversed(range(hops)):
            told = running[names[place]], servers[place]
            stack.push_async_callback(await _occupied(*told, 0))
            if place < hops - 1:
                # Its neighbor is as busy. So that it hands all on, one has to wait here, which
                # would rather go there.
                await ask(servers[place + 1].url, "POST", "/admin/drain", statuses=(200, 202))
                stack.push_async_callback(await _occupied(*told, 1))
                await ask(servers[place + 1].url, "POST", "/admin/resume", statuses=(200, 202))
            elif hops == 1:
                stack.push_async_callback(await _occupied(*told, 1))
        way = Way(OURS, getattr(running[names[0]], door), pids)
        await check_hops(way, hops)
        yield way


def chain_of(hops: int, handler: str, busy: str) -> Topology:
    """Returns as many clusters and one more, in a row. All but the last one have one server, and
    take a service to last an hour: so what has to be done within a minute goes on, once one waits.

    Over one hop by a policy that leaves that one where it is. An adaptive neighbor would fetch it,
    and one of the next ones would wait in its place until it is fetched (decision 0043)."""
    names = [ClusterId(name) for name in "abc"[: hops + 1]]
    clusters = [Cluster(id=name, servers=1, service_ms=FOREVER_MS, handler=busy) for name in names]
    clusters[-1] = replace(clusters[-1], servers=SERVERS, service_ms=1.0, handler=handler)
    policy = "two-choice" if hops == 1 else "adaptive"
    topology = topology_of(clusters, pairwise(names))
    return replace(topology, default_deadline_ms=DEADLINE_MS, policy=policy)


async def _occupied(cluster: Cluster, node: Server, waiting: int) -> Callable[[], Awaitable[None]]:
    """Takes its one server for good; or has so many wait for it. Returns what lets it go."""
    if cluster.proxy_url is not None:
        url = cluster.proxy_url
        target = stream_target(0, period_ms=HELD_PERIOD_MS, count=LONG, size_bytes=100)
        asked = f"GET {target} HTTP/1.1\r\nHost: bench\r\n{_PATIENT}\r\n\r\n"
    else:
        url = cluster.url or ""
        fields = f"Content-Length: {len(BODY)}\r\n{_PATIENT}"
        asked = f"POST {PATH} HTTP/1.1\r\nHost: bench\r\n{fields}\r\n\r\n{BODY.decode()}"
    place = urlsplit(url)
    _, writer = await asyncio.open_connection(place.hostname, place.port)
    writer.write(asked.encode())
    await until_state(node, busy=1, queue_length=waiting)

    async def let_go() -> None:
        writer.transport.abort()

    return let_go


async def check_hops(way: Way, hops: int) -> None:
    """Raises RunError unless a request to the nodes goes over so many hops."""
    answer = await ask(way.url, "POST", PATH, body=BODY)
    path = answer.headers.get(b"spillover-path")
    told = path.decode().split(",") if path else json.loads(answer.body).get("path", ())
    if answer.status != 200 or len(told) != hops + 1:
        raise RunError(f"expected an answer over {hops} hops, got {answer.status} by {told}")


def peers_of(session: Session) -> list[str]:
    """Returns the relays that are installed, and notes which are not."""
    found = {HAPROXY: find_program("haproxy"), NGINX: find_program("nginx")}
    for name, binary in found.items():
        if binary is None:
            session.note(f"{name} is not installed: no row beside it")
    return [name for name, binary in found.items() if binary is not None]


@asynccontextmanager
async def relays(name: str, service: Service, hops: int) -> AsyncIterator[Way]:
    """Starts one relay more than hops, in a row."""
    async with AsyncExitStack() as stack:
        url, pids = service.url, []
        for _ in range(hops + 1):
            relay = nginx_relay(url) if name == NGINX else haproxy_relay(url, *_STREAMING)
            server = await stack.enter_async_context(relay)
            url = server.url
            pids.append(server.pid)
        yield Way(name, url, tuple(pids))


# --- streams of events ----------------------------------------------------------------------------

# The time until their first byte, the CPU time of each chunk, the delay of a chunk where many come,
# and how soon the service knows that a client has left.


STREAMS = 100
PERIOD_MS = 20.0
CHUNK_BYTES = 200
"""The size of a chunk: that of what an inference server says of one token."""
ASKED_PER_S = 200.0
SHARES = {"p50": 0.50, "p99": 0.99}

MANY_STREAMS = 200
MANY = f"{MANY_STREAMS * 1e3 / PERIOD_MS:,.0f} chunks/s".replace(",", " ")

LEFT_EACH_S = 0.003
QUIET_MS = 60_000.0
KNOWN_WITHIN_S = 3.0

BUSY_SHARE = 0.9
"""An end that was busy for so much of the time was the limit, not the way."""
T = TypeVar("T")

FIRST = "time to the first byte, added"
DELAY = "delay of a chunk, added"
CPU = "CPU per chunk"
LEAVES = "until a cancel is at the service"


def _of(what: str, where: str, more: str = "") -> str:
    return ", ".join(part for part in (what, where, more) if part)


def _cases(where: str) -> tuple[str, ...]:
    added = [_of(what, where, share) for what in (FIRST, DELAY) for share in SHARES]
    return (*added, _of(CPU, where), _of(LEAVES, where, "p99"))


MANY_CASES = (f"{MANY}: arrived", f"{MANY}: CPU per chunk", f"{MANY}: delay of a chunk, p99")


@dataclass(frozen=True, slots=True)
class _Turn:
    """The figures of one way: in ms, and CPU in us."""

    first_ms: Sequence[float]
    arrived: Arrived
    cpu_us: float
    known_ms: float


class _Streams:
    """Streams through ways to one service."""

    def __init__(self, session: Session, service: Service, readers: Readers) -> None:
        self._session = session
        self._service = service
        self._readers = readers
        self._ends = {"service": [service.pid], "clients": [readers.pid]}

    async def turn(self, where: str, way: Way) -> _Turn:
        plan = self._session.plan
        arrived, cpu_us = await self._arrived(STREAMS, plan.of(1.2, 0.4), where, way)
        asked = Asked(
            url=way.url,
            rate_per_s=ASKED_PER_S,
            duration_s=plan.of(1.2, 0.4),
            size_bytes=CHUNK_BYTES,
        )
        every = CpuUse(self._ends | {"way": way.pids})
        took_ms = await self._readers.ask(asked)
        used_s = sum(every.used_s().values())
        await self._leave(0.0)
        if used_s / asked.duration_s > BUSY_SHARE * (os.cpu_count() or 1):
            told = "all processors were busy: times to the first byte are of waits for one"
            self._session.note(f"{where}, {way.name}: {told}")
        first_ms = [percentile(took_ms, share) for share in SHARES.values()]
        return _Turn(first_ms, arrived, cpu_us, await self._known_ms(where, way))

    async def many(self, way: Way) -> tuple[Arrived, float]:
        duration_s = self._session.plan.of(1.5, 0.5)
        arrived = await self._arrived(MANY_STREAMS, duration_s, MANY, way)
        await self._leave(0.0)
        return arrived

    async def _arrived(
        self, streams: int, duration_s: float, where: str, way: Way
    ) -> tuple[Arrived, float]:
        opened = Opened(url=way.url, streams=streams, period_ms=PERIOD_MS, size_bytes=CHUNK_BYTES)
        await self._readers.ask(opened)
        ends, used_s = CpuUse(self._ends), way.cpu_s()
        arrived: Arrived = await self._readers.ask(Counted(duration_s=duration_s))
        used_s = way.cpu_s() - used_s
        for name, end_s in ends.used_s().items():
            if end_s / arrived.took_s > BUSY_SHARE:
                told = f"the {name} of the benchmark took a core: they, not it, are the limit"
                self._session.note(f"{where}, {way.name}: {told}")
        return arrived, used_s * 1e6 / arrived.events

    async def _known_ms(self, where: str, way: Way) -> float:
        """Returns the p99 of the time until the service knows of a cancel, of streams that are
        quiet meanwhile: nothing is written that would find it out."""
        opened = Opened(url=way.url, streams=STREAMS, period_ms=QUIET_MS, size_bytes=CHUNK_BYTES)
        await self._readers.ask(opened)
        left, lost = await self._leave(LEFT_EACH_S)
        if len(lost) < len(left):
            told = f"{len(left) - len(lost)} of {len(left)} cancels never came to the service"
            self._session.note(f"{where}, {way.name}: {told}")
        return _known_p99_ms(left, lost)

    async def _leave(self, every_s: float) -> tuple[dict[int, int], dict[int, int]]:
        """Returns when the clients have left, and when the service has found out."""
        left: dict[int, int] = await self._readers.ask(Left(every_s=every_s))
        lost: dict[int, int] = {}
        limit_s = time.monotonic() + KNOWN_WITHIN_S
        while not left.keys() <= lost.keys() and time.monotonic() < limit_s:
            lost |= await self._service.lost()
            await asyncio.sleep(0.01)
        return left, lost


def _known_p99_ms(left: Mapping[int, int], lost: Mapping[int, int]) -> float:
    """Returns the p99 of the time until the service knew, by when clients left and when it knew, in
    ns: what it never knew took as long as was waited."""
    late_ns = KNOWN_WITHIN_S * 1e9
    took_ms = sorted((lost.get(n, at + late_ns) - at) / 1e6 for n, at in left.items())
    return percentile(took_ms, 0.99)


@asynccontextmanager
async def _ways(session: Session, service: Service, hops: int) -> AsyncIterator[list[Way]]:
    async with AsyncExitStack() as stack:
        ours = await stack.enter_async_context(nodes(service, hops, session.plan.seed))
        names = peers_of(session)
        theirs = [await stack.enter_async_context(relays(name, service, hops)) for name in names]
        yield [ours, direct(service), *theirs]


async def measure_streams(where: str, session: Session) -> None:
    """Measures nodes with so many hops, and one relay more than hops in a row."""
    hops = HOPS[where]
    async with running_service() as service, _ways(session, service, hops) as ways:
        with Readers() as readers:
            streams = _Streams(session, service, readers)
            if session.wants(*_cases(where)):
                told = f"streams, {where}"
                _add(session, where, await turns(session, told, ways, partial(streams.turn, where)))
            if not hops and session.wants(*MANY_CASES):
                _add_many(session, await turns(session, MANY, ways, streams.many))


def _add(session: Session, where: str, taken: dict[str, list[_Turn]]) -> None:
    """Add rows; what is *added* is beyond the way straight to the service in the same run."""
    plain = taken.pop(DIRECT)
    figures: dict[str, Callable[[_Turn], Sequence[float]]] = {
        FIRST: lambda turn: turn.first_ms,
        DELAY: lambda turn: (turn.arrived.p50_ms, turn.arrived.p99_ms),
    }
    for what, figure in figures.items():
        for place, share in enumerate(SHARES):
            added = {
                name: [
                    figure(one)[place] - figure(at)[place]
                    for one, at in zip(runs, plain, strict=True)
                ]
                for name, runs in taken.items()
            }
            session.add_beside(_of(what, where, share), "ms", added)
    cpu_us = {name: [one.cpu_us for one in runs] for name, runs in taken.items()}
    session.add_beside(_of(CPU, where), "us", cpu_us)
    known_ms = {name: [one.known_ms for one in runs] for name, runs in taken.items()}
    session.add_beside(_of(LEAVES, where, "p99"), "ms", known_ms)


def _add_many(session: Session, taken: dict[str, list[tuple[Arrived, float]]]) -> None:
    rates = {name: [a.events / a.took_s for a, _ in runs] for name, runs in taken.items()}
    delays = {name: [a.p99_ms for a, _ in runs] for name, runs in taken.items()}
    used = {name: [us for _, us in runs] for name, runs in taken.items() if name != DIRECT}
    for case, unit, values in zip(
        MANY_CASES, ("per s", "us", "ms"), (rates, used, delays), strict=True
    ):
        session.add_beside(case, unit, values)


async def turns(
    session: Session, case: str, ways: Sequence[Way], measure: Callable[[Way], Awaitable[T]]
) -> dict[str, list[T]]:
    """Returns what each way gives on each run, by its name. The order of the ways is turned round
    on every other run."""
    taken: dict[str, list[T]] = {way.name: [] for way in ways}
    for run, _ in enumerate(session.seeds(case)):
        for way in reversed(ways) if run % 2 else ways:
            taken[way.name].append(await measure(way))
    return taken


# --- memory of streams ----------------------------------------------------------------------------

# Streams that say nothing, those whose clients do not read, and a large answer that nobody reads:
# the memory of the process of a way that takes the most. Each figure is of processes of its own:
# memory that was taken once is not given back.


KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
RUNS_MAX = 2
"""The largest number of runs: they hardly differ."""

IDLE_STREAMS = 1000
STALLED = 100
LOOK_S = 0.1
"""The time from one look at the memory to the next."""
SETTLED_S = 0.5
"""Memory counts once it has not grown for this long."""
SETTLED_WITHIN_S = 5.0
"""Memory counts after this long even if it still grows."""
WARM_UP_S = 0.5
WARM_UP_PER_S = 200.0

IDLE = "memory of an idle stream"
ALL = f"memory of {IDLE_STREAMS} streams"
STALL = "memory of a stream that nobody reads"
LARGE = "memory for an answer of 1 GiB that nobody reads"

Figures = dict[str, float]
"""Figures by the name of their case."""


def _case(what: str, where: str) -> str:
    return f"{what}, {where}"


UNITS = {IDLE: "KiB", ALL: "MB", STALL: "KiB", LARGE: "MiB"}
MEMORY_CASES = {where: tuple(_case(what, where) for what in UNITS) for where in HOPS}


async def _resident(way: Way) -> list[int]:
    """Returns the memory of each process, once it does not grow any more."""
    most = [resident_bytes(pid) for pid in way.pids]
    quiet_s = 0.0
    for _ in range(round(SETTLED_WITHIN_S / LOOK_S)):
        await asyncio.sleep(LOOK_S)
        now = [resident_bytes(pid) for pid in way.pids]
        quiet_s = 0.0 if any(a > b for a, b in zip(now, most, strict=True)) else quiet_s + LOOK_S
        most = [max(pair) for pair in zip(now, most, strict=True)]
        if quiet_s >= SETTLED_S:
            break
    return most


def _growth(before: list[int], after: list[int]) -> int:
    return max(b - a for a, b in zip(before, after, strict=True))


async def _idle(way: Way, readers: Readers) -> Figures:
    half = Opened(
        url=way.url, streams=IDLE_STREAMS // 2, period_ms=QUIET_MS, size_bytes=CHUNK_BYTES
    )
    sizes = [await _resident(way)]
    for _ in range(2):
        await readers.ask(half)
        sizes.append(await _resident(way))
    none, half_full, full = sizes
    # One costs what the second half added: the first one also fills what is kept for good.
    return {
        IDLE: _growth(half_full, full) / (IDLE_STREAMS // 2) / KIB,
        ALL: _growth(none, full) / 1e6,
    }


async def _unread(case: str, answers: int, unit: int, way: Way, readers: Readers) -> Figures:
    before = await _resident(way)
    await readers.ask(Unread(url=way.url, answers=answers, size_bytes=GIB))
    return {case: _growth(before, await _resident(way)) / answers / unit}


Measure = Callable[[Way, Readers], Awaitable[Figures]]
MEASURES: tuple[tuple[tuple[str, ...], Measure], ...] = (
    ((IDLE, ALL), _idle),
    ((STALL,), partial(_unread, STALL, STALLED, KIB)),
    ((LARGE,), partial(_unread, LARGE, 1, MIB)),
)


async def measure_memory(where: str, session: Session) -> None:
    """Measures each way anew for each figure and each run; nodes alone if it has to be quick."""
    runs = min(session.plan.runs, RUNS_MAX)
    names = [OURS] if session.plan.quick else [OURS, *peers_of(session)]
    async with running_service() as service:
        for whats, measure in MEASURES:
            cases = [_case(what, where) for what in whats]
            if not session.wants(*cases):
                continue
            taken: dict[str, list[Figures]] = {name: [] for name in names}
            for run in range(runs):
                session.say(f"{cases[0]}: run {run + 1} of {runs}")
                for name in names:
                    taken[name].append(await _of_one(session, service, name, where, measure))
            for what in whats:
                values = {name: [one[what] for one in of] for name, of in taken.items()}
                session.add_beside(_case(what, where), UNITS[what], values)


async def _of_one(
    session: Session, service: Service, name: str, where: str, measure: Measure
) -> Figures:
    hops = HOPS[where]
    ours = name == OURS
    starting = nodes(service, hops, session.plan.seed) if ours else relays(name, service, hops)
    async with starting as way:
        with Readers() as readers:
            warm_up = Asked(
                url=way.url,
                rate_per_s=WARM_UP_PER_S,
                duration_s=WARM_UP_S,
                size_bytes=CHUNK_BYTES,
            )
            await readers.ask(warm_up)
            figures = await measure(way, readers)
            await readers.ask(Left(every_s=0.0))
            return figures


# --- small requests -------------------------------------------------------------------------------

# A request that passes through stands beside the same work asked for by `POST /requests`, where the
# service gets the payload and the client an envelope.


CONNECTIONS = 12
REQUEST_TURNS = 4
POSTED = "POST /requests"
SMALL = "CPU of a small request"
REQUEST_CASES = {f"{SMALL}, {where}": HOPS[where] for where in ("local", "one hop")}


async def measure_requests(case: str, session: Session) -> None:
    """Measures nodes that pass requests beside nodes that have them done, and relays."""
    hops, seed = REQUEST_CASES[case], session.plan.seed
    async with AsyncExitStack() as stack:
        service = await stack.enter_async_context(running_service())
        ours = await stack.enter_async_context(nodes(service, hops, seed))
        posted = await stack.enter_async_context(nodes_of_work(service, hops, seed))
        peers = {POSTED: posted}
        for name in peers_of(session):
            peers[name] = await stack.enter_async_context(relays(name, service, hops))
        load = stack.enter_context(LoadProcess())
        side, *sides = [
            await _side(session, load, name, way) for name, way in {"": ours, **peers}.items()
        ]
        await session.compare([Figure(case, "us")], side, *sides, turns=REQUEST_TURNS)


async def _side(session: Session, load: LoadProcess, name: str, way: Way) -> Side:
    async def measure(duration_s: float) -> tuple[tuple[float, float]]:
        job = Closed(
            url=way.url,
            body=BODY,
            connections=CONNECTIONS,
            duration_s=duration_s,
            headers=(JSON_HEADER,),
        )
        used_s = way.cpu_s()
        done = await load.count(job)
        return (((way.cpu_s() - used_s) * 1e6, done),)

    await measure(session.plan.of(0.3, 0.1))
    return Side(name, partial(measure, session.plan.of(1.2, 0.6) / REQUEST_TURNS))


STAGES = (
    *(
        Stage(_cases(where) + (MANY_CASES if not hops else ()), partial(measure_streams, where))
        for where, hops in HOPS.items()
    ),
    *(Stage(MEMORY_CASES[where], partial(measure_memory, where)) for where in HOPS),
    *(Stage((case,), partial(measure_requests, case)) for case in REQUEST_CASES),
)
