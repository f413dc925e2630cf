"""The processes around a node: servers that really share, and the dispatchers that stand beside it,
each with one rule, in front of the same kind of servers.

A server works on all its jobs at once, evenly, and answers a job when it has had the work that its
payload asks for. A job that is done late is done late for its client only: the others have shared
as if it had left in time. A token that lateness and the way keep from the bucket for 20 ms more a
job raises what tokens block on figure 8's pool by 15 % of it at load 0.8, 1.5 % at 1.0 and 0.2 % at
1.2; 100 ms do by 67, 10 and 0.8 % (6 10^7 simulated jobs each).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from multiprocessing.connection import Connection
from random import Random

import msgspec

from spillover.core.tokens.sharing import SharedServer
from spillover.live.engine.alarms import finest_alarm
from spillover.live.engine.timers import Timer, Timers
from spillover.live.handlers.service_payload import ServicePayload
from spillover.live.http1.client import HttpClient, Response
from spillover.model.pool import Pool
from spillover.policy.tokens import BLOCKED, assigned_at_random
from spillover_lab.bench.load_process import JSON_HEADER
from spillover_lab.bench.servers import HOST, OK, Door, listen

BEST_STATIC, UNIFORM_STATIC = "best static", "uniform static"
SHORTEST, BY_RATE, TWO_CHOICES = "shortest queue", "shortest queue by rate", "two choices"
STATIC = {BEST_STATIC: "static-best", UNIFORM_STATIC: "static-uniform"}
"""Rules that theory knows, by what it calls them."""
RULES = (*STATIC, SHORTEST, BY_RATE, TWO_CHOICES)


class _Job(msgspec.Struct):
    """What clients send, as far as it matters here."""

    type: str
    payload: msgspec.Raw


_decode_work = msgspec.json.Decoder(ServicePayload).decode
_decode_job = msgspec.json.Decoder(_Job).decode
_encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class Served:
    """What a process of servers has done so far."""

    jobs: int = 0
    stay_s: float = 0.0
    """The sum of all jobs' times on their servers, if all had ended in time."""
    late_s: list[float] = field(default_factory=list)
    """How late each job was answered."""


async def serve(pool: Pool, replicas: int, connection: Connection) -> None:
    """Runs the servers of so many replicas of the pool, until the benchmark ends it. Tells their
    ports, replica by replica, as soon as they listen, and `Served` whenever it is asked."""
    timers = Timers(asyncio.get_running_loop(), finest_alarm)
    served = Served()
    ports: list[list[int]] = []
    with ExitStack() as stack:
        for _ in range(replicas):
            ports.append([])
            for server in pool.servers:
                jobs_max = sum(each.tokens for each in pool.classes if server.id in each.servers)
                sharing = _SharingServer(server.rate, jobs_max, timers, served)
                ports[-1].append(await listen(sharing.take, stack))
        connection.send(ports)
        while True:
            # Not `add_reader`: it makes the pipe one that takes only as much as fits.
            await asyncio.to_thread(connection.recv)
            connection.send(served)


class _SharingServer:
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
        self._clock.add(ref, now_s, (_decode_work(body).service_ms or 0.0) / 1e3)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatching:
    """One of `RULES` for each replica of a pool, whose servers listen on those `ports`."""

    pool: Pool
    rule: str
    split: Mapping[str, Mapping[str, float]]
    """The probabilities of a static rule: for each type those of its classes."""
    ports: Sequence[Sequence[int]]
    seed: str


async def dispatch(plan: Dispatching, ready: Connection) -> None:
    """Runs the dispatchers, until the benchmark ends it. Tells their ports, one for each
    replica."""
    running = [
        _Dispatcher(plan, of_servers, Random(f"{plan.seed}/r{number}"))
        for number, of_servers in enumerate(plan.ports, start=1)
    ]
    with ExitStack() as stack:
        ready.send([await listen(one.take, stack) for one in running])
        await asyncio.get_running_loop().create_future()


class _Dispatcher:
    """Stands in front of one pool: it takes a job, chooses, passes the payload on, and answers as a
    node does. It knows how many jobs of its own are on each server, and a server's limit."""

    def __init__(self, plan: Dispatching, ports: Sequence[int], random: Random) -> None:
        self._kinds = {kind.id: number for number, kind in enumerate(plan.pool.types)}
        self._clients = [HttpClient(f"http://{HOST}:{port}") for port in ports]
        self._jobs = [0] * len(ports)
        self._choose = rule_of(plan, random)

    def take(self, door: Door, body: bytes) -> None:
        came_s = time.monotonic()
        job = _decode_job(body)
        server = self._choose(self._kinds[job.type], self._jobs)
        if server == BLOCKED:
            door.answer(b"429 Too Many Requests", b'{"reason":"blocked"}')
            return
        self._jobs[server] += 1
        on_end = partial(self._ended, door, server, came_s)
        self._clients[server].send(
            "POST", "/", on_end, headers=(JSON_HEADER,), body=bytes(job.payload), timeout_s=None
        )

    def _ended(
        self, door: Door, server: int, came_s: float, came_to: Response | BaseException
    ) -> None:
        self._jobs[server] -= 1
        if not isinstance(came_to, Response) or came_to.status != 200:
            door.answer(b"502 Bad Gateway", _encode({"reason": "server_failed"}))
            return
        total_ms = (time.monotonic() - came_s) * 1e3
        answer = {"id": "", "cluster": "", "path": [""], "hops": 0}
        door.answer(OK, _encode({**answer, "timing_ms": {"total": total_ms}}))


def rule_of(plan: Dispatching, random: Random) -> Callable[[int, Sequence[int]], int]:
    """Returns the rule for a pool: which server takes a job of that type, where servers have so
    many jobs; BLOCKED if there is none for it. Ties are broken at random."""
    pool = plan.pool
    numbers = {server.id: index for index, server in enumerate(pool.servers)}
    if [each.servers for each in pool.classes] != [(server.id,) for server in pool.servers]:
        raise ValueError("expected one class for each server, in their order")
    of_class = {each.id: numbers[each.servers[0]] for each in pool.classes}
    limits = [each.tokens for each in pool.classes]
    fitting = [[of_class[name] for name in kind.classes] for kind in pool.types]

    def unless_full(server: int, jobs: Sequence[int]) -> int:
        return server if jobs[server] < limits[server] else BLOCKED

    def two_choices(kind: int, jobs: Sequence[int]) -> int:
        drawn = random.sample(fitting[kind], 2)  # in random order, which decides ties
        return unless_full(min(drawn, key=jobs.__getitem__), jobs)

    if plan.rule == TWO_CHOICES:
        return two_choices
    if plan.rule in STATIC:
        shares = [[plan.split[kind.id][name] for name in kind.classes] for kind in pool.types]

        def static(kind: int, jobs: Sequence[int]) -> int:
            servers, draw = fitting[kind], random.random()
            chosen = assigned_at_random(servers, shares[kind], 0, len(servers), draw)
            return unless_full(chosen, jobs)

        return static
    rates = [server.rate if plan.rule == BY_RATE else 1.0 for server in pool.servers]

    def shortest(kind: int, jobs: Sequence[int]) -> int:
        room = [server for server in fitting[kind] if jobs[server] < limits[server]]
        if not room:
            return BLOCKED
        least = min(jobs[server] / rates[server] for server in room)
        return random.choice([s for s in room if jobs[s] / rates[s] == least])

    return shortest
