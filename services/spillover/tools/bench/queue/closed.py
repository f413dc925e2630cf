"""As many clients that make objects (`makers`) as there are producers, and consumers that take, use
and acknowledge them, over HTTP: the closed system of Johnson's document, alive. How long consumers
wait and how many probes that takes; what is compared with it is in `waits`, and what messages take
is in `legs`.

All that is chance is drawn beforehand or found out afterwards, so that the simulator can play the
very same (`sim.queue.replay`): when objects are made and used up, and where probes go.

A client makes an object and then waits at the door with it, as one more place in the buffer: where
the document has f places, a producer has f - 1.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate
from random import Random
from typing import TypeAlias

from spillover.live.http.client import HttpClient, Response
from spillover.model.errors import PeerError, RunError
from spillover.sim.queue.replay import Came, Instants, next_of
from spillover.tools.bench.queue.makers import CALL_S, DEADLINE, ENDS_WITHIN_S, Makers, Making
from spillover.tools.bench.queue.ways import read_way

GREETING_S = 0.05
"""How long a probe waits that goes from one producer to another to have them connected."""
SMALL_CALLS = 20
"""To each producer, one after the other: so long is one way known by."""
READERS = 8
"""At a time, of where probes went."""

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
        """Of this run's takes: producers remember those of others."""
        self._access = dict.fromkeys(self._names, 1.0 / len(self._names))
        self._probes: dict[tuple[int, int], int] = {}
        """Of consumer and instant: how many probes went out for the object that has come."""
        self._came: list[Came] = []
        self._statuses: Counter[int] = Counter()
        self._in_use: dict[int, tuple[HttpClient, str]] = {}
        """By consumer: where to acknowledge what it uses, and the path."""
        self._begun_s = 0.0

    def _now_s(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self._begun_s

    async def run(self, urls: Mapping[str, str], makers: Makers, beside: Beside | None) -> None:
        """Raises RunError."""
        over = asyncio.Event()
        self._begun_s = time.monotonic()
        makers.begin(
            Making(
                urls=urls,
                made_s=self._made_s,
                message_s=self._message_s,
                begins_s=self._begun_s,
            )
        )
        made = asyncio.ensure_future(makers.made(self._load.ends_s + ENDS_WITHIN_S))
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
            makers.stop()
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
        client = self._clients[self._first[number][k]]
        body = body_of_take(
            f"c{number}", self._take_name(number, k), self._load.max_hops, self._access
        )
        begun_s = self._asked_s[number][k] = self._now_s()
        answer = await client.request(
            "POST", "/take", headers=[JSON_TYPE, DEADLINE], body=body, timeout_s=CALL_S
        )
        self._statuses[answer.status] += 1
        probes = int(answer.headers.get(b"spillover-probes", b"0"))
        grant = answer.headers.get(b"spillover-grant", b"").decode()
        if answer.status == 303:
            client = self._clients[answer.headers[b"spillover-producer"].decode()]
            answer = await client.request("GET", f"/objects/{grant}", timeout_s=CALL_S)
            if answer.status != 200:
                raise RunError(f"expected the object of {grant}, got {answer.status}")
        if answer.status != 200:
            return False
        now_s = self._now_s()
        self._came.append(Came(now_s, now_s - begun_s, probes))
        self._probes[number, k] = probes
        self._in_use[number] = client, f"/grants/{grant}/ack"
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
                way = await read_way(
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
