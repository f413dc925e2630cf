"""The ways between HAProxy's sites, all of them in one process: connections on which everything
takes as long as on the links of nodes, by the same `EmulatedLink`.

Opening a connection takes no time here, which favors HAProxy a little; it keeps them open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from multiprocessing.connection import Connection
from random import Random
from typing import TypeAlias, cast

import uvloop

from spillover.live.engine.alarms import finest_alarm
from spillover.live.engine.timers import Timers
from spillover.live.overflow.emulated_link import EmulatedLink
from spillover.live.process.listening import bind_socket
from spillover.model.ids import ClusterId
from spillover.tools.bench.servers import HOST

Way: TypeAlias = tuple[ClusterId, ClusterId]
"""From whom to whom connections are opened."""


def relay(ways: Mapping[Way, tuple[int, float]], ready: Connection) -> None:
    """What the process does, until the benchmark ends it. To each way belong the port at its far
    end and its delay, in s. Tells the ports at the near ends, as soon as they listen."""
    with ExitStack() as stack, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_relay(ways, ready, stack))


async def _relay(
    ways: Mapping[Way, tuple[int, float]], ready: Connection, stack: ExitStack
) -> None:
    loop = asyncio.get_running_loop()
    timers = Timers(loop, finest_alarm)
    ports = {}
    for way, (port, delay_s) in ways.items():
        listening = stack.enter_context(bind_socket(HOST, 0))
        # Nothing is ever lost: there is nothing to draw.
        there, back = (EmulatedLink(timers, Random(0), delay_s) for _ in range(2))
        accept = partial(_accept, loop, there, back, port)
        await loop.create_server(accept, sock=listening)
        ports[way] = listening.getsockname()[1]
    ready.send(ports)
    await loop.create_future()


def _accept(
    loop: asyncio.AbstractEventLoop, there: EmulatedLink, back: EmulatedLink, port: int
) -> _End:
    near, far = _End(there), _End(back)
    near.other, far.other = far, near
    near.opening = loop.create_task(_open(loop, near, far, port))
    return near


async def _open(loop: asyncio.AbstractEventLoop, near: _End, far: _End, port: int) -> None:
    try:
        await loop.create_connection(lambda: far, HOST, port)
    except OSError:
        near.close()


class _End(asyncio.Protocol):
    """One of the two ends of a connection. What comes here leaves the other one a delay later."""

    def __init__(self, link: EmulatedLink) -> None:
        self._link = link
        self._transport: asyncio.WriteTransport | None = None
        self._early: list[bytes] = []
        self._closed = False
        self.other = self
        self.opening: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)
        self._transport.writelines(self._early)
        if self._closed:
            self.close()

    def data_received(self, data: bytes) -> None:
        self._link.send(partial(self.other.write, data), _never)

    def connection_lost(self, _: Exception | None) -> None:
        self._closed = True
        self._transport = None
        self._link.send(self.other.close, _never)

    def write(self, data: bytes) -> None:
        """Lets it leave here; later, if there is no connection yet."""
        if self._transport is not None:
            self._transport.write(data)
        elif not self._closed:
            self._early.append(data)

    def close(self) -> None:
        """After all that was written."""
        self._closed = True
        if self._transport is not None:
            self._transport.close()


def _never() -> None:
    raise AssertionError("a link without faults has lost something")
