"""The handler `proxy:URL[,URL...]`: sends requests to a service as they came, and hands its answers
on as they come.

Where one is tried next is in `live.handlers.http.upstream_calls`. Once an answer has begun nothing
is tried any more: it ends whole, or broken off. Whatever its status, it is the answer; a 5xx counts
as a failure of the upstream. Where the operator says of a status that the service surely has not
done the work then (`not_run_statuses`), such an answer is held back while the request is decided
again, and passed on if nobody else takes it.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, cast

from msgspec.structs import replace

from spillover.core.overflow.events import ResponseBegan, ServiceEnded, Start
from spillover.live.engine.moving import Moving
from spillover.live.engine.write_batch import WriteBatch
from spillover.live.handlers.base import OnEnd, OnHealth
from spillover.live.handlers.calls import SAID_LIMIT_BYTES, CallResult, one_line
from spillover.live.handlers.ends import event_of, service_time_s
from spillover.live.handlers.engine_load import ORCA_ASKED, ORCA_HEADER
from spillover.live.handlers.http.upstream_answers import read_retry_after_s
from spillover.live.handlers.http.upstream_calls import UpstreamCall, UpstreamWorkers, ran_at
from spillover.live.handlers.http.upstreams import Upstream, cause_by, reason_of
from spillover.live.handlers.proxy.exchange import PassedExchange
from spillover.live.handlers.proxy.sent_heads import (
    ForeignHead,
    ForeignRequest,
    OwnRequest,
    own_head,
    upstream_head,
    with_host,
)
from spillover.live.http1.connection import Connection
from spillover.live.http1.heads import values
from spillover.live.http1.known_heads import Known, KnownAnswer, KnownHeads
from spillover.live.http1.outgoing import IDEMPOTENT, Response
from spillover.live.http1.rules import Malformed
from spillover.live.process.logs import Message, OncePerPeriod
from spillover.model.causes import Cause
from spillover.model.errors import NotDelivered
from spillover.model.ids import RequestId, told_inside
from spillover.model.passed import Fields, MalformedPassed, PassedHead, PassedRequest
from spillover.model.request import DONE
from spillover.model.topology import Cluster
from spillover.model.trace_context import TraceContext
from spillover.model.upstream_urls import UpstreamUrl

UNQUEUED_MAX = 64
"""Requests beside the servers at once."""

REFUSED_FROM = 400
"""Statuses by which an upstream says that it has not done what was asked."""

FAILED_FROM = 500
"""Statuses by which an upstream says that it has failed."""

MISDIRECTED = 421
"""The status by which a service says that it does not serve the name that it was asked by (RFC
9110, 15.5.20)."""

HELD_BACK_MAX_BYTES = SAID_LIMIT_BYTES
"""The most of an answer's body that is held back."""


_log = logging.getLogger(__name__)
_log.addFilter(OncePerPeriod())


class Relay(Protocol):
    """A relay takes an answer that has begun (`live.overflow.relay`)."""

    def piece(self, data: bytes) -> None: ...

    def end(self, trailers: Fields = ()) -> None: ...


class Relays(Protocol):
    """This makes relays for answers (`live.overflow.relay`)."""

    def begin(self, event: ResponseBegan, source: Any, head: PassedHead) -> Relay:
        """An answer begins, from this source."""

    def hint(self, ref: int, head: PassedHead) -> None:
        """An interim answer, before any other."""

    def hold(self, ref: int, head: PassedHead, body: bytes, trailers: Fields) -> None:
        """A whole answer that begins if the machine says so."""

    def whole(self, event: ResponseBegan, head: PassedHead, body: bytes, trailers: Fields) -> None:
        """A whole answer begins; the machine is told of its end next."""


def passed_exchange(
    upstream: Upstream,
    request: PassedRequest | OwnRequest | ForeignRequest,
    head: bytes,
    on_head: Callable[[PassedHead], None],
    on_piece: Callable[[bytes], None],
    on_end: Callable[[Response | BaseException], None],
    *,
    takes_whole: bool = False,
    is_keyed: bool = False,
) -> PassedExchange:
    """Send a request to an upstream, with this head."""
    exchange = PassedExchange(
        request.method,
        upstream.origin,
        on_end,
        sys.maxsize,
        on_begin=on_head,
        on_piece=on_piece,
        sent_head=head,
        takes_whole=takes_whole,
        is_keyed=is_keyed,
    )
    upstream.client.dispatch(exchange, head, (request.body,) if request.body else ())
    return exchange


