"""Requests that are passed to a service beside its servers: health checks and preflights must not
wait behind work. Nothing is known of them to the machine; they are few, and short.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from spillover.live.engine.moving import Moving
from spillover.live.engine.timers import Timer, Timers
from spillover.live.handlers.http.upstreams import (
    AGAIN_S,
    Upstream,
    Upstreams,
    cause_by,
    reason_of,
)
from spillover.live.handlers.proxy.exchange import PassedExchange
from spillover.live.handlers.proxy.handler import (
    FAILED_FROM,
    UNQUEUED_MAX,
    added_fields,
    passed_exchange,
)
from spillover.live.handlers.proxy.sent_heads import OwnRequest, own_head, with_host
from spillover.live.http1.outgoing import IDEMPOTENT, Response
from spillover.model.causes import DONE, STOPPED, Cause
from spillover.model.errors import NotDelivered
from spillover.model.ids import RequestId
from spillover.model.passed import Fields, PassedHead, PassedRequest

OnHead = Callable[[PassedHead], None]
OnPiece = Callable[[bytes], None]


@dataclass(frozen=True, slots=True)
class NotWhole:
    """Why an answer is not whole, or none is there: a reason as problems have it, and a line."""

    reason: str
    detail: str
    cause: Cause


OnEnd = Callable[[Fields | NotWhole], None]
"""Is called with the trailers when an answer is whole, else with why it is not."""


class Unqueued:
    """Passes requests on beside the queue, at most UNQUEUED_MAX at once."""

    def __init__(self, upstreams: Upstreams, timers: Timers, moving: Moving) -> None:
        self.upstreams = upstreams
        self.timers = timers
        self.stall_s = math.inf
        """How long an answer may stand still since its client does not read."""
        self._moving = moving
        self._running = 0

    @property
    def is_full(self) -> bool:
        return self._running >= UNQUEUED_MAX

    def send(
        self,
        request: OwnRequest | PassedRequest,
        request_id: RequestId,
        deadline_s: float,
        on_head: OnHead,
        on_piece: OnPiece,
        on_end: OnEnd,
    ) -> UnqueuedCall:
        """Send it; all of its answer must come before the deadline. Raises ValueError if it cannot
        be sent."""
        self._running += 1
        self._moving.add(len(request.body))
        call = UnqueuedCall(self, request, request_id, deadline_s, (on_head, on_piece, on_end))
        call.begin()
        return call

    def ended(self, request: OwnRequest | PassedRequest) -> None:
        self._running -= 1
        self._moving.add(-len(request.body))


class UnqueuedCall:
    """One of them. The flow of its answer."""

    is_whole = False
    """False, since parts of an answer are handed on as they come."""
    size_bytes = 0

    def __init__(
        self,
        owner: Unqueued,
        request: OwnRequest | PassedRequest,
        request_id: RequestId,
        deadline_s: float,
        on: tuple[OnHead, OnPiece, OnEnd],
    ) -> None:
        self._owner = owner
        self._request = request
        self._id = request_id
        self._deadline_s = deadline_s
        self._on_head, self._on_piece, self._on_end = on
        self._tried: list[Upstream] = []
        self._not_reached: list[Upstream] = []
        """Those of the tried ones that may be up all the same."""
        self._sent_s = 0.0
        self._problem: str | None = None
        """Why there was no answer where one was awaited."""
        self._exchange: PassedExchange | None = None
        self._stalled: Timer | None = None
        """Rings when its client has read nothing for too long."""
        self._is_over = False

    def begin(self) -> None:
        self._timer = self._owner.timers.at(self._deadline_s, self._too_late)
        try:
            self._send()
        except ValueError:
            self._end_silently()
            raise

    def pause(self) -> None:
        if self._exchange is not None and self._stalled is None:
            self._exchange.pause()
            due_s = time.monotonic() + self._owner.stall_s
            self._stalled = self._owner.timers.at(due_s, self._stands_still)

    def resume(self) -> None:
        self._unset_stalled()
        if self._exchange is not None:
            self._exchange.resume()

    def cancel(self) -> None:
        """Nobody waits for it any more."""
        if not self._is_over:
            self._let_go()
            self._end_silently()

    def _send(self) -> None:
        if self._is_over:
            return
        now_s = self._sent_s = time.monotonic()
        upstream = self._owner.upstreams.choose(self._tried, now_s)
        if upstream is None:
            # Only what was not delivered is tried at the next one: it surely did not run.
            if self._not_reached:
                self._tried = [one for one in self._tried if one not in self._not_reached]
                self._not_reached = []
                asyncio.get_running_loop().call_later(AGAIN_S, self._send)
                return
            if self._problem is not None:
                self._fail("handler_failed", self._problem, Cause.CONNECTION)
                return
            self._fail("no_servers", self._owner.upstreams.problem(), Cause.CONNECTION)
            return
        self._tried.append(upstream)
        request = self._request
        if upstream.host is not None:
            request = with_host(request, upstream.host)
        added = added_fields(self._id, self._deadline_s - now_s)
        exchange = passed_exchange(
            upstream,
            request,
            own_head(request, upstream.authority, added),
            self._on_head,
            self._on_piece,
            partial(self._came_back, upstream),
        )
        if exchange.on_end is not None:
            self._exchange = exchange

    def _came_back(self, upstream: Upstream, came_to: Response | BaseException) -> None:
        exchange, self._exchange = self._exchange, None
        if isinstance(came_to, Response):
            assert exchange is not None  # noqa: S101 - its head has come
            upstream.answered_s = time.monotonic()
            failed = came_to.status >= FAILED_FROM
            upstream.ends[Cause.UPSTREAM_STATUS.value if failed else DONE] += 1
            self._end(exchange.trailers)
        elif isinstance(came_to, NotDelivered):
            upstream.ends[Cause.CONNECTION.value] += 1
            if self._owner.upstreams.not_reached(upstream, came_to, self._sent_s):
                self._not_reached.append(upstream)
            self._send()  # told of it, the node may have rung its deadline
        elif self._problem is None and self._is_repeatable(exchange):
            upstream.ends[cause_by(came_to).value] += 1
            self._problem = f"upstream {upstream.name}: {reason_of(came_to)}"
            self._send()
        else:
            cause = cause_by(came_to)
            upstream.ends[cause.value] += 1
            self._fail("handler_failed", f"upstream {upstream.name}: {reason_of(came_to)}", cause)

    def _is_repeatable(self, exchange: PassedExchange | None) -> bool:
        """Returns whether another one may be asked after an end that gave no answer."""
        return (exchange is None or not exchange.has_begun) and self._request.method in IDEMPOTENT

    def _too_late(self, _: float) -> None:
        self._let_go()
        why = "the deadline passed before its answer was whole"
        self._fail("deadline_exceeded", why, Cause.TIMEOUT)

    def _stands_still(self, _: float) -> None:
        self._let_go()
        why = f"its client has read nothing of it for {self._owner.stall_s:g} s"
        self._fail("handler_failed", why, Cause.CLIENT)

    def _unset_stalled(self) -> None:
        stalled, self._stalled = self._stalled, None
        if stalled is not None:
            stalled.cancel()

    def _let_go(self) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            self._tried[-1].ends[STOPPED] += 1
            exchange.cancel()

    def _fail(self, reason: str, detail: str, cause: Cause) -> None:
        self._end(NotWhole(reason, detail, cause))

    def _end(self, came_to: Fields | NotWhole) -> None:
        self._end_silently()
        self._on_end(came_to)

    def _end_silently(self) -> None:
        self._is_over = True
        self._timer.cancel()
        self._unset_stalled()
        self._owner.ended(self._request)
