"""One consumer of the load on a queue: it takes an object, is busy for a while, acknowledges it,
and takes the next one. It is the plainest there can be, so that what is measured is the queue.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from random import Random

from spillover.live.http.client import HttpClient, Response
from spillover.model.errors import PeerError
from spillover_loadgen.queue_record import QueueRecord, Took, decode_object

TAKE_S = 10.0
"""Each take waits so long at most."""
ANSWER_EXTRA_S = 30.0
"""For the object to come, beyond that."""
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
                timeout_s=TAKE_S + ANSWER_EXTRA_S,
            )
            if response.status == 303:
                probes = int(response.headers[b"spillover-probes"])
                name = response.headers[b"spillover-producer"].decode()
                grant = response.headers[b"spillover-grant"].decode()
                response = await self._clients[name].request(
                    "GET", f"/objects/{grant}", timeout_s=ANSWER_EXTRA_S
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
        """For an exponential time, with the grant extended meanwhile."""
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
