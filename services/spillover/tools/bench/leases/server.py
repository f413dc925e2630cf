"""The benchmark's own redis-server, and a group of a name that nothing else has."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from spillover.live.redis.connection import open_client
from spillover.testbed.redis import RedisPlace, redis_at
from spillover.testbed.watchdog import Watchdog

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from spillover.tools.bench.session import Session


TIMEOUT_S = 5.0


@contextmanager
def own_redis(session: Session) -> Iterator[RedisPlace]:
    """Starts a Redis that keeps nothing on disk and ends with the block, or with the benchmark.
    Raises InputError if there is no redis-server, RunError if it does not start."""
    with Watchdog() as watchdog, redis_at(None, watchdog) as place:
        session.note(f"redis-server {place.version}, on loopback, nothing kept on disk")
        yield place


@asynccontextmanager
async def looking_at(url: str) -> AsyncIterator[Redis]:
    """Opens a client of the benchmark itself."""
    client = open_client(url, TIMEOUT_S, connections=1)
    try:
        yield client
    finally:
        await client.aclose()
        await client.connection_pool.disconnect()


def new_group() -> str:
    """Returns the name of a group for each run: what the last one left in Redis is not met
    again."""
    return f"bench-{uuid.uuid4().hex[:12]}"
