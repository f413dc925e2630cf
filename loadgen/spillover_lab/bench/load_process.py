"""The process that asks, apart from what is measured and from who measures. It does one job after
the other, each a value that says what to send where.

What the figures mean is not known here.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from statistics import median

from spillover.live.http1.client import HttpClient, Response
from spillover.model.errors import RunError
from spillover.model.ids import ClusterId
from spillover.model.schedule import Schedule
from spillover.model.statistics import percentile
from spillover_lab.bench.usage import CpuUse
from spillover_lab.processes.child import Worker
from spillover_loadgen import driver
from spillover_loadgen.record import Outcome

ANSWER_WITHIN_S = 30.0
JOB_EXTRA_S = 90.0
"""What a job may take beyond the time that it is meant to take."""
CONNECT_TIMEOUT_S = 5.0
QUOTED_CHARACTERS_MAX = 200

PATH = "/requests"
JSON_HEADER = (b"content-type", b"application/json")
ASYNCHRONOUS = (b"prefer", b"respond-async")


@dataclass(frozen=True, slots=True)
class Kept:
    """What jobs leave open in the process."""

    clients: dict[str, HttpClient] = field(default_factory=dict)
    """Clients by url, for the next job there: what is measured is requests, not connections."""
    held: list[tuple[HttpClient, Sequence[asyncio.Future[Response]]]] = field(default_factory=list)
    """Requests whose answers nobody waits for."""
    keys: count[int] = field(default_factory=count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """`connections` askers, each sending its next request when it has the answer to the last,
    for `duration_s`. The job gives the number of answers."""

    url: str
    body: bytes
    connections: int
    duration_s: float
    headers: tuple[tuple[bytes, bytes], ...] = ()
    keyed: bool = False
    """An Idempotency-Key on each, never the same."""
    statuses: frozenset[int] = frozenset((200,))
    """Any other is a failure of the benchmark."""

    async def run(self, kept: Kept) -> int:
        client = kept.clients.get(self.url)
        if client is None:
            client = kept.clients[self.url] = _client(self.url)

        async def ask() -> None:
            headers = [JSON_HEADER, *self.headers]
            if self.keyed:
                headers.append((b"idempotency-key", b"bench-%d" % next(kept.keys)))
            _check(await _post(client, self.body, headers), self.statuses)

        await client.warm(self.connections)
        return await ask_in_turn(ask, self.connections, self.duration_s)


@dataclass(frozen=True, slots=True)
class Fates:
    """What became of a schedule's requests, in its order. Where there are half a million, records
    would take minutes to hand over."""

    response_ms: list[float | None]
    """The time until the client had the answer, whatever it was."""
    system_ms: list[float | None]
    """The time until the end of the service; None unless the request is `ok`."""
    hops: list[int | None]
    """How often it was moved; None unless it is `ok`."""
    lag_ms: list[float]
    """The time by which each request was sent late."""
    others: dict[int, tuple[Outcome, str | None]]
    """Outcome and reason of those that are not `ok`, by their place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """Requests at their instants, each to the target of its cluster, whatever the answers are. The
    job gives their `Fates`."""

    targets: Mapping[ClusterId, str]
    schedule: Schedule
    seed: int
    deadline_ms: float | None = None

    async def run(self, _: Kept) -> Fates:
        gc.collect()
        gc.freeze()  # the schedule stays, and need not be walked while requests are sent
        records = await driver.run(
            self.schedule, self.targets, seed=self.seed, keyed=False, deadline_ms=self.deadline_ms
        )
        return Fates(
            response_ms=[record.response_time_ms for record in records],
            system_ms=[record.system_time_ms for record in records],
            hops=[record.hops for record in records],
            lag_ms=[record.sent_lag_s * 1e3 for record in records],
            others={
                place: (record.outcome, record.reason)
                for place, record in enumerate(records)
                if record.outcome is not Outcome.OK
            },
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """`requests` at once, each on a connection of its own, whose answers are not waited for: the
    connections stay open as long as this process does. The job gives their number."""

    url: str
    body: bytes
    requests: int

    async def run(self, kept: Kept) -> int:
        client = _client(self.url)
        await client.warm(self.requests)
        futures = [
            client.request("POST", PATH, headers=[JSON_HEADER], body=self.body, timeout_s=None)
            for _ in range(self.requests)
        ]
        kept.held.append((client, futures))
        return len(futures)


@dataclass(frozen=True, slots=True, kw_only=True)
class Queued:
    """`requests` that are to be answered by 202, `connections` at a time. The job gives their
    number."""

    url: str
    body: bytes
    requests: int
    connections: int = 32

    async def run(self, _: Kept) -> int:
        client = _client(self.url)
        turns = iter(range(self.requests))

        async def ask() -> None:
            for _ in turns:
                answer = await _post(client, self.body, [JSON_HEADER, ASYNCHRONOUS])
                _check(answer, frozenset((202,)))

        try:
            await asyncio.gather(*(ask() for _ in range(self.connections)))
        finally:
            await client.close()
        return self.requests


@dataclass(frozen=True, slots=True)
class Effort:
    """What it took to play a schedule."""

    cpu_share: Mapping[str, float]
    """The share of one core, by kind of process, over the schedule and until its last answer."""
    lag_ms: float
    """How late the generator sent: p99."""


def shares_of(efforts: Sequence[Effort]) -> str:
    """Returns in words how busy each kind of process was, in the median."""
    kinds = efforts[0].cpu_share
    shares = {kind: median(effort.cpu_share[kind] for effort in efforts) for kind in kinds}
    return ", ".join(f"{kind} {share:.0%}" for kind, share in shares.items())


class LoadProcess(Worker):
    """The process is there on entry and ended on exit, and with it all its connections."""

    def __init__(self) -> None:
        super().__init__("the load process", Kept)

    async def count(self, job: Closed | Held | Queued) -> int:
        """Does the job; returns how many answers there were. Raises RunError if one is not as
        expected."""
        duration_s = job.duration_s if isinstance(job, Closed) else 0.0
        return int(await self.do(job, duration_s + JOB_EXTRA_S))

    async def fates(self, job: Replayed) -> Fates:
        """Does the job. What became of the requests is told by their fates alone."""
        fates: Fates = await self.do(job, job.schedule[-1].time_s + JOB_EXTRA_S)
        return fates

    async def fates_and_effort(
        self, job: Replayed, processes: Mapping[str, Sequence[int]]
    ) -> tuple[Fates, Effort]:
        """Does the job, and says what these processes and this one did meanwhile, by kind."""
        use = CpuUse({**processes, "generator": [self.pid]})
        fates = await self.fates(job)
        used_s = use.used_s()
        ends_s = zip(job.schedule, fates.response_ms, strict=True)
        length_s = max(arrival.time_s + (time_ms or 0.0) / 1e3 for arrival, time_ms in ends_s)
        shares = {kind: used / length_s for kind, used in used_s.items()}
        return fates, Effort(shares, percentile(sorted(fates.lag_ms), 0.99))


async def ask_in_turn(ask: Callable[[], Awaitable[object]], askers: int, duration_s: float) -> int:
    """Returns how often they have asked, each again when it had its answer, in that time."""
    end_s, done = time.monotonic() + duration_s, count()

    async def asker() -> None:
        while time.monotonic() < end_s:
            await ask()
            next(done)

    await asyncio.gather(*(asker() for _ in range(askers)))
    return next(done)


def _client(url: str) -> HttpClient:
    return HttpClient(url, connect_timeout_s=CONNECT_TIMEOUT_S)


def _post(
    client: HttpClient, body: bytes, headers: list[tuple[bytes, bytes]]
) -> asyncio.Future[Response]:
    return client.request("POST", PATH, headers=headers, body=body, timeout_s=ANSWER_WITHIN_S)


def _check(response: Response, statuses: frozenset[int]) -> None:
    if response.status not in statuses:
        said = response.body[:QUOTED_CHARACTERS_MAX].decode("utf-8", "replace")
        raise RunError(f"expected status {sorted(statuses)}, got {response.status}: {said}")
