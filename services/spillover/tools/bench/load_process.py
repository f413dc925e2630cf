"""The process that asks: apart from what is measured, and from who measures.

It does one job after the other, each a value that says what to send where. What the figures mean
is not known here.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

import uvloop

from spillover.live.http.client import HttpClient, Response
from spillover.model.errors import RunError, SpilloverError
from spillover.model.ids import ClusterId
from spillover.model.schedule import Schedule
from spillover.tools.processes.child import Child
from spillover_loadgen import driver
from spillover_loadgen.record import Outcome, Record

ANSWER_WITHIN_S = 30.0
JOB_EXTRA_S = 90.0
"""What a job may take beyond the time that it is meant to take."""
CONNECT_TIMEOUT_S = 5.0
QUOTED_CHARACTERS_MAX = 200

PATH = "/requests"
JSON_HEADER = (b"content-type", b"application/json")
ASYNCHRONOUS = (b"prefer", b"respond-async")


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """`connections` askers, each sending its next request when it has the answer to the last,
    for `duration_s`. Gives the number of answers. The connections stay open for the next such job
    at this url: what is measured is requests."""

    url: str
    body: bytes
    connections: int
    duration_s: float
    headers: tuple[tuple[bytes, bytes], ...] = ()
    keyed: bool = False
    """An Idempotency-Key on each, never the same."""
    statuses: frozenset[int] = frozenset((200,))
    """Any other is a failure of the benchmark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduled:
    """Requests at their instants, whatever the answers do. Gives `Times`."""

    url: str
    schedule: Schedule
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """Requests at their instants, each to the target of its cluster, whatever the answers are.
    Gives the records, or their `Fates`."""

    targets: Mapping[ClusterId, str]
    schedule: Schedule
    seed: int
    deadline_ms: float | None
    brief: bool = False
    """Fates rather than records."""


@dataclass(frozen=True, slots=True)
class Fates:
    """What became of a schedule's requests, in its order. Where there are half a million, records
    would take minutes to hand over."""

    response_ms: list[float | None]
    """Until the client had the answer, whatever it was."""
    lag_ms: list[float]
    """Until it was sent."""
    others: dict[int, tuple[Outcome, str | None]]
    """Outcome and reason of those that are not `ok`, by their place."""


