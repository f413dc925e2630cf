"""What messages take while others work: objects are found at once, at the next producer and at the
one after it, at producers that nobody else uses. What differs between these is one message more.

    at once     take, object
    at the next take, probe, offer, pointer; then fetch, object
    after it    the same, and a probe that finds nothing

And once more at once, where a client waits at the door with the next object: what its producer does
for that one takes processor time from whoever reads the first. It is told, and goes into no leg.

What is rested has left the caches of the processor, and is slower. So whatever is not the wire is
as with those that are measured, as far as it can be: how often a producer is asked and by whom, how
long an object lies, and that a take goes with an acknowledgement at some other producer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from statistics import fmean, stdev
from typing import Any

from spillover.live.http.client import HttpClient, Response
from spillover.model.errors import PeerError, RunError
from spillover.sim.queue import wires as kinds
from spillover.tools.bench.queue.closed import JSON_TYPE, body_of_take, prepare
from spillover.tools.bench.queue.makers import CALL_S, DEADLINE, OBJECT_BYTES

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
            sent, found_s, fetched_s = await self._take(way)
            if at_door is not None:
                await at_door
                await self._take(way)
            self._free += way
            if counts and sent == probes:
                seen_s.append(found_s)
                legs.fetched_s += fetched_s

    def _put(self, name: str) -> asyncio.Future[Response]:
        return self._clients[name].request(
            "POST", "/objects", body=bytes(OBJECT_BYTES), timeout_s=CALL_S
        )

    async def _take(self, way: Sequence[str]) -> tuple[int, float, list[float]]:
        """Returns how many probes were sent, how long it took until the object was here or it was
        known where it is, and its fetching from there."""
        self._takes += 1
        # Each is asked once, so that the next is the only likely one, and then the last one left.
        access = dict.fromkeys(self._named, ELSEWHERE) | dict.fromkeys(way[2:], NEXT_BUT_ONE)
        access[way[min(1, len(way) - 1)]] = 1.0 - NEXT_BUT_ONE * len(way[2:])
        body = body_of_take(
            "watcher", f"{self._name}-{self._takes}", len(way), access, avoid_visited=True
        )
        client = self._clients[way[0]]
        settling = self._settle_elsewhere(client)  # beside the next, as consumers do
        begun_s = time.monotonic()
        answer = await client.request(
            "POST", "/take", headers=[JSON_TYPE, DEADLINE], body=body, timeout_s=CALL_S
        )
        sent = int(answer.headers.get(b"spillover-probes", b"0"))
        grant = answer.headers.get(b"spillover-grant", b"").decode()
        found_s, fetched_s = time.monotonic() - begun_s, []
        if answer.status == 303:
            client = self._clients[way[-1]]
            answer = await client.request("GET", f"/objects/{grant}", timeout_s=CALL_S)
            fetched_s.append(time.monotonic() - begun_s - found_s)
        _check(answer, way)
        await settling
        self._in_use.append((client, f"/grants/{grant}/ack"))
        return sent, found_s, fetched_s

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


def _check(answer: Response, way: Sequence[str]) -> None:
    if answer.status != 200:
        raise RunError(f"expected the object of {way[-1]}, got {answer.status}")


def _error(values: Sequence[float]) -> float:
    """Of their mean."""
    return float(stdev(values) / len(values) ** 0.5)
