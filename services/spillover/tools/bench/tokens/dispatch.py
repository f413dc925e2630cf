"""What one dispatch costs: a pool of 100 unlike servers and 20 types, asked for a token as the
machine asks it, without a network and without work.

A plain cluster's servers stand beside it: no classes, no types. What jobs do, and how long they
take, is not here.
"""

from __future__ import annotations

import gc
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spillover.core.overflow.servers import FifoServers
from spillover.core.tokens.servers import TokenServers
from spillover.model.ids import ClusterId
from spillover.model.type_groups import TypeGroups
from spillover.model.unlike_servers import JobType, Server, ServerClass, UnlikeServers
from spillover.tools.bench.model import Figure, Side, Value
from spillover.tools.bench.tokens.workloads import DISPATCHES_OF

if TYPE_CHECKING:
    from spillover.tools.bench.session import Session

SERVERS, TYPES, TOKENS = 100, 20, 2
JOINED = 25
"""Classes, each of one server, that each type may join."""
JOBS_HELD = 120
"""Of 200 tokens, while all that counts is timed."""
DISPATCHES, DISPATCHES_QUICK = 50_000, 5_000


@dataclass(slots=True)
class _Request:
    type: str
    path: tuple[ClusterId, ...] = ()
    hops: int = 0


@dataclass(slots=True)
class _Visit:
    ref: int
    request: _Request
    is_home: bool = True
    place: Any = None
    refused_on: tuple[int, ...] = ()


def pool_of(seed: int, order: str) -> UnlikeServers:
    """Returns the pool: rates from 1 to 4, and types that join classes drawn by the seed."""
    rng = random.Random(f"{seed}/dispatch")
    ids = [f"s{number}" for number in range(SERVERS)]
    return UnlikeServers.of(
        tuple(Server(id=each, rate=1.0 + number % 4) for number, each in enumerate(ids)),
        tuple(ServerClass(id=each, servers=(each,), tokens=TOKENS) for each in ids),
        tuple(
            JobType(id=f"t{number}", classes=tuple(rng.sample(ids, JOINED)))
            for number in range(TYPES)
        ),
        order=order,
    )


def plain_servers() -> FifoServers:
    """Returns the servers of a plain cluster: one for each job that is held, and one for the
    next."""
    return FifoServers(JOBS_HELD + 1, 1.0, 0.0)


async def measure(session: Session) -> None:
    """Measures each order."""
    plan = session.plan
    count = int(plan.of(DISPATCHES, DISPATCHES_QUICK))
    for order, case in DISPATCHES_OF.items():
        if not session.wants(case):
            continue

        async def unlike(order: str = order) -> list[Value]:
            pool, cluster = pool_of(plan.seed, order), ClusterId("a")
            groups = TypeGroups.of({cluster: pool})
            return [_dispatch_us(TokenServers(pool, groups, cluster, 1.0, 0.0, 0.0), count)]

        async def plain() -> list[Value]:
            return [_dispatch_us(plain_servers(), count)]

        ours = Side(f"{SERVERS} servers, {TYPES} types", unlike)
        await session.compare((Figure(case, "us"),), ours, Side("plain cluster", plain))


def _dispatch_us(servers: Any, count: int) -> float:
    """Returns what one takes: whether there is a server for it, what the policy would be told, and
    its start. Others end meanwhile, which is not timed."""
    rng = random.Random(0)
    held: list[int] = []
    taken_ns = 0
    gc.disable()
    try:
        for ref in range(count + JOBS_HELD):
            visit = _Visit(ref, _Request(f"t{rng.randrange(TYPES)}"))
            now_s = servers.now_s = ref * 1e-3
            began_ns = time.perf_counter_ns()
            if servers.may_start(visit):
                servers.own_load(visit, True, 0.0, now_s, ())  # noqa: FBT003 - as machines do
                servers.occupy(visit)
                held.append(ref)
            if ref >= JOBS_HELD:
                taken_ns += time.perf_counter_ns() - began_ns
            if len(held) > JOBS_HELD:
                ended = held.pop(rng.randrange(len(held)))
                servers.vacate(ended)
                servers.served(ended, 1.0)
    finally:
        gc.enable()
    return taken_ns / count / 1e3
