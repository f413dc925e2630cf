"""What a fence at the sink costs: writes through it beside the same writes without one.

One client, one call after the other, each waiting for its answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from spillover.live.leases.renewal.clock import lease_now_s
from spillover.live.leases.renewal.lease import Lease
from spillover.live.leases.renewal.memory import LeaseMemory
from spillover.live.leases.sinks.redis_sink import RedisSink, fence_key
from spillover.testbed.redis import open_sync_client
from spillover.tools.bench.leases.server import own_redis
from spillover.tools.bench.model import Figure, Side, Stage

if TYPE_CHECKING:
    from redis import Redis

    from spillover.tools.bench.session import Session

WRITE, WRITE_CPU = "fenced write: time", "fenced write: CPU of Redis"
BATCH, BATCH_CPU = "20 fenced writes, one call: time", "20 fenced writes, one call: CPU of Redis"
FENCE, FENCE_CPU = "fence alone: time", "fence alone: CPU of Redis"
LOCAL = "local check of a lease: time"
UNIT = "us"

BATCH_SIZE = 20
FOREVER_S = 1e6
EPOCH = 1_700_000_000_000
NAME = "bench"
KEYS = [f"{{{NAME}}}:{number}" for number in range(BATCH_SIZE)]
HASH = f"{{{NAME}}}:hash"
VALUE = "x" * 100
LOCAL_CALLS = 1000
"""At a time, so that the clock is not what is measured."""


async def measure_fenced(session: Session) -> None:
    """Measures a write, twenty at once, and a check that writes nothing but the epoch."""
    lease = _lease()
    with own_redis(session) as server, open_sync_client(server.url) as client:
        sink = RedisSink(client, NAME)

        async def compare(
            time_case: str, cpu_case: str, ours: Callable[[], Any], *peers: _Named
        ) -> None:
            if not session.wants(time_case, cpu_case):
                return
            sides = [_side(session, client, *one) for one in (("fenced", ours), *peers)]
            figures = [Figure(time_case, UNIT), Figure(cpu_case, UNIT)]
            await session.compare(figures, *sides)

        await compare(
            WRITE,
            WRITE_CPU,
            lambda: sink.apply(lease, ("SET", KEYS[0], VALUE)),
            ("plain SET", lambda: client.set(KEYS[0], VALUE)),
            ("plain HSET", lambda: client.hset(HASH, "field", VALUE)),
            ("WATCH, HGET, MULTI, SET", lambda: _watched(client)),
        )
        writes = [("SET", key, VALUE) for key in KEYS]
        await compare(
            BATCH,
            BATCH_CPU,
            lambda: sink.apply(lease, *writes, checkpoint="7"),
            ("MULTI of 20 SET and an HSET", lambda: _transaction(client)),
        )
        await compare(
            FENCE,
            FENCE_CPU,
            lambda: sink.claim(lease),
            ("plain HGET", lambda: client.hget(HASH, "field")),
        )


async def measure_local(session: Session) -> None:
    """Measures what a handler asks that writes elsewhere: no server is in it."""
    lease = _lease()
    await session.compare(
        [Figure(LOCAL, UNIT)],
        Side("Lease.check", _timed_local(session, lease.check)),
        Side("time.monotonic", _timed_local(session, time.monotonic)),
    )


_Named = tuple[str, Callable[[], Any]]


def _lease() -> Lease:
    """One that lasts as long as any benchmark."""
    memory = LeaseMemory(1)
    memory.grant(0, EPOCH, lease_now_s() + FOREVER_S, 0)
    return Lease(memory, 0, EPOCH, lambda _: None)


def _watched(client: Redis) -> None:
    """A fenced write without a script: the epoch is read, and the write done if it still stands."""
    fence = fence_key(NAME)
    with client.pipeline() as pipe:
        pipe.watch(fence)  # type: ignore[no-untyped-call]
        pipe.hget(fence, "0")
        pipe.multi()
        pipe.set(KEYS[0], VALUE)
        pipe.execute()


def _transaction(client: Redis) -> None:
    with client.pipeline() as pipe:
        for key in KEYS:
            pipe.set(key, VALUE)
        pipe.hset(HASH, "checkpoint", "7")
        pipe.execute()


def _side(session: Session, client: Redis, name: str, call: Callable[[], Any]) -> Side:
    run_s = session.plan.of(0.5, 0.1)

    async def measure() -> Sequence[float]:
        await asyncio.sleep(0)  # here Ctrl-C is heard
        call()
        before_s = _redis_cpu_s(client)
        calls, began_s, passed_s = 0, time.perf_counter(), 0.0
        while passed_s < run_s:
            call()
            calls += 1
            passed_s = time.perf_counter() - began_s
        used_s = _redis_cpu_s(client) - before_s
        return passed_s / calls * 1e6, used_s / calls * 1e6

    return Side(name, measure)


def _redis_cpu_s(client: Redis) -> float:
    told: Any = client.info("cpu")
    return float(told["used_cpu_user"]) + float(told["used_cpu_sys"])


def _timed_local(
    session: Session, call: Callable[[], Any]
) -> Callable[[], Awaitable[Sequence[float]]]:
    run_s = session.plan.of(0.3, 0.05)

    async def measure() -> Sequence[float]:
        await asyncio.sleep(0)
        calls, began_s, passed_s = 0, time.perf_counter(), 0.0
        while passed_s < run_s:
            for _ in range(LOCAL_CALLS):
                call()
            calls += LOCAL_CALLS
            passed_s = time.perf_counter() - began_s
        return (passed_s / calls * 1e6,)

    return measure


STAGES = (
    Stage((WRITE, WRITE_CPU, BATCH, BATCH_CPU, FENCE, FENCE_CPU), measure_fenced),
    Stage((LOCAL,), measure_local),
)
