"""What a small request costs that passes through, beside the same work asked for by `POST
/requests`, where the service gets the payload and the client an envelope.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

from spillover.tools.bench.load_process import JSON_HEADER, Closed, LoadProcess
from spillover.tools.bench.model import Figure, Side, Stage
from spillover.tools.bench.proxy.ways import (
    BODY,
    HOPS,
    Way,
    check_hops,
    nodes,
    nodes_of_work,
    peers_of,
    relays,
    running_service,
)

if TYPE_CHECKING:
    from spillover.tools.bench.session import Session

CONNECTIONS = 12
TURNS = 4
POSTED = "POST /requests"
SMALL = "CPU of a small request"
CASES = {f"{SMALL}, {where}": HOPS[where] for where in ("local", "one hop")}


async def measure_requests(case: str, session: Session) -> None:
    """Measures nodes that pass requests beside nodes that have them done, and relays."""
    hops, seed = CASES[case], session.plan.seed
    async with AsyncExitStack() as stack:
        service = await stack.enter_async_context(running_service())
        ours = await stack.enter_async_context(nodes(service, hops, seed))
        posted = await stack.enter_async_context(nodes_of_work(service, hops, seed))
        for way in (ours, posted):
            await check_hops(way, hops)
        peers = {POSTED: posted}
        for name in peers_of(session):
            peers[name] = await stack.enter_async_context(relays(name, service, hops))
        load = stack.enter_context(LoadProcess())
        side, *sides = [
            await _side(session, load, name, way) for name, way in {"": ours, **peers}.items()
        ]
        await session.compare([Figure(case, "us")], side, *sides, turns=TURNS)


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
    return Side(name, partial(measure, session.plan.of(1.2, 0.6) / TURNS))


STAGES = tuple(Stage((case,), partial(measure_requests, case)) for case in CASES)
