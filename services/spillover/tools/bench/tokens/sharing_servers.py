"""Servers that really share, all of them in one process: each works on all its jobs at once,
evenly, and answers a job when it has had the work that its payload asks for.

A job that is done late is done late for its client only: the others have shared as if it had left
in time. How late that was, the process tells at the end. A token that lateness and the way keep
from the bucket for 20 ms more a job raises what tokens block on figure 8's pool by 15 % of it at
load 0.8, 1.5 % at 1.0 and 0.2 % at 1.2; 100 ms do by 67, 10 and 0.8 % (6 10^7 simulated jobs each).
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from multiprocessing.connection import Connection

import msgspec
import uvloop

from spillover.core.tokens.sharing import SharedServer
from spillover.live.engine.alarms import finest_alarm
from spillover.live.engine.timers import Timer, Timers
from spillover.live.handlers.service_payload import ServicePayload
from spillover.live.process.listening import bind_socket
from spillover.model.pool import Pool
from spillover.tools.bench.door import OK, Door
from spillover.tools.bench.servers import HOST

_decode = msgspec.json.Decoder(ServicePayload).decode


@dataclass(slots=True)
class Served:
    """What a process of servers has done so far."""

    jobs: int = 0
    stay_s: float = 0.0
    """The sum of all jobs' times on their servers, if all had ended in time."""
    late_s: list[float] = field(default_factory=list)
    """How late each job was answered."""


def serve(pool: Pool, replicas: int, connection: Connection) -> None:
    """What the process does, until the benchmark ends it: the servers of so many replicas of the
    pool. Tells their ports, replica by replica, as soon as they listen, and what they have done,
    `Served`, whenever it is asked."""
    with ExitStack() as stack, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(pool, replicas, connection, stack))


async def _serve(pool: Pool, replicas: int, connection: Connection, stack: ExitStack) -> None:
    loop = asyncio.get_running_loop()
    timers = Timers(loop, finest_alarm)
    served = Served()
    ports: list[list[int]] = []
    for _ in range(replicas):
        ports.append([])
        for server in pool.servers:
            jobs_max = sum(each.tokens for each in pool.classes if server.id in each.servers)
            sharing = SharingServer(server.rate, jobs_max, timers, served)
            listening = stack.enter_context(bind_socket(HOST, 0))
            await loop.create_server(partial(Door, sharing.take), sock=listening)
            ports[-1].append(listening.getsockname()[1])

    connection.send(ports)
    while True:
        # Not `add_reader`: it makes the pipe one that takes only as much as fits.
        await asyncio.to_thread(connection.recv)
        connection.send(served)


class SharingServer:
    """One server: a job of `service_ms` takes that time by its rate alone on it."""

    def __init__(self, rate: float, jobs_max: int, timers: Timers, served: Served) -> None:
        self._clock = SharedServer(rate)
        self._jobs_max = jobs_max
        self._timers = timers
        self._served = served
        self._refs = count()
        self._jobs: dict[int, tuple[Door, float]] = {}
        self._alarm: Timer | None = None

    def take(self, door: Door, body: bytes) -> None:
        """Begin with a job; answer by 500 if it is one too many, which spoils the run."""
        now_s = self._timers.clock()
        self._timers.run_due(now_s)  # who has ended meanwhile shares no longer
        if len(self._jobs) >= self._jobs_max:
            door.answer(b"500 Full", b"{}")
            return
        ref = next(self._refs)
        work_s = (_decode(body).service_ms or 0.0) / 1e3
        self._clock.add(ref, now_s, work_s)
        self._jobs[ref] = door, now_s
        self._wait()

    def _wait(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        end = self._clock.next_end()
        if end is not None:
            self._alarm = self._timers.at(end[0], partial(self._ended, end[1]))

    def _ended(self, ref: int, due_s: float) -> None:
        self._alarm = None
        self._clock.remove(ref, due_s)
        door, came_s = self._jobs.pop(ref)
        door.answer(OK, b"{}")
        self._served.jobs += 1
        self._served.stay_s += due_s - came_s
        self._served.late_s.append(self._timers.clock() - due_s)
        self._wait()
