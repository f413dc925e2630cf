"""Those that are compared: a producer of ours, one Redis with a list or with a stream, and a
RabbitMQ, each a process that is measured from outside.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

from spillover.live.http.client import HttpClient
from spillover.model.errors import RunError
from spillover.testbed.producers import ProducerBed
from spillover.tools.bench.leases.server import looking_at, own_redis
from spillover.tools.bench.queue.load import PRODUCER, RABBITMQ
from spillover.tools.bench.queue.rabbitmq import bytes_on_loopback, own_rabbitmq
from spillover.tools.bench.session import Session

BUFFERS = 16
GRACE_S = 0.1

_SENT = re.compile(rb"^spillover_queue_sent_bytes_total\{[^}]*\} ([0-9.e+]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Store:
    """What holds the objects. `moved` tells bytes of objects between machines since its start."""

    name: str
    url: str
    pid: int
    moved: Callable[[], Awaitable[float]]


@asynccontextmanager
async def our_producer() -> AsyncIterator[Store]:
    """A producer with objects in memory. Whoever produces is on its machine: what moves is what it
    sends to consumers."""
    async with ProducerBed(1, buffers=BUFFERS, drain_timeout_s=GRACE_S) as bed:
        ((name, url),) = bed.urls.items()

        async def moved() -> float:
            client = HttpClient(url)
            try:
                body = (await client.request("GET", "/metrics", timeout_s=5.0)).body
            finally:
                await client.close()
            return sent_bytes(body)

        yield Store(PRODUCER, url, bed.pids[name], moved)


def sent_bytes(metrics: bytes) -> float:
    """Returns how many bytes of objects a producer has sent. Raises RunError if it does not say."""
    found = _SENT.search(metrics)
    if found is None:
        raise RunError("expected the bytes that were sent in the metrics of the producer")
    return float(found[1])


@asynccontextmanager
async def central_redis(name: str, session: Session) -> AsyncIterator[Store]:
    """Redis on a machine of its own, used as the `name` says: what moves is what it is sent and
    what it sends."""
    with own_redis(session) as place:
        async with looking_at(place.url) as client:
            info = await client.info("server")

            async def moved() -> float:
                return moved_bytes(await client.info("stats"))

            yield Store(name, place.url, int(info["process_id"]), moved)


def moved_bytes(stats: Mapping[str, Any]) -> float:
    """Returns how many bytes a Redis was sent and has sent."""
    return float(stats["total_net_input_bytes"] + stats["total_net_output_bytes"])


@contextmanager
def central_rabbitmq() -> Iterator[Store]:
    """RabbitMQ on a machine of its own: what moves is what it is sent and what it sends."""
    with own_rabbitmq() as (url, pid):
        yield Store(RABBITMQ, url, pid, bytes_on_loopback)
