"""Memory that streams take on their way: those that say nothing, those whose clients do not read,
and a large answer that nobody reads. Of the process of a way that takes the most.

Each figure of processes of its own: memory that was taken once is not given back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from spillover.tools.bench.model import Stage
from spillover.tools.bench.proxy.readers import Asked, Left, Opened, Readers, Unread
from spillover.tools.bench.proxy.turns import add_rows
from spillover.tools.bench.proxy.ways import (
    HOPS,
    OURS,
    Service,
    Way,
    check_hops,
    nodes,
    peers_of,
    relays,
    running_service,
)
from spillover.tools.bench.usage import resident_bytes

if TYPE_CHECKING:
    from spillover.tools.bench.session import Session

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
RUNS_MAX = 2
"""They hardly differ."""

STREAMS = 1000
QUIET_MS = 60_000.0
CHUNK_BYTES = 200
STALLED = 100
LOOK_S = 0.1
"""From one look to the next."""
SETTLED_S = 0.5
"""Memory counts once it has not grown for so long,"""
SETTLED_WITHIN_S = 5.0
"""or after this."""
WARM_UP_S = 0.5
WARM_UP_PER_S = 200.0

IDLE = "memory of an idle stream"
ALL = f"memory of {STREAMS} streams"
STALL = "memory of a stream that nobody reads"
LARGE = "memory for an answer of 1 GiB that nobody reads"

Figures = dict[str, float]
"""By case."""


def _case(what: str, where: str) -> str:
    return f"{what}, {where}"


UNITS = {IDLE: "KiB", ALL: "MB", STALL: "KiB", LARGE: "MiB"}
CASES = {where: tuple(_case(what, where) for what in UNITS) for where in HOPS}


async def _resident(way: Way) -> list[int]:
    """Of each process, once it does not grow any more."""
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
    half = Opened(url=way.url, streams=STREAMS // 2, period_ms=QUIET_MS, size_bytes=CHUNK_BYTES)
    sizes = [await _resident(way)]
    for _ in range(2):
        await readers.do(half)
        sizes.append(await _resident(way))
    return _of_idle(*sizes)


def _of_idle(none: list[int], half: list[int], full: list[int]) -> Figures:
    """Of the sizes without streams, with half of them and with all: one costs what the second half
    added, since the first one also fills what is kept for good."""
    return {
        IDLE: _growth(half, full) / (STREAMS // 2) / KIB,
        ALL: _growth(none, full) / 1e6,
    }


async def _stalled(way: Way, readers: Readers) -> Figures:
    before = await _resident(way)
    await readers.do(Unread(url=way.url, answers=STALLED, size_bytes=GIB))
    return _of_stalled(before, await _resident(way))


def _of_stalled(before: list[int], after: list[int]) -> Figures:
    return {STALL: _growth(before, after) / STALLED / KIB}


async def _large(way: Way, readers: Readers) -> Figures:
    before = await _resident(way)
    await readers.do(Unread(url=way.url, answers=1, size_bytes=GIB))
    return _of_large(before, await _resident(way))


def _of_large(before: list[int], after: list[int]) -> Figures:
    return {LARGE: _growth(before, after) / MIB}


Measure = Callable[[Way, Readers], Awaitable[Figures]]
MEASURES: tuple[tuple[tuple[str, ...], Measure], ...] = (
    ((IDLE, ALL), _idle),
    ((STALL,), _stalled),
    ((LARGE,), _large),
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
            _add(session, where, whats, taken)


def _add(
    session: Session, where: str, whats: Sequence[str], taken: dict[str, list[Figures]]
) -> None:
    for what in whats:
        values = {name: [one[what] for one in of] for name, of in taken.items()}
        add_rows(session, _case(what, where), UNITS[what], values)


async def _of_one(
    session: Session, service: Service, name: str, where: str, measure: Measure
) -> Figures:
    hops = HOPS[where]
    is_ours = name == OURS
    starting = nodes(service, hops, session.plan.seed) if is_ours else relays(name, service, hops)
    async with starting as way:
        if is_ours:
            await check_hops(way, hops)
        with Readers() as readers:
            warm_up = Asked(
                url=way.url,
                rate_per_s=WARM_UP_PER_S,
                duration_s=WARM_UP_S,
                size_bytes=CHUNK_BYTES,
            )
            await readers.do(warm_up)
            figures = await measure(way, readers)
            await readers.do(Left(every_s=0.0))
            return figures


STAGES = tuple(Stage(CASES[where], partial(measure_memory, where)) for where in HOPS)
