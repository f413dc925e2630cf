"""The servers behind HAProxy, all of them in one process: each takes one request at a time, for as
long as its payload says, and answers as a node does.

They are as fast as those of a node's handler `sleep`, or HAProxy would pay for our slowness: a
chain of services on one server lasts exactly the sum of its service times. The service of a request
that was there before the last one's ideal end begins at that instant, others' when they come here.

The time that a request has taken counts from the home's door, as HAProxy notes it in a header, to
the ideal end of its service. What a cluster's delivery takes is added, since it occupies no server
of a node either.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from multiprocessing.connection import Connection

import msgspec
import uvloop

from spillover.live.engine.alarms import finest_alarm
from spillover.live.engine.timers import Timers
from spillover.live.handlers.service_payload import ServicePayload
from spillover.live.process.listening import bind_socket
from spillover.model.topology import Cluster, Topology
from spillover.tools.bench.door import OK, Door
from spillover.tools.bench.servers import HOST

HOME_HEADER = "x-home"
CAME_HEADER = "x-came-us"
"""The site that a client asked, and when it did: microseconds since 1970."""


class Body(msgspec.Struct):
    """What clients send, as far as it matters here."""

    payload: ServicePayload


_decode = msgspec.json.Decoder(Body).decode
_encode = msgspec.json.Encoder().encode


def serve(topology: Topology, ready: Connection) -> None:
    """What the process does, until the benchmark ends it. Tells the ports of each cluster's
    servers, in their order, as soon as they listen."""
    with ExitStack() as stack, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(topology, ready, stack))


async def _serve(topology: Topology, ready: Connection, stack: ExitStack) -> None:
    loop = asyncio.get_running_loop()
    timers = Timers(loop, finest_alarm)
    ports: list[list[int]] = []
    for cluster in topology.clusters:
        delays_s = {str(n.id): n.delay_ms / 1e3 for n in topology.neighbors(cluster.id)}
        ports.append([])
        for _ in range(cluster.server_count):
            listening = stack.enter_context(bind_socket(HOST, 0))
            server = EmulatedServer(cluster, delays_s, timers)
            await loop.create_server(partial(Door, server.take), sock=listening)
            ports[-1].append(listening.getsockname()[1])
    ready.send(ports)
    await loop.create_future()


class EmulatedServer:
    """One server of a cluster; `delays_s` is how far away its neighbors are, by name."""

    def __init__(self, cluster: Cluster, delays_s: Mapping[str, float], timers: Timers) -> None:
        self._cluster = cluster
        self._delays_s = delays_s
        self._timers = timers
        self._busy = False
        self._last_end_s = 0.0

    def take(self, door: Door, body: bytes) -> None:
        """Serve a request and answer it; by 500 if it is one too many, which spoils the run."""
        if self._busy:
            door.answer(b"500 Busy", b"{}")
            return
        home = door.headers[HOME_HEADER.encode()].decode()
        came_s = int(door.headers[CAME_HEADER.encode()]) / 1e6
        self._busy = True
        cluster, now_s = self._cluster, time.time()
        own = str(cluster.id)
        service_ms = _decode(body).payload.service_ms
        if service_ms is None:
            service_ms = cluster.service_ms
        is_waiting = came_s + self._delays_s.get(home, 0.0) <= self._last_end_s
        start_s = self._last_end_s if is_waiting else now_s
        self._last_end_s = start_s + service_ms / 1e3
        answer = {
            "id": "",
            "cluster": own,
            "path": [own] if home == own else [home, own],
            "hops": int(home != own),
            "timing_ms": {"total": (self._last_end_s - came_s) * 1e3 + cluster.delivery_ms},
        }

        def ended(_: float) -> None:
            self._busy = False
            door.answer(OK, _encode(answer))

        self._timers.at(self._timers.clock() + self._last_end_s - now_s, ended)
