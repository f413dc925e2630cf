"""What streams of events cost on their way: the time until their first byte, the CPU time of each
chunk, the delay of a chunk where many come, and how soon the service knows that a client has left.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from spillover.model.statistics import percentile
from spillover.tools.bench.model import Stage
from spillover.tools.bench.proxy.readers import Arrived, Asked, Counted, Left, Opened, Readers
from spillover.tools.bench.proxy.turns import Ends, add_rows, turns
from spillover.tools.bench.proxy.ways import (
    DIRECT,
    HOPS,
    Service,
    Way,
    check_hops,
    direct,
    nodes,
    peers_of,
    relays,
    running_service,
)

if TYPE_CHECKING:
    from spillover.tools.bench.session import Session

STREAMS = 100
PERIOD_MS = 20.0
CHUNK_BYTES = 200
"""As what an inference server says of one token."""
ASKED_PER_S = 200.0
SHARES = {"p50": 0.50, "p99": 0.99}

MANY_STREAMS = 200
MANY = f"{MANY_STREAMS * 1e3 / PERIOD_MS:,.0f} chunks/s".replace(",", " ")

LEFT_EACH_S = 0.003
QUIET_MS = 60_000.0
KNOWN_WITHIN_S = 3.0

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
    """Of one way: in ms, and CPU in us."""

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
        self._ends = Ends(session, service, readers)

    async def turn(self, where: str, way: Way) -> _Turn:
        plan = self._session.plan
        arrived, cpu_us = await self._arrived(STREAMS, plan.of(1.2, 0.4), where, way)
        asked = Asked(
            url=way.url,
            rate_per_s=ASKED_PER_S,
            duration_s=plan.of(1.2, 0.4),
            size_bytes=CHUNK_BYTES,
        )
        took_ms = await self._readers.do(asked)
        await self._leave(0.0)
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
        await self._readers.do(opened)
        self._ends.begin()
        used_s = way.cpu_s()
        arrived: Arrived = await self._readers.do(Counted(duration_s=duration_s))
        used_s = way.cpu_s() - used_s
        self._ends.look(where, way)
        return arrived, used_s * 1e6 / arrived.events

    async def _known_ms(self, where: str, way: Way) -> float:
        """Of streams that are quiet meanwhile: nothing is written that would find it out."""
        opened = Opened(url=way.url, streams=STREAMS, period_ms=QUIET_MS, size_bytes=CHUNK_BYTES)
        await self._readers.do(opened)
        left, lost = await self._leave(LEFT_EACH_S)
        if len(lost) < len(left):
            told = f"{len(left) - len(lost)} of {len(left)} cancels never came to the service"
            self._session.note(f"{where}, {way.name}: {told}")
        return _known_p99_ms(left, lost)

    async def _leave(self, every_s: float) -> tuple[dict[int, int], dict[int, int]]:
        """When the clients have left, and when the service has found out."""
        left: dict[int, int] = await self._readers.do(Left(every_s=every_s))
        lost: dict[int, int] = {}
        limit_s = time.monotonic() + KNOWN_WITHIN_S
        while not left.keys() <= lost.keys() and time.monotonic() < limit_s:
            lost |= await self._service.lost()
            await asyncio.sleep(0.01)
        return left, lost


def _known_p99_ms(left: Mapping[int, int], lost: Mapping[int, int]) -> float:
    """Of when clients left and when the service knew, in ns: what it never knew took as long as was
    waited."""
    late_ns = KNOWN_WITHIN_S * 1e9
    took_ms = sorted((lost.get(n, at + late_ns) - at) / 1e6 for n, at in left.items())
    return percentile(took_ms, 0.99)


@asynccontextmanager
async def _ways(session: Session, service: Service, hops: int) -> AsyncIterator[list[Way]]:
    async with AsyncExitStack() as stack:
        ours = await stack.enter_async_context(nodes(service, hops, session.plan.seed))
        await check_hops(ours, hops)
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
    plain = taken.pop(DIRECT)
    for place, share in enumerate(SHARES):
        values = {
            name: [one.first_ms[place] - at.first_ms[place] for one, at in _pairs(runs, plain)]
            for name, runs in taken.items()
        }
        add_rows(session, _of(FIRST, where, share), "ms", values)
        values = {
            name: [
                _delays(one.arrived)[place] - _delays(at.arrived)[place]
                for one, at in _pairs(runs, plain)
            ]
            for name, runs in taken.items()
        }
        add_rows(session, _of(DELAY, where, share), "ms", values)
    values = {name: [one.cpu_us for one in runs] for name, runs in taken.items()}
    add_rows(session, _of(CPU, where), "us", values)
    values = {name: [one.known_ms for one in runs] for name, runs in taken.items()}
    add_rows(session, _of(LEAVES, where, "p99"), "ms", values)


def _pairs(runs: list[_Turn], plain: list[_Turn]) -> list[tuple[_Turn, _Turn]]:
    return list(zip(runs, plain, strict=True))


def _delays(arrived: Arrived) -> tuple[float, float]:
    return arrived.p50_ms, arrived.p99_ms


def _add_many(session: Session, taken: dict[str, list[tuple[Arrived, float]]]) -> None:
    rates = {name: [a.events / a.took_s for a, _ in runs] for name, runs in taken.items()}
    delays = {name: [a.p99_ms for a, _ in runs] for name, runs in taken.items()}
    used = {name: [us for _, us in runs] for name, runs in taken.items() if name != DIRECT}
    for case, unit, values in zip(
        MANY_CASES, ("per s", "us", "ms"), (rates, used, delays), strict=True
    ):
        add_rows(session, case, unit, values)


STAGES = tuple(
    Stage(_cases(where) + (MANY_CASES if not hops else ()), partial(measure_streams, where))
    for where, hops in HOPS.items()
)
