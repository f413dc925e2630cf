"""How long consumers wait and how many probes that takes: 20 producers and 20 consumers at four
loads, alive, beside the same system in the full simulator at the very same instants, where chance
is the same on both sides and little of it is left between them. This is more than a script because
a mean of plain waits to 5 % would take 40 minutes a case (decision 0039).

The closed system of Johnson's document: as many clients that make objects (`Makers`) as there are
producers, and consumers that take, use and acknowledge them, over HTTP. All that is chance is drawn
beforehand or found out afterwards, so that the simulator can play the very same
(`sim.queue.replay`): when objects are made and used up, and where probes go.

A client makes an object and then waits at the door with it, as one more place in the buffer: where
the document has f places, a producer has f - 1. These clients are a process of their own: what
they do must not delay the loop of those who wait for objects, whose lateness would count as
waiting.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from multiprocessing.connection import Connection
from random import Random
from statistics import fmean, stdev
from typing import Any, NamedTuple, TypeAlias

from spillover.live.http1.client import HttpClient, Response
from spillover.model.errors import PeerError, RunError, SpilloverError
from spillover.sim.queue import wires as kinds
from spillover.sim.queue.replay import Came, Instants, next_of, replay
from spillover.sim.queue.system import ProbingSystem, alike
from spillover.testbed.producers import ProducerBed
from spillover_lab.bench.session import Row, Session, Stage
from spillover_lab.processes.child import Child

OBJECT_BYTES = 1024
CALL_S = 90.0
"""Longer than a client waits at the door."""
DEADLINE = (b"spillover-deadline-ms", b"60000")
ENDS_WITHIN_S = 30.0
GREETING_S = 0.05
"""How long a probe waits that goes from one producer to another to have them connected."""
SMALL_CALLS = 20
"""The number of small calls to each producer, one after the other, by which the length of one way
is known."""
READERS = 8
"""At a time, of where probes went."""

LOOK_S = 30.0
_SENT_ON = re.compile(r"sent on to (\S+): hop (\d+)")
"""What `live.queue.history` says of a probe that was sent on."""

JSON_TYPE = (b"content-type", b"application/json")

Beside: TypeAlias = Callable[[float, asyncio.Event], Awaitable[None]]
"""What goes on while all of them work. It is told from when on things count, by the monotonic
clock, and what is set when they have ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedLoad:
    """Rates are those at which a client makes one object, and a consumer uses one."""

    consumers: int
    production_rate: float
    consumption_rate: float
    max_hops: int
    warm_up_s: float
    measured_s: float
    seed: int

    @property
    def ends_s(self) -> float:
        return self.warm_up_s + self.measured_s


@dataclass
class Seen:
    """What consumers saw from the beginning on, and what was chance."""

    instants: Instants
    came: list[Came] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)


async def play(
    urls: Mapping[str, str], load: ClosedLoad, makers: Makers, beside: Beside | None = None
) -> Seen:
    """Returns what was seen at these producers, by id. Raises RunError if a call goes wrong."""
    clients = {name: HttpClient(url) for name, url in urls.items()}
    try:
        await prepare(clients)
        one = _Play(clients, load, await _one_way_s(clients))
        await one.run(urls, makers, beside)
        return await one.seen()
    except PeerError as error:
        raise RunError(f"a producer: {error}") from None
    finally:
        for client in clients.values():
            with suppress(PeerError):
                await client.close()


def body_of_take(
    consumer: str,
    take: str,
    max_hops: int,
    access: Mapping[str, float],
    *,
    avoid_visited: bool = False,
) -> bytes:
    """Returns what a consumer says to POST /take."""
    told = {"consumer": consumer, "probe_id": take, "max_hops": max_hops, "access": access}
    return json.dumps({**told, "avoid_visited": avoid_visited}).encode()


async def prepare(clients: Mapping[str, HttpClient]) -> None:
    """Have producers empty, and all connected that are going to talk. Raises PeerError."""
    await asyncio.gather(*(_empty(client) for client in clients.values()))
    await _have_connected(clients)


