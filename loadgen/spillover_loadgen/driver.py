"""Sends a schedule in open loop: each request at its intended instant, whatever the answers do.

One event loop, one armed timer. Knows the node's HTTP interface only as far as posting a request
goes; what answers mean is in `record`, what the numbers come to is in `results`.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

from spillover.commandline.api_token import Headers
from spillover.live.http1.client import HttpClient, Response
from spillover.model.errors import InputError, NotDelivered, OutcomeUnknown, PeerError
from spillover.model.ids import ClusterId
from spillover.model.schedule import Arrival, Schedule
from spillover_loadgen.record import REASON_CHARACTERS_MAX, Outcome, Record, read_answer

LEAD_S = 0.1
"""The time from the end of the preparations to time 0 of the schedule."""
CONNECTIONS_WARM = 32
"""Opened to each target before time 0; more are opened as they are needed."""
CONNECT_TIMEOUT_S = 5.0
"""Long enough for the system to try again, after 1 s and 3 s, when a backlog overflows."""
IDLE_S_MAX = 4.0
"""Less than servers keep idle connections (5 s is usual), so that none closes as it is used."""
CLIENT_TIMEOUT_EXTRA_S = 5.0
"""The node's own deadline comes first, so that an answer tells what happened, not a time-out."""
ANSWER_WITHIN_S_MAX = 600.0
"""Without a deadline of the run's own: the nodes' default holds, which is not known here."""
STOP_GRACE_S = 2.0
"""How long an interrupted run waits for the answers to what it has sent."""
PROGRESS_PERIOD_S = 0.1
# Even a generator that cannot keep up must read answers and see that it is to stop.
_SENDS_IN_A_ROW_MAX = 64

OnRecord = Callable[[Record], None]
OnProgress = Callable[[int, int, int], None]


async def run(
    schedule: Schedule,
    targets: Mapping[ClusterId, str],
    *,
    seed: int,
    keyed: bool = True,
    deadline_ms: float | None = None,
    in_flight_max: int = 50_000,
    headers: Headers = (),
    run_id: str | None = None,
    on_record: OnRecord | None = None,
    progress: OnProgress | None = None,
    stop: asyncio.Event | None = None,
) -> list[Record]:
    """Send the schedule to the targets, base URLs by cluster; the records in its order.

    Idempotency keys are `<seed>-<run_id>-<index>`; `run_id` is a new one unless given, since a
    key that an earlier run used would get that run's answer. A request with an id of its own
    has no key. `on_record` is called as each request ends, `progress` with the numbers sent,
    done and in total. `headers` go with each request. Setting `stop` ends the sending; what is not
    answered within `STOP_GRACE_S` after it is recorded as unknown.

    Raises InputError if an arrival's cluster is not among the targets.
    """
    _check_targets(schedule, targets)
    clients = {cluster: _client_of(url, in_flight_max, headers) for cluster, url in targets.items()}
    key_prefix = f"{seed}-{run_id or uuid.uuid4().hex}" if keyed else None
    try:
        await asyncio.gather(*(_warm(client) for client in clients.values()))
        sending = _Sending(
            schedule,
            clients,
            key_prefix=key_prefix,
            deadline_ms=deadline_ms,
            in_flight_max=in_flight_max,
            on_record=on_record,
        )
        return await _carry_out(sending, progress, stop or asyncio.Event())
    finally:
        await asyncio.gather(*(client.close() for client in clients.values()))


def _client_of(url: str, in_flight_max: int, headers: Headers) -> HttpClient:
    """A connection for each request in flight: none waits for another one's."""
    return HttpClient(
        url,
        connections_max=in_flight_max,
        idle_s_max=IDLE_S_MAX,
        connect_timeout_s=CONNECT_TIMEOUT_S,
        headers=headers,
    )


def _check_targets(schedule: Schedule, targets: Mapping[ClusterId, str]) -> None:
    missing = {arrival.cluster for arrival in schedule} - targets.keys()
    if missing:
        raise InputError("--target", "", f"expected a URL for each of {', '.join(sorted(missing))}")


async def _warm(client: HttpClient) -> None:
    # A target that is down is told by the requests that it does not take.
    with suppress(PeerError):
        await client.warm(CONNECTIONS_WARM)


