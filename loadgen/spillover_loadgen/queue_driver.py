"""Puts objects into a queue in open loop, at their intended instants, and has consumers take them.

A consumer takes an object, is busy for a while, acknowledges it, and takes the next one. It is the
plainest there can be, so that what is measured is the queue. What is counted is in `queue_record`.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from random import Random

from spillover.commandline.api_token import Headers
from spillover.live.http1.client import HttpClient, Response
from spillover.model.errors import NotDelivered, PeerError
from spillover.model.ids import ClusterId
from spillover_loadgen.queue_record import Put, QueueRecord, Took, decode_object, encode_object

LEAD_S = 0.1
"""The time from the end of the preparations to time 0 of the schedule."""
IDLE_S_MAX = 4.0
"""Less than servers keep idle connections (5 s is usual), so that none closes as it is used."""
CONNECT_TIMEOUT_S = 5.0
ANSWER_EXTRA_S = 5.0
"""The producer's own deadline comes first."""
DRAIN_S_MAX = 60.0
"""After the duration, for what is in the queue to be consumed."""
LOOK_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLoad:
    """What is asked for. Rates are of each target; times between objects, and those that consumers
    are busy, are exponential."""

    produce_rate_per_s: float
    consumers: int
    consume_s: float
    object_bytes: int
    duration_s: float
    max_hops: int
    deadline_s: float
    seed: int


async def run(
    targets: Mapping[ClusterId, str],
    load: QueueLoad,
    stop: asyncio.Event,
    *,
    headers: Headers = (),
) -> QueueRecord:
    """Put and take; `stop` ends it early. Consumers go on until all that was taken in has been
    acknowledged, for `DRAIN_S_MAX` at most. `headers` go with each call."""
    clients: dict[str, HttpClient] = {
        name: _client_of(url, headers) for name, url in targets.items()
    }
    record, name = QueueRecord(), os.urandom(8)
    start_s = time.monotonic() + LEAD_S
    consumers = [
        Consumer(
            index,
            clients,
            record,
            name,
            start_s=start_s,
            consume_s=load.consume_s,
            max_hops=load.max_hops,
            random=Random(f"{load.seed} consumer {index}"),
        )
        for index in range(load.consumers)
    ]
    producers = [
        _Producer(index, client, record, name, load, start_s)
        for index, client in enumerate(clients.values())
    ]
    try:
        await _play(record, producers, consumers, stop)
    finally:
        await asyncio.gather(*(client.close() for client in clients.values()))
    return record


def _client_of(url: str, headers: Headers) -> HttpClient:
    return HttpClient(
        url, headers=headers, idle_s_max=IDLE_S_MAX, connect_timeout_s=CONNECT_TIMEOUT_S
    )