async def _empty(client: HttpClient) -> None:
    """Take what others have left there."""
    headers = [JSON_TYPE, (b"spillover-deadline-ms", b"%d" % (GREETING_S * 1e3))]
    body = b'{"consumer":"nobody","probe_id":"emptying","max_hops":1}'
    while True:
        answer = await client.request("POST", "/take", headers=headers, body=body, timeout_s=CALL_S)
        if answer.status != 200:
            return
        path = f"/grants/{answer.headers[b'spillover-grant'].decode()}/ack"
        await client.request("POST", path, timeout_s=CALL_S)


async def _have_connected(clients: Mapping[str, HttpClient]) -> None:
    """Have each of the empty producers connected with each, and with who asks here: probes meet
    open connections wherever something goes on all day."""
    headers = [JSON_TYPE, (b"spillover-deadline-ms", b"%d" % (GREETING_S * 1e3))]
    for name, client in clients.items():
        bodies = [
            body_of_take("nobody", f"{name}-{peer}", 2, {peer: 1.0})
            for peer in clients
            if peer != name
        ]
        greetings = [
            client.request("POST", "/take", headers=headers, body=body, timeout_s=CALL_S)
            for body in bodies
        ]
        await asyncio.gather(*greetings)


async def _one_way_s(clients: Mapping[str, HttpClient]) -> float:
    """Half of what a small call takes, in the mean, where one follows the other."""
    begun_s = time.monotonic()
    for _ in range(SMALL_CALLS):
        for client in clients.values():
            await client.request("POST", "/grants/none/ack", timeout_s=10.0)
    return (time.monotonic() - begun_s) / (SMALL_CALLS * len(clients)) / 2.0


class Taken(NamedTuple):
    """What a take came to."""

    status: int
    """What the first producer answered."""
    probes: int
    client: HttpClient
    """The client of the producer that had the object."""
    ack: str
    """The path there by which it is acknowledged; empty if none came."""
    found_s: float
    """The time until it was here, or known where it is."""
    fetched_s: list[float]
    """How long it took to fetch it, where it was elsewhere."""


async def _take(clients: Mapping[str, HttpClient], first: str, body: bytes) -> Taken:
    """Asks the first producer, and fetches the object from where it is. Raises RunError if it is
    not there."""
    client, begun_s = clients[first], time.monotonic()
    answer = await client.request(
        "POST", "/take", headers=[JSON_TYPE, DEADLINE], body=body, timeout_s=CALL_S
    )
    found_s, fetched_s, status = time.monotonic() - begun_s, [], answer.status
    probes = int(answer.headers.get(b"spillover-probes", b"0"))
    grant = answer.headers.get(b"spillover-grant", b"").decode()
    if status == 303:
        client = clients[answer.headers[b"spillover-producer"].decode()]
        answer = await client.request("GET", f"/objects/{grant}", timeout_s=CALL_S)
        fetched_s.append(time.monotonic() - begun_s - found_s)
        if answer.status != 200:
            raise RunError(f"expected the object of {grant}, got {answer.status}")
    ack = f"/grants/{grant}/ack" if answer.status == 200 else ""
    return Taken(status, probes, client, ack, found_s, fetched_s)


def _instants(random: Random, rate_per_s: float, until_s: float) -> list[float]:
    """The beginning, and so many in a second, by chance, up to then."""
    times = [0.0]
    while times[-1] < until_s:
        times.append(times[-1] + random.expovariate(rate_per_s))
    return times