async def _carry_out(
    sending: _Sending, progress: OnProgress | None, stop: asyncio.Event
) -> list[Record]:
    """Run to the end or to the stop, telling the progress meanwhile."""
    finishing = asyncio.create_task(sending.send_all_and_wait())
    stopping = asyncio.create_task(stop.wait())
    telling = asyncio.create_task(_tell_progress(sending, progress)) if progress else None
    try:
        await asyncio.wait((finishing, stopping), return_when=asyncio.FIRST_COMPLETED)
        if finishing.done():
            finishing.result()
        else:
            finishing.cancel()
            await sending.wait_for_answers(STOP_GRACE_S)
        records = sending.finish()
        if progress:
            progress(*sending.counts)
        return records
    finally:
        tasks = [task for task in (finishing, stopping, telling) if task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _tell_progress(sending: _Sending, progress: OnProgress) -> None:
    while True:
        progress(*sending.counts)
        await asyncio.sleep(PROGRESS_PERIOD_S)


class _Sending:
    """One schedule under way. Every request sent is in flight until it has its one record."""

    def __init__(
        self,
        schedule: Schedule,
        clients: Mapping[ClusterId, HttpClient],
        *,
        key_prefix: str | None,
        deadline_ms: float | None,
        in_flight_max: int,
        on_record: OnRecord | None,
    ) -> None:
        self._schedule = schedule
        self._clients = clients
        self._key_prefix = key_prefix
        self._in_flight_max = in_flight_max
        self._on_record = on_record
        self._timeout_s = ANSWER_WITHIN_S_MAX
        if deadline_ms is not None:
            self._timeout_s = deadline_ms / 1000 + CLIENT_TIMEOUT_EXTRA_S
        self._headers = [(b"content-type", b"application/json")]
        if deadline_ms is not None:
            self._headers.append((b"spillover-deadline-ms", f"{deadline_ms:.15g}".encode()))
        self._start_s = 0.0
        self._sent = 0
        self._in_flight: dict[int, tuple[float, asyncio.Future[Response]]] = {}
        self._records: list[Record] = []
        self._idle = asyncio.Event()

    @property
    def counts(self) -> tuple[int, int, int]:
        """Sent, done, in total."""
        return self._sent, len(self._records), len(self._schedule)

    async def send_all_and_wait(self) -> None:
        self._start_s = time.monotonic() + LEAD_S
        in_a_row = 0
        for index, arrival in enumerate(self._schedule):
            due_s = self._start_s + arrival.time_s
            # A loop may wake up to its timer's grain early, so ask the clock again.
            while (wait_s := due_s - time.monotonic()) > 0 or in_a_row >= _SENDS_IN_A_ROW_MAX:
                await asyncio.sleep(max(wait_s, 0))
                in_a_row = 0
            self._send(index, arrival)
            in_a_row += 1
        await self._no_more_in_flight()

    async def wait_for_answers(self, timeout_s: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._no_more_in_flight(), timeout_s)

    def finish(self) -> list[Record]:
        """Give up what is still in flight; the records in the order of the schedule."""
        for index, (called_s, future) in list(self._in_flight.items()):
            record = self._record(index, called_s, Outcome.UNKNOWN, "interrupted")
            self._done(record)
            future.cancel()
        return sorted(self._records, key=lambda record: record.index)

    async def _no_more_in_flight(self) -> None:
        while self._in_flight:
            self._idle.clear()
            await self._idle.wait()

    def _send(self, index: int, arrival: Arrival) -> None:
        self._sent += 1
        called_s = time.monotonic()
        if len(self._in_flight) >= self._in_flight_max:
            self._done(self._record(index, called_s, Outcome.UNREACHABLE, "in_flight_limit"))
            return
        headers = self._headers
        if self._key_prefix is not None and arrival.id is None:
            headers = [*headers, (b"idempotency-key", f"{self._key_prefix}-{index}".encode())]
        future = self._clients[arrival.cluster].request(
            "POST", "/requests", headers=headers, body=_body(arrival), timeout_s=self._timeout_s
        )
        self._in_flight[index] = called_s, future
        future.add_done_callback(partial(self._answered, index, called_s))

    def _answered(self, index: int, called_s: float, future: asyncio.Future[Response]) -> None:
        if index not in self._in_flight:
            return
        if future.cancelled():
            self._done(self._record(index, called_s, Outcome.UNKNOWN, "cancelled"))
            return
        match future.exception():
            case None:
                record = self._record_of_response(index, future.result())
            case NotDelivered() as error:
                record = self._record(index, called_s, Outcome.UNREACHABLE, _cut(error))
            case OutcomeUnknown() as error:
                record = self._record(index, called_s, Outcome.UNKNOWN, _cut(error))
            case error:
                # A fault of the client: it must show in the report, not end the measurement.
                record = self._record(index, called_s, Outcome.FAILED, _cut(repr(error)))
        self._done(record)

    def _record_of_response(self, index: int, response: Response) -> Record:
        outcome, answer, reason = read_answer(response.status, response.body)
        record = self._record(index, response.sent_s, outcome, reason)
        record.status = response.status
        intended_s = self._start_s + record.intended_s
        record.response_time_ms = (response.received_s - intended_s) * 1000
        if answer is not None:
            record.system_time_ms = record.sent_lag_s * 1000 + answer.timing_ms.total
            record.hops = answer.hops
            record.path = answer.path
            record.executed_cluster = answer.cluster
            record.id = answer.id
        return record

    def _record(self, index: int, sent_s: float, outcome: Outcome, reason: str | None) -> Record:
        arrival = self._schedule[index]
        return Record(
            index=index,
            cluster=arrival.cluster,
            intended_s=arrival.time_s,
            sent_lag_s=sent_s - self._start_s - arrival.time_s,
            outcome=outcome,
            type=arrival.type,
            reason=reason,
            id=arrival.id,
        )

    def _done(self, record: Record) -> None:
        self._in_flight.pop(record.index, None)
        if not self._in_flight:
            self._idle.set()
        self._records.append(record)
        if self._on_record is not None:
            self._on_record(record)


def _cut(reason: object) -> str:
    return str(reason)[:REASON_CHARACTERS_MAX]


def _body(arrival: Arrival) -> bytes:
    request: dict[str, object] = {
        "payload": {} if arrival.service_ms is None else {"service_ms": arrival.service_ms}
    }
    if arrival.type != "default":
        request["type"] = arrival.type
    if arrival.id is not None:
        request["id"] = arrival.id
    return json.dumps(request).encode()