async def _play(
    record: QueueRecord,
    producers: list[_Producer],
    consumers: list[Consumer],
    stop: asyncio.Event,
) -> None:
    loop = asyncio.get_running_loop()
    consuming = [loop.create_task(one.consume()) for one in consumers]
    producing = [loop.create_task(one.produce()) for one in producers]
    stopping = loop.create_task(stop.wait())
    finishing = loop.create_task(_finish(record, producing, consuming))
    try:
        over = [finishing, stopping, *consuming]
        done, _ = await asyncio.wait(over, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()  # a consumer ends only by a fault of its own
    finally:
        tasks = [finishing, stopping, *producing, *consuming]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _finish(
    record: QueueRecord, producing: list[asyncio.Task[None]], consuming: list[asyncio.Task[None]]
) -> None:
    """Return when all was put, and all that was kept was acknowledged."""
    await asyncio.gather(*producing)
    until_s = time.monotonic() + DRAIN_S_MAX
    left = set(record.kept) if consuming else set()
    while left and time.monotonic() < until_s:
        await asyncio.sleep(LOOK_S)
        left = {one for one in left if one not in record.acknowledged}


class _Producer:
    """Puts objects at one target."""

    def __init__(
        self,
        index: int,
        client: HttpClient,
        record: QueueRecord,
        run: bytes,
        load: QueueLoad,
        start_s: float,
    ) -> None:
        self._index = index
        self._client = client
        self._record = record
        self._run = run
        self._load = load
        self._start_s = start_s
        self._under_way: set[asyncio.Task[None]] = set()

    async def produce(self) -> None:
        """Produce until the duration is over, and all answers are there."""
        load, random = self._load, Random(f"{self._load.seed} producer {self._index}")
        number, at_s = 0, 0.0
        while load.produce_rate_per_s > 0.0:
            at_s += random.expovariate(load.produce_rate_per_s)
            if at_s >= load.duration_s:
                break
            # A loop may wake up to its timer's grain early, so ask the clock again.
            while (wait_s := self._start_s + at_s - time.monotonic()) > 0.0:  # noqa: ASYNC110
                await asyncio.sleep(wait_s)
            number += 1
            task = asyncio.get_running_loop().create_task(self._put(number, at_s))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
        # The rest of the time is idle: throughput is of the whole of it.
        await asyncio.sleep(max(0.0, self._start_s + load.duration_s - time.monotonic()))
        while self._under_way:
            await asyncio.wait(self._under_way)

    async def _put(self, number: int, at_s: float) -> None:
        record, load = self._record, self._load
        record.offered += 1
        sent_s = time.monotonic()
        record.lag_ms.append((sent_s - self._start_s - at_s) * 1e3)
        outcome = Put.UNKNOWN
        try:
            response = await self._client.request(
                "POST",
                "/objects",
                headers=[(b"spillover-deadline-ms", b"%.3f" % (load.deadline_s * 1e3))],
                body=encode_object(self._run, self._index, number, load.object_bytes),
                timeout_s=load.deadline_s + ANSWER_EXTRA_S,
            )
        except PeerError as error:
            outcome = Put.UNREACHABLE if isinstance(error, NotDelivered) else Put.UNKNOWN
            record.reasons[f"put: {type(error).__name__}"] += 1
        else:
            outcome = _outcome_of(response.status)
            if outcome is Put.OK:
                record.kept.add((self._index, number))
                record.put_ms.append((response.received_s - self._start_s - at_s) * 1e3)
            else:
                record.reasons[f"put: status {response.status}"] += 1
        record.puts[outcome] += 1


def _outcome_of(status: int) -> Put:
    if status == 201:
        return Put.OK
    return Put.REFUSED if status in (429, 503) else Put.FAILED


# --- the consumers --------------------------------------------------------------------------------

TAKE_S = 10.0
"""Each take waits so long at most."""
OBJECT_EXTRA_S = 30.0
"""The time that the object has to come, beyond that."""
TELL_S = 5.0
PAUSE_S = 0.2
"""After a take that failed."""
EXTENSIONS = 3
"""So many within a visibility time."""


@dataclass(frozen=True, slots=True)
class Object:
    """An object that was taken, and where it is acknowledged."""

    client: HttpClient
    grant: str
    id: str
    deliveries: int
    probes: int
    visibility_s: float
    body: bytes


class Consumer:
    """Number `index` of them."""

    def __init__(
        self,
        index: int,
        clients: Mapping[str, HttpClient],
        record: QueueRecord,
        run: bytes,
        *,
        start_s: float,
        consume_s: float,
        max_hops: int,
        random: Random,
    ) -> None:
        self._index = index
        self._clients = clients
        self._record = record
        self._run = run
        self._start_s = start_s
        self._consume_s = consume_s
        self._max_hops = max_hops
        self._random = random
        self._name = f"loadgen-{run.hex()}-{index}"
        self._takes = 0

    async def consume(self) -> None:
        """On and on, until it is cancelled."""
        while True:
            began_s = time.monotonic()
            took, found = await self._take()
            self._record.takes[took] += 1
            if found is None:
                if took is not Took.NOTHING:
                    await asyncio.sleep(PAUSE_S)
                continue
            number = decode_object(self._run, found.body)
            if number is None:
                self._record.strangers += 1
                await self._tell(found, "nack")
                continue
            self._record.wait_ms.append((time.monotonic() - began_s) * 1e3)
            self._record.probes.append(found.probes)
            self._record.came(self._index, found.id, found.deliveries)
            await self._be_busy(found)
            if await self._tell(found, "ack"):
                self._record.acknowledged[number] += 1
                self._record.acknowledged_s.append(time.monotonic() - self._start_s)

    async def _take(self) -> tuple[Took, Object | None]:
        name = self._random.choice(list(self._clients))
        self._takes += 1
        asked = {
            "consumer": self._name,
            "probe_id": f"{self._name}-{self._takes}",
            "max_hops": self._max_hops,
            "access": dict.fromkeys(self._clients, 1.0 / len(self._clients)),
        }
        probes = None
        try:
            response = await self._clients[name].request(
                "POST",
                "/take",
                headers=[(b"spillover-deadline-ms", b"%d" % (TAKE_S * 1e3))],
                body=json.dumps(asked).encode(),
                timeout_s=TAKE_S + OBJECT_EXTRA_S,
            )
            if response.status == 303:
                probes = int(response.headers[b"spillover-probes"])
                name = response.headers[b"spillover-producer"].decode()
                grant = response.headers[b"spillover-grant"].decode()
                response = await self._clients[name].request(
                    "GET", f"/objects/{grant}", timeout_s=OBJECT_EXTRA_S
                )
        except PeerError as error:
            self._record.reasons[type(error).__name__] += 1
            return Took.FAILED, None
        return self._read(self._clients[name], response, probes)

    def _read(
        self, client: HttpClient, response: Response, probes: int | None
    ) -> tuple[Took, Object | None]:
        headers = response.headers
        if response.status == 200:
            return Took.OBJECT, Object(
                client,
                headers[b"spillover-grant"].decode(),
                headers[b"spillover-object"].decode(),
                int(headers[b"spillover-deliveries"]),
                int(headers[b"spillover-probes"]) if probes is None else probes,
                float(headers[b"spillover-visibility-ms"]) / 1e3,
                response.body,
            )
        if response.status in (204, 404):
            return Took.NOTHING, None
        self._record.reasons[f"take: status {response.status}"] += 1
        return (Took.REFUSED if response.status in (429, 503) else Took.FAILED), None

    async def _be_busy(self, found: Object) -> None:
        """Be busy for an exponential time, with the grant extended meanwhile."""
        until_s = time.monotonic()
        if self._consume_s > 0.0:
            until_s += self._random.expovariate(1.0 / self._consume_s)
        step_s = found.visibility_s / EXTENSIONS
        while (left_s := until_s - time.monotonic()) > 0.0:
            await asyncio.sleep(min(left_s, step_s))
            if left_s > step_s:
                await self._tell(found, "extend")

    async def _tell(self, found: Object, what: str) -> bool:
        """Whether the producer knew the grant. One that does not answer is asked once more."""
        for _ in range(2):
            with suppress(PeerError):
                path = f"/grants/{found.grant}/{what}"
                response = await found.client.request("POST", path, timeout_s=TELL_S)
                return response.status == 204
        self._record.reasons[f"{what}: no answer"] += 1
        return False