class _Play:
    """One run. What is done, and when, is written over what was drawn: a loop comes late."""

    def __init__(
        self, clients: Mapping[str, HttpClient], load: ClosedLoad, message_s: float
    ) -> None:
        self._clients = clients
        self._names = list(clients)
        self._load = load
        self._message_s = message_s
        """One way to a producer, of an object or of the news that it is taken."""
        random = Random(load.seed)
        self._made_s = [_instants(random, load.production_rate, load.ends_s)[1:] for _ in clients]
        self._asked_s = [
            _instants(random, load.consumption_rate, load.ends_s) for _ in range(load.consumers)
        ]
        self._first = [[random.choice(self._names) for _ in times] for times in self._asked_s]
        self._name = f"{time.time_ns():x}"
        """The name of this run's takes: producers remember those of others."""
        self._access = dict.fromkeys(self._names, 1.0 / len(self._names))
        self._probes: dict[tuple[int, int], int] = {}
        """The number of probes that went out for the object that has come, by consumer and
        instant."""
        self._came: list[Came] = []
        self._statuses: Counter[int] = Counter()
        self._in_use: dict[int, tuple[HttpClient, str]] = {}
        """What each consumer uses: where to acknowledge it, and the path."""
        self._begun_s = 0.0

    def _now_s(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self._begun_s

    async def run(self, urls: Mapping[str, str], makers: Makers, beside: Beside | None) -> None:
        """Raises RunError."""
        over = asyncio.Event()
        self._begun_s = time.monotonic()
        makers.send(
            Making(
                urls=urls,
                made_s=self._made_s,
                message_s=self._message_s,
                begins_s=self._begun_s,
            )
        )
        made = asyncio.ensure_future(makers.receive(self._load.ends_s + ENDS_WITHIN_S))
        using = [asyncio.ensure_future(self._use_objects(i)) for i in range(self._load.consumers)]
        watching = None
        if beside is not None:
            counts_s = self._begun_s + self._load.warm_up_s
            watching = asyncio.ensure_future(beside(counts_s, over))
        try:
            ended, _ = await asyncio.wait(
                [made, *using], timeout=self._load.ends_s, return_when=asyncio.FIRST_EXCEPTION
            )
            for task in ended:
                task.result()
            makers.send(None)
            self._made_s = await made
        finally:
            over.set()
            for task in (made, *using):
                task.cancel()
            await asyncio.gather(made, *using, return_exceptions=True)
            if watching is not None:
                await watching
        # Else they would come back to whoever plays next.
        left = [one.request("POST", path, timeout_s=10.0) for one, path in self._in_use.values()]
        await asyncio.gather(*left, return_exceptions=True)

    async def _use_objects(self, number: int) -> None:
        """One consumer: it asks, fetches, works, and acknowledges while it asks again."""
        asked_s = self._asked_s[number]
        acks: set[asyncio.Future[Response]] = set()
        k = 0
        while k < len(asked_s):
            await asyncio.sleep(asked_s[k] - self._now_s())
            if (used := self._in_use.pop(number, None)) is not None:
                ack = asyncio.ensure_future(used[0].request("POST", used[1], timeout_s=CALL_S))
                acks.add(ack)
                ack.add_done_callback(acks.discard)
            if await self._take(number, k):
                k = next_of(asked_s, self._now_s(), k)

    async def _take(self, number: int, k: int) -> bool:
        """Whether an object has come."""
        body = body_of_take(
            f"c{number}", self._take_name(number, k), self._load.max_hops, self._access
        )
        begun_s = self._asked_s[number][k] = self._now_s()
        taken = await _take(self._clients, self._first[number][k], body)
        self._statuses[taken.status] += 1
        if not taken.ack:
            return False
        now_s = self._now_s()
        self._came.append(Came(now_s, now_s - begun_s, taken.probes))
        self._probes[number, k] = taken.probes
        self._in_use[number] = taken.client, taken.ack
        return True

    def _take_name(self, number: int, k: int) -> str:
        return f"{self._name}-{number}-{k}"

    async def seen(self) -> Seen:
        """Returns what was seen, once it has been asked where probes went. Raises RunError."""
        readers = asyncio.Semaphore(READERS)
        numbers = {name: number for number, name in enumerate(self._names)}
        ways = [[[numbers[first]] for first in of_one] for of_one in self._first]

        async def read(i: int, k: int, probes: int) -> None:
            async with readers:
                way = await _read_way(
                    self._clients, self._take_name(i, k), self._first[i][k], probes
                )
            ways[i][k] = [numbers[name] for name in way]

        await asyncio.gather(*(read(i, k, n) for (i, k), n in self._probes.items() if n > 1))
        made_s = [[at_s + self._message_s for at_s in times] for times in self._made_s]
        instants = Instants(_in_order(made_s), _in_order(self._asked_s), ways)
        return Seen(instants, self._came, self._statuses)


def _in_order(instants: Sequence[Sequence[float]]) -> list[list[float]]:
    """Those that were not used may lie before one that came late."""
    return [list(accumulate(times, max)) for times in instants]


async def _read_way(
    clients: Mapping[str, HttpClient], probe_id: str, first: str, probes: int
) -> list[str]:
    """Returns the producers that were asked by so many probes, from the first on. Raises RunError
    where one knows nothing of the probe."""
    way = [first]
    sent: dict[int, str] = {}
    asked: set[str] = set()
    while len(way) < probes:
        here = way[-1]
        if here not in asked:
            asked.add(here)
            sent |= await _sent_on(clients[here], here, probe_id)
        # A hop from a producer to itself is sent to nobody.
        way.append(sent.get(len(way) + 1, here))
    return way


async def _sent_on(client: HttpClient, name: str, probe_id: str) -> dict[int, str]:
    """Returns whom this producer has sent a probe on to, by the number of the hop."""
    answer = await client.request("GET", f"/explain/{probe_id}", timeout_s=LOOK_S)
    if answer.status != 200:
        raise RunError(f"producer {name}: expected to hear of probe {probe_id}")
    records = (_SENT_ON.fullmatch(told["words"]) for told in json.loads(answer.body)["story"])
    return {int(found[2]): found[1] for found in records if found is not None}


# --- the clients that make objects ---------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Making:
    """What one run of theirs goes by."""

    urls: Mapping[str, str]
    """The urls of producers, each with one client, by id."""
    made_s: Sequence[Sequence[float]]
    """In the same order: when each client has made an object, if it is making one."""
    message_s: float
    """One way to a producer, of an object or of the news that it is taken."""
    begins_s: float
    """The beginning by the monotonic clock, which all processes share. All else counts from
    then."""


class Makers(Child):
    """There on entry, ended on exit. It makes objects by each `Making` that it is sent, until it is
    sent None; then it gives what it went by, with when objects were made written over what was
    drawn. It ends at once with a RunError if one of its calls goes wrong."""

    def __init__(self) -> None:
        super().__init__("the process that makes objects", _make_objects)


async def _make_objects(connection: Connection) -> None:
    """Runs as the process: one run after the other, until the benchmark ends it."""
    while True:
        making: Making = await _heard(connection)
        clients = [HttpClient(url) for url in making.urls.values()]
        try:
            connection.send(await _run(making, clients, connection))
        except SpilloverError as error:
            connection.send(RunError(f"a producer: {error}"))
        finally:
            for client in clients:
                with suppress(PeerError):
                    await client.close()


async def _run(
    making: Making, clients: Sequence[HttpClient], connection: Connection
) -> list[list[float]]:
    """Returns when objects were made, when it is told to stop. Raises SpilloverError."""
    made_s = [list(times) for times in making.made_s]
    told = asyncio.ensure_future(_heard(connection))
    running = [
        asyncio.ensure_future(_make(client, times, making))
        for client, times in zip(clients, made_s, strict=True)
    ]
    failing = asyncio.gather(*running)
    try:
        await asyncio.wait([told, failing], return_when=asyncio.FIRST_COMPLETED)
        if failing.done():
            failing.result()
        await told
    finally:
        for task in (told, *running):
            task.cancel()
        await asyncio.gather(told, *running, failing, return_exceptions=True)
    return made_s


async def _make(client: HttpClient, made_s: list[float], making: Making) -> None:
    """One client. What its call takes by itself counts as making the next object: a producer of the
    document has no such call."""
    body = bytes(OBJECT_BYTES)
    k = next_of(made_s, 0.0, -1)
    while k < len(made_s):
        await asyncio.sleep(made_s[k] - _since_s(making))
        made_s[k] = _since_s(making)
        answer = await client.request(
            "POST", "/objects", headers=[DEADLINE], body=body, timeout_s=CALL_S
        )
        if answer.status != 201:
            raise RunError(f"expected 201 for an object, got {answer.status}")
        k = next_of(made_s, _since_s(making) - 2.0 * making.message_s, k)


def _since_s(making: Making) -> float:
    return time.monotonic() - making.begins_s


async def _heard(connection: Connection) -> Any:
    """Returns the next word of the parent's."""
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(connection.fileno(), readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(connection.fileno())
    return connection.recv()


# --- what messages take while others work ---------------------------------------------------------

# Objects are found at once, at the next producer and at the one after it, at producers that nobody
# else uses. What differs between these is one message more.
#
#     at once     take, object
#     at the next take, probe, offer, pointer; then fetch, object
#     after it    the same, and a probe that finds nothing
#
# And once more at once, where a client waits at the door with the next object: what its producer
# does for that one takes processor time from whoever reads the first. It is shown, and goes into no
# leg.
#
# What is rested has left the caches of the processor, and is slower. So whatever is not the wire is
# as with those that are measured, as far as it can be: how often a producer is asked and by whom,
# how long an object lies, and that a take goes with an acknowledgement at some other producer.


WAYS_MAX = 3
"""Producers of the longest way. There is one object under way for so many that are watched."""
LIES_S = 0.2
"""How long an object lies in the mean before it is taken."""
PAUSE_S = 0.08
"""In the mean, before the next one. So each producer is asked about as often as one of those that
are measured where objects lie, at load 50 %."""
EACH_MIN = 2
NEXT_BUT_ONE, ELSEWHERE = 1e-5, 1e-14
"""Probabilities of the producer that shall be asked after the next, and of each that shall never
be: as many as others have."""
NORMAL = 1.96


@dataclass
class Legs:
    """What was seen so far."""

    at_once_s: list[float] = field(default_factory=list)
    next_s: list[float] = field(default_factory=list)
    """Up to the pointer."""
    after_s: list[float] = field(default_factory=list)
    """Up to the pointer."""
    fetched_s: list[float] = field(default_factory=list)
    at_door_s: list[float] = field(default_factory=list)
    """At once, with a client at the door."""

    def means_s(self) -> dict[str, float]:
        """Returns what each message takes in the mean, by its kind. The offer and the pointer are
        seen together alone, as the take and the object are."""
        message_s = fmean(self.at_once_s) / 2.0
        probe_s = max(0.0, fmean(self.after_s) - fmean(self.next_s))
        both_s = max(0.0, fmean(self.next_s) - message_s - probe_s)
        return {
            kinds.TAKE: message_s,
            kinds.OBJECT: message_s,
            kinds.PROBE: probe_s,
            kinds.OFFER: both_s / 2.0,
            kinds.POINTER: both_s / 2.0,
            kinds.FETCH: max(0.0, fmean(self.fetched_s) - message_s),
        }

    def half_width_s(self, probes: Sequence[int]) -> float:
        """Returns by how much all messages together, of objects for which so many probes were
        sent, may differ from those that were seen here, in the mean: 95 of 100 times by less."""
        beyond = [count - 2 for count in probes if count > 1]
        parts = (
            (self.at_once_s, len(probes) - len(beyond)),
            (self.next_s, sum(1 - more for more in beyond)),
            (self.after_s, sum(beyond)),
            (self.fetched_s, len(beyond)),
        )
        shares = [(_error(seen) * count / len(probes)) ** 2 for seen, count in parts]
        return float(NORMAL * sum(shares) ** 0.5)

    async def watch(
        self,
        urls: Mapping[str, str],
        seed: int,
        counts_s: float,
        over: asyncio.Event,
        *,
        named: Sequence[str] = (),
    ) -> None:
        """Look on at these producers, WAYS_MAX of them at least, which know each other and are used
        by nobody else, from `counts_s` on until it is over. Probes also name those `named`, which
        they know and do not ask, to be as long as others. Raises RunError."""
        clients = {name: HttpClient(url) for name, url in urls.items()}
        watcher = _Watcher(clients, [*urls, *named], Random(seed), self)

        async def look_on() -> None:
            while not over.is_set() or len(self.after_s) < EACH_MIN:
                await watcher.look(counts=time.monotonic() >= counts_s)

        try:
            await prepare(clients)
            await asyncio.gather(*(look_on() for _ in range(len(urls) // WAYS_MAX)))
            await watcher.settle_all()
        except PeerError as error:
            raise RunError(f"a producer: {error}") from None
        finally:
            for client in clients.values():
                with suppress(PeerError):
                    await client.close()


class _Watcher:
    def __init__(
        self,
        clients: Mapping[str, HttpClient],
        named: Sequence[str],
        random: Random,
        legs: Legs,
    ) -> None:
        self._clients = clients
        self._free = list(clients)
        """Those that no object is at, or on its way to."""
        self._named = named
        self._random = random
        self._legs = legs
        self._name = f"{time.time_ns():x}"
        self._takes = 0
        self._in_use: list[tuple[HttpClient, str]] = []
        """Who has the grants of objects that came, and where they are settled."""

    async def look(self, *, counts: bool) -> None:
        """One object in each of the ways, each between other producers."""
        legs = self._legs
        for seen_s, probes in (
            *((legs.at_once_s, 1), (legs.next_s, 2), (legs.after_s, WAYS_MAX)),
            (legs.at_door_s, 1),
        ):
            await asyncio.sleep(self._random.expovariate(1.0 / PAUSE_S))
            way = self._random.sample(self._free, probes)
            self._free = [name for name in self._free if name not in way]
            await self._put(way[-1])
            at_door = self._put(way[-1]) if seen_s is legs.at_door_s else None
            await asyncio.sleep(self._random.expovariate(1.0 / LIES_S))
            taken = await self._take(way)
            if at_door is not None:
                await at_door
                await self._take(way)
            self._free += way
            if counts and taken.probes == probes:
                seen_s.append(taken.found_s)
                legs.fetched_s += taken.fetched_s

    def _put(self, name: str) -> asyncio.Future[Response]:
        return self._clients[name].request(
            "POST", "/objects", body=bytes(OBJECT_BYTES), timeout_s=CALL_S
        )

    async def _take(self, way: Sequence[str]) -> Taken:
        self._takes += 1
        # Each is asked once, so that the next is the only likely one, and then the last one left.
        access = dict.fromkeys(self._named, ELSEWHERE) | dict.fromkeys(way[2:], NEXT_BUT_ONE)
        access[way[min(1, len(way) - 1)]] = 1.0 - NEXT_BUT_ONE * len(way[2:])
        body = body_of_take(
            "watcher", f"{self._name}-{self._takes}", len(way), access, avoid_visited=True
        )
        settling = self._settle_elsewhere(self._clients[way[0]])  # beside it, as consumers do
        taken = await _take(self._clients, way[0], body)
        if not taken.ack:
            raise RunError(f"expected the object of {way[-1]}, got {taken.status}")
        await settling
        self._in_use.append((taken.client, taken.ack))
        return taken

    def _settle_elsewhere(self, asked: HttpClient) -> asyncio.Future[Any]:
        """Acknowledge the oldest that is not of the producer that is asked: of twenty it seldom is.
        The future ends when that is done, at once where there is none."""
        for one in self._in_use:
            if one[0] is not asked:
                self._in_use.remove(one)
                return one[0].request("POST", one[1], timeout_s=CALL_S)
        return asyncio.gather()

    async def settle_all(self) -> None:
        """Acknowledge what is left."""
        left, self._in_use = self._in_use, []
        await asyncio.gather(
            *(client.request("POST", path, timeout_s=CALL_S) for client, path in left)
        )


def _error(values: Sequence[float]) -> float:
    """Returns the standard error of the mean of values."""
    return float(stdev(values) / len(values) ** 0.5)


# --- live beside simulated ------------------------------------------------------------------------


LOADS = (50, 100, 150, 200)
"""What consumers want, in percent of what can be made."""
HOPS = (1, 3, 5, 10)
CASES = {
    f"load {load} %, {f'at most {hops} probes' if hops > 1 else 'one probe'}": (load, hops)
    for load in LOADS
    for hops in HOPS
}
PRODUCERS = CONSUMERS = 20
WATCHED = 12
"""More producers, on which `legs` looks."""
PRODUCTION_PER_S = 5.0
"""The rate of each producer: so slow that no process waits for the processor."""
PLACES = 2
EXPIRY_S = 5.0
"""The time after which probes expire, as producers have it unless told otherwise."""
WARM_UP_S, MEASURED_S = (3.0, 0.5), (12.0, 1.5)
GRACE_S = 0.1

STRETCHES = 10
"""The number of stretches of all runs, one after the other: of ten runs each is one, so that it
counts too by what whole runs differ."""
STUDENT_T = 2.262
"""The 97.5 % quantile of Student's law with STRETCHES - 1 degrees of freedom."""

PAIRED = "itself, simulated at the same instants"
LEGS = {
    "take, and object": (kinds.TAKE, kinds.OBJECT),
    "probe sent on": (kinds.PROBE,),
    "offer, pointer and fetch, which our wire adds": (kinds.OFFER, kinds.POINTER, kinds.FETCH),
}
AT_DOOR = "take, and object, with a client at the door"
BY_PROBES = (("by one probe", 1, 1), ("by two probes", 2, 2), ("by three or more", 3, math.inf))
"""What is told apart, from fewest to most."""
SEEN_MIN = 30
WAIT = "ms", 1e3, lambda came: came.wait_s
PROBES = "each", 1.0, lambda came: float(came.probes)
"""A figure of an object: its unit, how many of them one has, and what it is."""


@dataclass(frozen=True)
class _Played:
    """All runs of one case; `load` is that of the first."""

    case: str
    load: ClosedLoad
    seen: list[Seen]
    legs: Legs

    def replayed(self) -> list[list[Came]]:
        """Returns what the simulator sees at the same instants, run by run."""
        legs = self.legs.means_s()
        system = ProbingSystem(
            kinds=alike(PRODUCERS, self.load.production_rate),
            consumers=self.load.consumers,
            consumption_rate=self.load.consumption_rate,
            message_time=legs[kinds.TAKE],
            buffers=PLACES,
            max_hops=self.load.max_hops,
        )
        return [
            replay(
                *(system, seen.instants, self.load.ends_s, self.load.seed + run),
                probe_expiry_s=EXPIRY_S,
                legs=legs,
            )
            for run, seen in enumerate(self.seen)
        ]

    def probes(self, runs: Sequence[Sequence[Came]]) -> list[int]:
        """Returns how many probes each object took, of those that count."""
        since_s, until_s = self.load.warm_up_s, self.load.ends_s
        return [came.probes for run in runs for came in run if since_s <= came.at_s < until_s]


async def _measure(session: Session) -> None:
    producers = PRODUCERS + WATCHED
    async with ProducerBed(producers, buffers=PLACES - 1, drain_timeout_s=GRACE_S) as bed:
        for case in CASES:
            if session.wants(case):
                with Makers() as makers:
                    played = await _play(case, bed.urls, makers, session)
                await asyncio.to_thread(_note, played, session)
    session.note(
        "waits: all runs count together; the half-width is that of the difference, and has in it "
        "how far it is known what messages take"
    )


async def _play(case: str, urls: Mapping[str, str], makers: Makers, session: Session) -> _Played:
    """Raises RunError unless each take got its object, here or where it was fetched."""
    share, hops = CASES[case]
    plan = session.plan
    load = ClosedLoad(
        consumers=CONSUMERS,
        production_rate=PRODUCTION_PER_S,
        consumption_rate=PRODUCTION_PER_S * share / 100 * PRODUCERS / CONSUMERS,
        max_hops=hops,
        warm_up_s=plan.of(*WARM_UP_S),
        measured_s=plan.of(*MEASURED_S),
        seed=plan.seed,
    )
    used = dict(list(urls.items())[:PRODUCERS])
    watched = {name: url for name, url in urls.items() if name not in used}
    played = _Played(case, load, [], Legs())
    for seed in session.seeds(case):
        watch = partial(played.legs.watch, watched, seed, named=list(used)[WATCHED:])
        seen = await play(used, replace(load, seed=seed), makers, watch)
        if set(seen.statuses) - {200, 303}:
            raise RunError(f"{case}: expected objects, got by status {dict(seen.statuses)}")
        played.seen.append(seen)
    return played


def _note(played: _Played, session: Session) -> None:
    """Simulate the same, and add the rows."""
    ours, twins = [seen.came for seen in played.seen], played.replayed()
    probes, legs = played.probes(ours), played.legs.means_s()
    wait, error_s = "wait for an object", played.legs.half_width_s(probes)
    session.add(_row(played, wait, WAIT, (ours, twins), error_s))
    session.add(_row(played, "probes of a request", PROBES, (ours, twins)))
    counts = ""
    for name, fewest, most in BY_PROBES if played.load.max_hops > 1 else ():
        live, simulated = (
            [[came for came in run if fewest <= came.probes <= most] for run in runs]
            for runs in (ours, twins)
        )
        seen = played.probes(live), played.probes(simulated)
        counts += f"; {len(seen[0])} live and {len(seen[1])} simulated {name}"
        if min(map(len, seen)) >= SEEN_MIN:  # of a kind that is rare nothing is said
            error_s = played.legs.half_width_s(seen[0])
            session.add(_row(played, f"{wait}, {name}", WAIT, (live, simulated), error_s))
    took_s = {name: sum(legs[part] for part in parts) for name, parts in LEGS.items()}
    for name, leg_s in (took_s | {AT_DOOR: fmean(played.legs.at_door_s)}).items():
        session.add(Row(case=f"{played.case}: {name}", unit="ms", values=(leg_s * 1e3,)))
    session.note(f"{played.case}: {len(probes)} objects{counts}")


def _row(
    played: _Played,
    what: str,
    of: tuple[str, float, Callable[[Came], float]],
    pair: tuple[Sequence[Sequence[Came]], Sequence[Sequence[Came]]],
    error: float = 0.0,
) -> Row:
    """Returns what was live beside what was simulated; `error` is how far it is known what messages
    take."""
    unit, scale, value = of
    live, twin = (estimate(runs, played.load.warm_up_s, played.load.ends_s, value) for runs in pair)
    return Row(
        case=f"{played.case}: {what}",
        unit=unit,
        values=(live.mean * scale,),
        half_width=math.hypot(live.half_width_beside(twin), error) * scale,
        peer=PAIRED,
        peer_values=(twin.mean * scale,),
        peer_half_width=twin.half_width * scale,
    )


# Waits that follow each other are alike, so what differs is counted by stretches of time, each long
# enough to be one draw; and what two systems saw at the same instants is compared stretch by
# stretch.


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean, and by how much each stretch would have it differ."""

    mean: float
    differs: tuple[float, ...]

    @property
    def half_width(self) -> float:
        """Returns that of the 95 % interval."""
        return _half_width(self.differs)

    def half_width_beside(self, other: Estimate) -> float:
        """Returns that of the difference from what was seen at the same instants."""
        pairs = zip(self.differs, other.differs, strict=True)
        return _half_width([ours - theirs for ours, theirs in pairs])


def estimate(
    runs: Sequence[Sequence[Came]], since_s: float, until_s: float, value: Callable[[Came], float]
) -> Estimate:
    """Returns the mean of objects that came in that time of each run. Raises RunError if hardly any
    did."""
    sums, counts = [0.0] * STRETCHES, [0] * STRETCHES
    for number, run in enumerate(runs):
        for came in run:
            if since_s <= came.at_s < until_s:
                tenth = int((came.at_s - since_s) / (until_s - since_s) * STRETCHES)
                stretch = (number * STRETCHES + tenth) // len(runs)
                sums[stretch] += value(came)
                counts[stretch] += 1
    total = sum(counts)
    if total < STRETCHES:
        raise RunError(f"expected objects, got {total}")
    mean, share = sum(sums) / total, total / STRETCHES
    differs = [(a_sum - mean * count) / share for a_sum, count in zip(sums, counts, strict=True)]
    return Estimate(mean, tuple(differs))


def _half_width(differs: Sequence[float]) -> float:
    return float(STUDENT_T * stdev(differs) / STRETCHES**0.5)


STAGES = (Stage(tuple(CASES), _measure),)
