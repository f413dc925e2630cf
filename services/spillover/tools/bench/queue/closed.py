"""As many clients that make objects as there are producers, and consumers that take, use and
acknowledge them, over HTTP: the closed system of Johnson's document, alive. How long consumers wait
and how many probes that takes; what is compared with it is in `waits`.

A client makes an object and then waits at the door with it, as one more place in the buffer: where
the document has f places, a producer has f - 1.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from statistics import fmean, stdev

from spillover.live.http.client import HttpClient, Response
from spillover.model.errors import PeerError, RunError

OBJECT_BYTES = 1024
CALL_S = 90.0
ASKED_PER_S = 20.0
"""How often it is asked what a message takes."""
BATCHES = 10
STUDENT_T = 2.262
"""The 97.5 % quantile of Student's law with BATCHES - 1 degrees of freedom."""

_TYPE = [(b"content-type", b"application/json")]
_DEADLINE = [(b"spillover-deadline-ms", b"60000")]


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


@dataclass
class Seen:
    """What consumers saw of objects that came while it was measured."""

    messages_s: list[float] = field(default_factory=list)
    """What a message takes, one way: asked now and then while all of them work, since a process
    that has slept takes longer than one that is asked again and again."""
    waits_s: list[float] = field(default_factory=list)
    probes: list[int] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    in_use: dict[str, tuple[HttpClient, str]] = field(default_factory=dict)
    """By consumer: where to acknowledge what it uses, and the path."""


async def play(urls: Mapping[str, str], load: ClosedLoad) -> Seen:
    """Returns what was seen at these producers, by id. Raises RunError if a call goes wrong."""
    clients = {name: HttpClient(url) for name, url in urls.items()}
    random = Random(load.seed)
    seen = Seen()
    try:
        message_s = await _one_way_s(list(clients.values()))
        since_s = time.monotonic() + load.warm_up_s
        tasks = [
            *(
                _make_objects(client, Random(random.random()), load.production_rate, message_s)
                for client in clients.values()
            ),
            *(
                _use_objects(f"c{k}", clients, Random(random.random()), load, since_s, seen)
                for k in range(load.consumers)
            ),
            _ask(list(clients.values()), Random(random.random()), since_s, seen),
        ]
        running = [asyncio.ensure_future(task) for task in tasks]
        try:
            ended, _ = await asyncio.wait(
                running,
                timeout=load.warm_up_s + load.measured_s,
                return_when=asyncio.FIRST_EXCEPTION,
            )
            for task in ended:
                task.result()
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        # Else they would come back to whoever plays next.
        left = [one.request("POST", path, timeout_s=10.0) for one, path in seen.in_use.values()]
        await asyncio.gather(*left, return_exceptions=True)
    except PeerError as error:
        raise RunError(f"a producer: {error}") from None
    finally:
        for client in clients.values():
            with suppress(PeerError):
                await client.close()
    return seen


def half_width(values: Sequence[float]) -> float:
    """Returns that of the 95 % interval of the mean, from batches in their order."""
    size = len(values) // BATCHES
    means = [fmean(values[k * size : (k + 1) * size]) for k in range(BATCHES)]
    return float(STUDENT_T * stdev(means) / BATCHES**0.5)


async def _one_way_s(clients: Sequence[HttpClient]) -> float:
    """Half of what a small call takes, in the mean, where one follows the other."""
    return fmean([await _half_a_call_s(client) for _ in range(20) for client in clients])


async def _ask(clients: Sequence[HttpClient], random: Random, since_s: float, seen: Seen) -> None:
    """Ask one of them now and then, at random, as consumers do."""
    while True:
        await asyncio.sleep(random.expovariate(ASKED_PER_S))
        took_s = await _half_a_call_s(random.choice(clients))
        if time.monotonic() >= since_s:
            seen.messages_s.append(took_s)


async def _half_a_call_s(client: HttpClient) -> float:
    begun_s = time.monotonic()
    await client.request("POST", "/grants/none/ack", timeout_s=10.0)
    return (time.monotonic() - begun_s) / 2.0


async def _make_objects(
    client: HttpClient, random: Random, rate_per_s: float, message_s: float
) -> None:
    """One producing client of one producer. What its call takes by itself, and the loop's being
    late, count as making the next object: a producer of the document has neither."""
    body = bytes(OBJECT_BYTES)
    made_s = time.monotonic()
    while True:
        made_s += random.expovariate(rate_per_s)
        await asyncio.sleep(made_s - time.monotonic())
        answer = await client.request(
            "POST", "/objects", headers=_DEADLINE, body=body, timeout_s=CALL_S
        )
        if answer.status != 201:
            raise RunError(f"expected 201 for an object, got {answer.status}")
        made_s = max(made_s, time.monotonic() - 2.0 * message_s)


async def _use_objects(
    name: str,
    clients: Mapping[str, HttpClient],
    random: Random,
    load: ClosedLoad,
    since_s: float,
    seen: Seen,
) -> None:
    """One consumer: it asks, fetches, works, and acknowledges while it asks again."""
    number = 0
    acks: set[asyncio.Future[Response]] = set()
    while True:
        number += 1
        first = random.choice(list(clients))
        asked = b'{"consumer":"%b","probe_id":"%b-%d","max_hops":%d}' % (
            name.encode(), name.encode(), number, load.max_hops,
        )  # fmt: skip
        begun_s = time.monotonic()
        answer = await clients[first].request(
            "POST", "/take", headers=[*_TYPE, *_DEADLINE], body=asked, timeout_s=CALL_S
        )
        seen.statuses[answer.status] += 1
        probes = int(answer.headers.get(b"spillover-probes", b"0"))
        grant = answer.headers.get(b"spillover-grant", b"").decode()
        if answer.status == 303:
            first = answer.headers[b"spillover-producer"].decode()
            answer = await clients[first].request("GET", f"/objects/{grant}", timeout_s=CALL_S)
        if answer.status != 200:
            continue
        now_s = time.monotonic()
        if now_s >= since_s:
            seen.waits_s.append(now_s - begun_s)
            seen.probes.append(probes)
        seen.in_use[name] = where = clients[first], f"/grants/{grant}/ack"
        await asyncio.sleep(random.expovariate(load.consumption_rate))
        del seen.in_use[name]
        ack = asyncio.ensure_future(where[0].request("POST", where[1], timeout_s=CALL_S))
        acks.add(ack)
        ack.add_done_callback(acks.discard)