@dataclass(frozen=True, slots=True)
class Times:
    """Of each request, in ms and in the order of the schedule: until the client had the answer,
    and until it was sent, both from the intended instant."""

    response_ms: list[float]
    lag_ms: list[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """`requests` at once, each on a connection of its own, whose answers are not waited for: the
    connections stay open as long as this process does. Gives their number."""

    url: str
    body: bytes
    requests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Queued:
    """`requests` that are to be answered by 202, `connections` at a time. Gives their number."""

    url: str
    body: bytes
    requests: int
    connections: int = 32


Job: TypeAlias = Closed | Scheduled | Replayed | Held | Queued


class LoadProcess(Child):
    """There on entry, ended on exit, and with it all its connections."""

    def __init__(self) -> None:
        super().__init__("the load process", _work)

    async def count(self, job: Closed | Held | Queued) -> int:
        """Does the job; returns how many answers there were. Raises RunError if one is not as
        expected."""
        duration_s = job.duration_s if isinstance(job, Closed) else 0.0
        return int(await self._do(job, duration_s))

    async def times(self, job: Scheduled) -> Times:
        """Does the job. Raises RunError if a request failed."""
        times: Times = await self._do(job, job.schedule[-1].time_s)
        return times

    async def records(self, job: Replayed) -> list[Record]:
        """Does the job. What became of the requests is told by the records alone."""
        records: list[Record] = await self._do(job, job.schedule[-1].time_s)
        return records

    async def fates(self, job: Replayed) -> Fates:
        """Does the job. What became of the requests is told by their fates alone."""
        fates: Fates = await self._do(replace(job, brief=True), job.schedule[-1].time_s)
        return fates

    async def _do(self, job: Job, duration_s: float) -> Any:
        self.send(job)
        return await self.receive(duration_s + JOB_EXTRA_S)


def _work(connection: Connection) -> None:
    """What the process does, until the benchmark ends it."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_Worker().do_jobs(connection))


class _Worker:
    """Does the jobs, and keeps what they leave open."""

    def __init__(self) -> None:
        self._kept: list[tuple[HttpClient, Sequence[asyncio.Future[Response]]]] = []
        self._keys = count()
        self._clients: dict[str, HttpClient] = {}

    async def do_jobs(self, connection: Connection) -> None:
        while True:
            job: Job = await asyncio.to_thread(connection.recv)
            try:
                connection.send(await self._do(job))
            except SpilloverError as error:
                connection.send(RunError(str(error)))

    async def _do(self, job: Job) -> Any:
        match job:
            case Closed():
                return await self._closed(job)
            case Scheduled():
                return await self._scheduled(job)
            case Replayed():
                return await _replayed(job)
            case Held():
                return await self._held(job)
            case Queued():
                return await _queued(job)

    async def _closed(self, job: Closed) -> int:
        client = self._clients.get(job.url)
        if client is None:
            client = HttpClient(job.url, connect_timeout_s=CONNECT_TIMEOUT_S)
            self._clients[job.url] = client
        done = 0

        async def ask(end_s: float) -> None:
            nonlocal done
            while time.monotonic() < end_s:
                headers = [JSON_HEADER, *job.headers]
                if job.keyed:
                    headers.append((b"idempotency-key", b"bench-%d" % next(self._keys)))
                _check(await _post(client, job.body, headers), job.statuses)
                done += 1

        await client.warm(job.connections)
        end_s = time.monotonic() + job.duration_s
        await asyncio.gather(*(ask(end_s) for _ in range(job.connections)))
        return done

    async def _scheduled(self, job: Scheduled) -> Times:
        targets = {ClusterId(job.schedule[0].cluster): job.url}
        records = await driver.run(job.schedule, targets, seed=job.seed, keyed=False)
        response_ms = [r.response_time_ms for r in records if r.response_time_ms is not None]
        if len(response_ms) < len(job.schedule) or any(r.status != 200 for r in records):
            raise RunError(f"{job.url}: not every request was answered by 200")
        return Times(response_ms, [r.sent_lag_s * 1e3 for r in records])

    async def _held(self, job: Held) -> int:
        client = HttpClient(job.url, connect_timeout_s=CONNECT_TIMEOUT_S)
        await client.warm(job.requests)
        futures = [
            client.request("POST", PATH, headers=[JSON_HEADER], body=job.body, timeout_s=None)
            for _ in range(job.requests)
        ]
        self._kept.append((client, futures))
        return len(futures)


async def _replayed(job: Replayed) -> list[Record] | Fates:
    gc.collect()
    gc.freeze()  # the schedule stays, and need not be walked while requests are sent
    records = await driver.run(
        job.schedule, job.targets, seed=job.seed, keyed=False, deadline_ms=job.deadline_ms
    )
    return fates_of(records) if job.brief else records


def fates_of(records: Sequence[Record]) -> Fates:
    """Returns what records in the order of their schedule come to."""
    return Fates(
        response_ms=[record.response_time_ms for record in records],
        lag_ms=[record.sent_lag_s * 1e3 for record in records],
        others={
            place: (record.outcome, record.reason)
            for place, record in enumerate(records)
            if record.outcome is not Outcome.OK
        },
    )


async def _queued(job: Queued) -> int:
    client = HttpClient(job.url, connect_timeout_s=CONNECT_TIMEOUT_S)
    headers = [JSON_HEADER, ASYNCHRONOUS]
    turns = iter(range(job.requests))

    async def ask() -> None:
        for _ in turns:
            _check(await _post(client, job.body, headers), frozenset((202,)))

    try:
        await asyncio.gather(*(ask() for _ in range(job.connections)))
    finally:
        await client.close()
    return job.requests


def _post(
    client: HttpClient, body: bytes, headers: list[tuple[bytes, bytes]]
) -> asyncio.Future[Response]:
    return client.request("POST", PATH, headers=headers, body=body, timeout_s=ANSWER_WITHIN_S)


def _check(response: Response, statuses: frozenset[int]) -> None:
    if response.status not in statuses:
        said = response.body[:QUOTED_CHARACTERS_MAX].decode("utf-8", "replace")
        raise RunError(f"expected status {sorted(statuses)}, got {response.status}: {said}")
