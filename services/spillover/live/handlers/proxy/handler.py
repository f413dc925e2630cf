"""The handler `proxy:URL[,URL...]`: sends requests to a service as they came, and hands its answers
on as they come.

An upstream that cannot be reached surely has not got the request, and the next one is tried; where
none is left, the work was not started. When bytes had left and nothing of an answer came, only a
keyed request is tried once more. Once an answer has begun nothing is tried any more: it ends whole,
or broken off. Whatever its status, it is the answer; a 5xx counts as a failure of the upstream.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeAlias

from spillover.core.overflow.events import NotStarted, ResponseBegan, ServiceEnded, Start
from spillover.live.engine.moving import Moving
from spillover.live.engine.write_batch import WriteBatch
from spillover.live.handlers.base import OnEnd, OnHealth
from spillover.live.handlers.calls import PROBLEM_LENGTH_MAX, Ended, one_line
from spillover.live.handlers.ends import event_of, service_time_s
from spillover.live.handlers.http.upstreams import Upstream, Upstreams, reason_of
from spillover.live.handlers.proxy.exchange import PassedConnection, PassedExchange
from spillover.live.handlers.proxy.heads import Refused, upstream_head
from spillover.live.http.connection import Response
from spillover.model.errors import NotDelivered
from spillover.model.ids import RequestId, told_inside
from spillover.model.passed import Fields, MalformedPassed, PassedHead, PassedRequest
from spillover.model.request import DONE, Outcome
from spillover.model.topology import Cluster
from spillover.model.unlike_servers import TOKENS_MAX
from spillover.model.upstream_urls import UpstreamUrl

UNQUEUED_MAX = 64
"""Requests beside the servers at once."""

FAILED_FROM = 500
"""Statuses by which an upstream says that it has failed."""


class Relay(Protocol):
    """What takes an answer that has begun (`live.overflow.relay`)."""

    def piece(self, data: bytes) -> None: ...

    def end(self, trailers: Fields = ()) -> None: ...


Begin: TypeAlias = Callable[[ResponseBegan, Any, PassedHead], Relay]
"""An answer begins, from the source that is given."""


def passed_exchange(
    upstream: Upstream,
    request: PassedRequest,
    added: Fields,
    on_head: Callable[[PassedHead], None],
    on_piece: Callable[[bytes], None],
    on_end: Callable[[Response | BaseException], None],
) -> PassedExchange:
    """Send a request to an upstream. Raises ValueError if it cannot be sent."""
    authority = upstream.origin.partition("//")[2].encode()
    head = upstream_head(request, authority, added)
    exchange = PassedExchange(
        request.method,
        upstream.origin,
        on_end,
        0,
        on_begin=on_head,
        on_piece=on_piece,
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
class _Call:
    """One request at an upstream, and those it was at before. The source of its answer."""

    workers: ProxyWorkers
    command: Start
    request: PassedRequest | None
    """None once its answer has begun."""
    tried: list[Upstream] = field(default_factory=list)
    exchange: PassedExchange | None = None
    uncertain: str | None = None
    """Set once it may have run already: bytes had left, and for this reason no answer came."""
    relay: Relay | None = None
    status: int = 0
    sent_s: float = 0.0

    def pause(self) -> None:
        """Of a source."""
        if self.exchange is not None:
            self.exchange.pause()

    def resume(self) -> None:
        """Of a source."""
        if self.exchange is not None:
            self.exchange.resume()

    def close(self, problem: str) -> None:
        """Of a source."""
        self.workers.give_up(self, problem)


class ProxyWorkers:
    """As many requests at the upstreams of a cluster as it has servers. Made in a running loop.
    `begin` is told when an answer begins."""

    def __init__(
        self,
        urls: Sequence[UpstreamUrl],
        cluster: Cluster,
        on_end: OnEnd,
        on_health: OnHealth,
        begin: Begin,
        moving: Moving | None = None,
    ) -> None:
        at_once = max(cluster.server_count, TOKENS_MAX) + UNQUEUED_MAX
        usual_s = cluster.service_ms / 1e3
        # Requests of one turn leave together: each write wakes the service.
        connection = partial(PassedConnection, writes=WriteBatch(asyncio.get_running_loop()))
        self.upstreams = Upstreams(urls, at_once, usual_s, on_health, moving, connection)
        where = cluster.proxy_url or "its own address"
        self._elsewhere = f"a service is behind this cluster: expected its own requests, at {where}"
        self._on_end = on_end
        self._begin = begin
        self._calls: dict[int, _Call] = {}

    def problem_with(self, payload: Any) -> str | None:  # noqa: ARG002 - of `POST /requests`
        return self._elsewhere

    def start(self, command: Start) -> None:
        call = _Call(self, command, None)
        self._calls[command.ref] = call
        try:
            call.request = PassedRequest.decode(command.request.work)
        except MalformedPassed as error:
            self._end(call, Ended(problem=one_line(error), rejected=True, status=400))
            return
        self._send(call)

    def stop(self, ref: int) -> None:
        """Close the connection, which is how the upstream learns of it. The server is free at
        once, whatever the upstream does."""
        call = self._calls.pop(ref, None)
        if call is None:
            return
        self._let_go(call)
        self._on_end(ServiceEnded(ref, Outcome.CANCELLED, service_time_s(call.command)), None)

    def give_up(self, call: _Call, problem: str) -> None:
        """An answer that has begun is not read any more."""
        if self._calls.get(call.command.ref) is call:
            self._let_go(call)
            self._end(call, Ended(problem=problem))

    async def close(self) -> None:
        calls = list(self._calls.values())
        self._calls.clear()
        for call in calls:
            self._let_go(call)
        await self.upstreams.close()

    def _let_go(self, call: _Call) -> None:
        exchange, call.exchange = call.exchange, None
        if exchange is not None:
            call.tried[-1].running -= 1
            exchange.cancel()

    def _send(self, call: _Call) -> None:
        call.sent_s = time.monotonic()
        upstream = self.upstreams.choose(call.tried, call.sent_s)
        if upstream is None:
            self._none_left(call)
            return
        call.tried.append(upstream)
        command, request = call.command, call.request
        assert request is not None  # noqa: S101 - nothing has begun
        added = added_fields(command.request.id, command.deadline_s - call.sent_s)
        upstream.running += 1
        try:
            exchange = passed_exchange(
                upstream,
                request,
                added,
                partial(self._head_came, call),
                partial(self._piece_came, call),
                partial(self._came_back, call, upstream),
            )
        except ValueError as error:  # what no connection can bear must not end the node
            upstream.running -= 1
            status = error.status if isinstance(error, Refused) else 400
            self._end(call, Ended(problem=one_line(error), rejected=True, status=status))
            return
        if exchange.on_end is not None:
            call.exchange = exchange

    def _head_came(self, call: _Call, head: PassedHead) -> None:
        call.request = None
        call.status = head.status
        ref = call.command.ref
        began = ResponseBegan(ref, service_time_s(call.command))
        call.relay = self._begin(began, call, head)

    @staticmethod
    def _piece_came(call: _Call, data: bytes) -> None:
        call.relay.piece(data)  # type: ignore[union-attr] # its head has come

    def _came_back(
        self, call: _Call, upstream: Upstream, came_to: Response | BaseException
    ) -> None:
        exchange, call.exchange = call.exchange, None
        upstream.running -= 1
        if isinstance(came_to, Response):
            assert exchange is not None  # noqa: S101 - its head has come
            self._whole(call, upstream, exchange.trailers)
        elif call.relay is not None:
            self._broken_off(call, upstream, reason_of(came_to))
        elif isinstance(came_to, NotDelivered):
            self.upstreams.unreachable(upstream, reason_of(came_to))
            if self._calls.get(call.command.ref) is call:  # told of it, the node may have ended it
                self._send(call)
        else:
            self._no_answer(call, upstream, reason_of(came_to))

    def _whole(self, call: _Call, upstream: Upstream, trailers: Fields) -> None:
        upstream.attempt = 0
        took_s = time.monotonic() - call.sent_s
        assert call.relay is not None  # noqa: S101 - its head has come
        call.relay.end(trailers)
        if call.status < FAILED_FROM:
            self.upstreams.worked(upstream, took_s)
            del self._calls[call.command.ref]
            ended = ServiceEnded(call.command.ref, DONE, service_time_s(call.command))
            self._on_end(ended, None)
            return
        self.upstreams.failed(upstream, took_s)
        problem = f"upstream {upstream.name} answered {call.status}"
        told = Ended(problem=problem, details=problem, upstream_answered=True, status=call.status)
        self._end(call, told)

    def _broken_off(self, call: _Call, upstream: Upstream, reason: str) -> None:
        self.upstreams.failed(upstream, time.monotonic() - call.sent_s)
        self._end(call, Ended(problem=f"upstream {upstream.name}: {reason}"))

    def _no_answer(self, call: _Call, upstream: Upstream, reason: str) -> None:
        """As a failure of the upstream: one that only takes requests would be the least busy."""
        self.upstreams.failed(upstream, time.monotonic() - call.sent_s)
        problem = f"upstream {upstream.name}: {reason}; whether it did the work is not known"
        if call.command.request.keyed and call.uncertain is None:
            call.uncertain = problem
            self._send(call)
        else:
            self._end(call, Ended(problem=problem))

    def _none_left(self, call: _Call) -> None:
        """By now the node has been told if no upstream is up: what was surely not begun is decided
        again with that in mind."""
        if call.uncertain is not None:
            self._end(call, Ended(problem=call.uncertain))
            return
        ref = call.command.ref
        del self._calls[ref]
        self._on_end(NotStarted(ref, self.upstreams.problem()[:PROBLEM_LENGTH_MAX]), None)

    def _end(self, call: _Call, ended: Ended) -> None:
        del self._calls[call.command.ref]
        self._on_end(event_of(call.command, ended), None)