def added_fields(request_id: RequestId, remaining_s: float) -> Fields:
    """Returns what a node adds to a request: its name, and how much time is left for it."""
    remaining_ms = max(0, int(remaining_s * 1e3))
    return (
        (b"Spillover-Request-Id", told_inside(request_id).encode()),
        (b"Spillover-Deadline-Ms", b"%d" % remaining_ms),
    )


@dataclass(slots=True, eq=False)
class _Call(UpstreamCall):
    """One that passes through. The source of its answer."""

    workers: ProxyWorkers = field(kw_only=True)
    request: PassedRequest | OwnRequest | ForeignRequest | None = None
    """The request, or None once its answer has begun."""
    exchange: PassedExchange | None = None
    relay: Relay | None = None
    """Once its answer has begun."""
    head: PassedHead | None = None
    """The head of the answer that comes."""
    held: bytes = b""
    """The beginning of its body, while it is held back."""

    def pause(self) -> None:
        """Pause, as a source does."""
        if self.exchange is not None:
            self.exchange.pause()

    def resume(self) -> None:
        """Resume, as a source does."""
        if self.exchange is not None:
            self.exchange.resume()

    def close(self, problem: str) -> None:
        """Close, as a source does."""
        self.workers.give_up(self, problem)


class ProxyWorkers(UpstreamWorkers[_Call]):
    """The handler. `relays` take the answers."""

    def __init__(
        self,
        urls: Sequence[UpstreamUrl],
        cluster: Cluster,
        on_end: OnEnd,
        on_health: OnHealth,
        relays: Relays,
        moving: Moving | None = None,
    ) -> None:
        # Requests of one turn leave together: each write wakes the service.
        writes = WriteBatch(asyncio.get_running_loop())
        heads: KnownHeads[KnownAnswer] = KnownHeads()
        connection = partial(Connection, writes=writes, heads=heads, reads_small=True)
        self._foreign: Known[ForeignHead] = Known()
        told = urls, cluster, on_end, on_health, moving
        super().__init__(*told, make_connection=connection, more=UNQUEUED_MAX)
        where = cluster.proxy_url or "its own address"
        self._elsewhere = f"a service is behind this cluster: expected its own requests, at {where}"
        self._not_run_statuses = frozenset(cluster.statuses_not_run)
        self._is_failure = cluster.is_failure
        self._relays = relays

    def problem_with(self, payload: Any) -> str | None:  # noqa: ARG002 - of `POST /requests`
        return self._elsewhere

    def start(self, command: Start) -> None:
        call = _Call(command, workers=self)
        self._calls[command.ref] = call
        work = command.request.work
        try:  # a client's, or a neighbor's
            is_encoded = isinstance(work, bytes | memoryview)
            call.request = ForeignRequest(work, self._foreign) if is_encoded else work
        except MalformedPassed as error:
            refused = one_line(error)
            self._end(
                call, CallResult(problem=refused, rejected=True, status=400, cause=Cause.CLIENT)
            )
            return
        if self._sessions is not None:
            self._know_session(call, call.request)
        self._send(call)

    def _session_of(self, work: PassedRequest | OwnRequest | ForeignRequest) -> tuple[int, int]:
        assert self._sessions is not None  # noqa: S101 - asked with affinity alone
        fields = _fields_of(work) if self._sessions.reads_fields else ()
        return self._sessions.of(fields, work.body), len(work.body) or 1

    def give_up(self, call: _Call, problem: str) -> None:
        """An answer that has begun is not read any more."""
        if self._calls.get(call.command.ref) is call:
            self._let_go(call)
            call.tried[-1].ends[Cause.TIMEOUT.value] += 1
            self._end(call, CallResult(problem=problem, cause=Cause.TIMEOUT))

    def _let_go(self, call: _Call) -> None:
        exchange, call.exchange = call.exchange, None
        if exchange is not None:
            call.tried[-1].running -= 1
            exchange.cancel()

    def _send(self, call: _Call) -> None:
        call.sent_s = time.monotonic()
        if self._sessions is None:
            upstream = self.upstreams.choose(call.tried, call.sent_s)
        else:
            upstream = self._choose_by_session(call)
        if upstream is None:
            self._none_left(call)
            return
        call.tried.append(upstream)
        command, request = call.command, call.request
        assert request is not None  # noqa: S101 - nothing has begun
        asked = command.request
        if (trace := asked.trace) is not None:
            url = upstream.origin + request.path.removeprefix("*")  # of OPTIONS: all of it
            passed = request if isinstance(request, PassedRequest) else request.passed()
            fields = _in_trace(passed.headers, trace.sent_to(request.method, url))
            request = replace(passed, headers=fields)
        if upstream.host is not None:
            request = with_host(request, upstream.host)
        added = added_fields(asked.id, command.deadline_s - call.sent_s)
        if self.hears_orca:
            added = (*added, ORCA_ASKED)
        try:
            if isinstance(request, ForeignRequest):
                head = request.head_with(upstream.authority, added)
            elif asked.path:  # a neighbor's
                head = upstream_head(cast("PassedRequest", request), upstream.authority, added)
            else:
                head = own_head(request, upstream.authority, added)
        except ValueError as error:  # what no connection can bear must not end the node
            status = error.status if isinstance(error, Malformed) else 400
            refused = one_line(error)
            self._end(
                call, CallResult(problem=refused, rejected=True, status=status, cause=Cause.CLIENT)
            )
            return
        upstream.running += 1
        exchange = passed_exchange(
            upstream,
            request,
            head,
            partial(self._head_came, call),
            partial(self._piece_came, call),
            partial(self._came_back, call, upstream),
            takes_whole=True,
            is_keyed=asked.keyed,
        )
        if exchange.on_end is not None:
            call.exchange = exchange

    def _head_came(self, call: _Call, head: PassedHead) -> None:
        if head.status < 200:
            self._relays.hint(call.command.ref, head)
            return
        call.head, call.held = head, b""
        if self.on_orca is not None:
            self._hear_load(call, head, self.on_orca)
        if head.status not in self._not_run_statuses:
            self._begin(call, head)

    @staticmethod
    def _hear_load(call: _Call, head: PassedHead, on_orca: Callable[[str, bytes], None]) -> None:
        for told in values(head.headers, ORCA_HEADER):
            on_orca(call.tried[-1].name, told)

    def _begin(self, call: _Call, head: PassedHead) -> None:
        call.request = None
        ref = call.command.ref
        began = ResponseBegan(ref, service_time_s(call.command))
        call.relay = self._relays.begin(began, call, head)
        if call.exchange is not None and call.dispatch is None:
            call.exchange.on_piece = call.relay.piece  # a call less for each

    def _piece_came(self, call: _Call, data: bytes) -> None:
        relay = call.relay
        if relay is not None:
            if call.dispatch is not None:
                self._first_byte(call, relay)
            relay.piece(data)
        else:
            self._hold_back(call, data)

    def _first_byte(self, call: _Call, relay: Relay) -> None:
        """Services may send their head before they begin."""
        assert call.head is not None  # noqa: S101 - it comes before the body
        if call.head.status < REFUSED_FROM:
            self.upstreams.began(call.dispatch)
        if call.exchange is not None:
            call.exchange.on_piece = relay.piece

    def _hold_back(self, call: _Call, data: bytes) -> None:
        """Hold the body back. An answer that says at length that the work was not done is passed on
        as all others are."""
        call.held += data
        if len(call.held) > HELD_BACK_MAX_BYTES:
            assert call.head is not None  # noqa: S101 - it comes before the body
            held, call.held = call.held, b""
            self._begin(call, call.head)
            if call.exchange is not None:  # told of it, the node may have stopped it
                self._piece_came(call, held)

    def _came_back(
        self, call: _Call, upstream: Upstream, came_to: Response | BaseException
    ) -> None:
        exchange, call.exchange = call.exchange, None
        upstream.running -= 1
        if isinstance(came_to, Response):
            assert exchange is not None  # noqa: S101 - its head has come
            if self.on_orca is not None and exchange.at_once is not None:
                self._hear_load(call, exchange.at_once[0], self.on_orca)
            self._whole(call, upstream, exchange)
        elif call.relay is not None:
            self._broken_off(call, upstream, reason_of(came_to), cause_by(came_to))
        elif isinstance(came_to, NotDelivered):
            self._not_delivered(call, upstream, came_to)
        elif exchange is not None and exchange.has_begun:  # it said so before it broke off
            self._not_done(call, upstream, self._refusal(call, upstream))
        else:
            is_idempotent = call.request is not None and call.request.method in IDEMPOTENT
            self._no_answer(call, upstream, came_to, is_idempotent=is_idempotent)

    def _whole(self, call: _Call, upstream: Upstream, exchange: PassedExchange) -> None:
        upstream.attempt = 0
        upstream.answered_s = now_s = time.monotonic()
        ref, trailers = call.command.ref, exchange.trailers
        if exchange.at_once is not None:
            call.head, call.held = exchange.at_once
        head = call.head
        assert head is not None  # noqa: S101 - it has come
        is_short = len(call.held) <= HELD_BACK_MAX_BYTES
        if call.relay is None and is_short and head.status in self._not_run_statuses:
            refusal = self._refusal(call, upstream)
            refusal.is_held = True
            self._relays.hold(ref, head, call.held, trailers)
            self._not_done(call, upstream, refusal)
            return
        if head.status == MISDIRECTED:
            _tell_misdirected(upstream)
        took_s = now_s - call.sent_s
        service_s = max(0.0, now_s - call.command.at_s)
        del self._calls[ref]  # what is due may end the request now, and finds nothing to stop
        if call.relay is not None:
            call.relay.end(trailers)
        else:
            self._relays.whole(ResponseBegan(ref, service_s), head, call.held, trailers)
        if head.status < REFUSED_FROM:
            self.upstreams.began(call.dispatch)
        else:
            self.upstreams.came_to_nothing(call.dispatch)
        if head.status < FAILED_FROM:
            self.upstreams.worked(upstream, took_s)
            ended = ServiceEnded(ref, DONE, service_s, upstream=upstream.name)
            ended.said_no = head.status >= REFUSED_FROM
            if call.dispatch is not None and not ended.said_no:
                ended.ran = ran_at(call.dispatch)
            self._on_end(ended, None)
        else:
            if self._is_failure(head.status):
                self.upstreams.failed(upstream, took_s)
            else:
                self.upstreams.worked(upstream, None)
            self._on_end(event_of(call.command, _said(upstream, head.status)), None)

    def _broken_off(self, call: _Call, upstream: Upstream, reason: str, cause: Cause) -> None:
        self.upstreams.failed(upstream, time.monotonic() - call.sent_s, cause)
        self._end(call, CallResult(problem=f"upstream {upstream.name}: {reason}", cause=cause))

    @staticmethod
    def _refusal(call: _Call, upstream: Upstream) -> CallResult:
        """Returns the end of a request that got one of the statuses of work that did not run."""
        assert call.head is not None  # noqa: S101 - it has come
        ended = _said(upstream, call.head.status)
        asked = values(call.head.headers, b"retry-after")
        ended.not_run = True
        ended.retry_after_s = read_retry_after_s(asked[0], time.time()) if asked else None
        return ended


def _fields_of(request: PassedRequest | OwnRequest | ForeignRequest) -> Fields:
    if isinstance(request, OwnRequest):
        return request.head.fields
    return request.headers if isinstance(request, PassedRequest) else request.passed().headers


def _tell_misdirected(upstream: Upstream) -> None:
    """Say in the log what an operator can do about it."""
    hint = "it does not serve the name in Host; `host` of the cluster says which one it gets"
    _log.warning(Message("upstream answers 421", upstream=upstream.name, hint=hint))


def _said(upstream: Upstream, status: int) -> CallResult:
    return CallResult(
        problem=f"upstream {upstream.name} answered {status}",
        status=status,
        cause=Cause.UPSTREAM_STATUS,
        upstream=upstream.name,
    )


def _in_trace(fields: Fields, trace: TraceContext) -> Fields:
    """The fields of a request with its place in a trace as it is now: as they are, where
    nobody on the way has another one than who asked."""
    parent = trace.parent.encode()
    if values(fields, b"traceparent") == [parent]:
        return fields
    kept = [one for one in fields if one[0].lower() not in (b"traceparent", b"tracestate")]
    kept.append((b"traceparent", parent))
    if trace.state:
        kept.append((b"tracestate", trace.state.encode()))
    return tuple(kept)
