"""The common part of the handlers `http:` and `proxy:`: the choice of the upstream to try next, and
the end of a request where none is left.

An upstream that cannot be reached surely has not got the request, and the next one is tried; where
none is left, the same one again for as long as it does not count as down, and then the work was
not started. When bytes had left and no answer came, only what is keyed or idempotent is tried once
more, a moment later; if the service is down by then, it is decided again. One that answers that it
has surely not done the work is left alone for as long as it asks, and the next one is tried. How a
request goes out and what its answer means is known to the handlers alone.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from spillover.core.affinity.places import Dispatch, Places
from spillover.core.overflow.events import NotStarted, ServiceEnded, Start
from spillover.live.engine.moving import Moving
from spillover.live.handlers.base import OnEnd, OnHealth
from spillover.live.handlers.calls import PROBLEM_LENGTH_MAX, CallResult
from spillover.live.handlers.ends import event_of, service_time_s
from spillover.live.handlers.http.upstreams import (
    AGAIN_S,
    Upstream,
    Upstreams,
    cause_by,
    reason_of,
)
from spillover.live.handlers.session_names import NONE, SessionNames
from spillover.live.http1.connection import Connection, ConnectionOwner
from spillover.live.http1.outgoing import LostThenRefused
from spillover.model.affinity import RanAt, SessionWork
from spillover.model.causes import STOPPED, Cause
from spillover.model.errors import NotDelivered
from spillover.model.request import DONE, Outcome, Request
from spillover.model.session_source import SessionSource
from spillover.model.topology import PASS_HOST, Cluster
from spillover.model.unlike_servers import TOKENS_MAX
from spillover.model.upstream_urls import UpstreamUrl


@dataclass(slots=True, eq=False)
class UpstreamCall:
    """One request at an upstream, and those it was at before."""

    command: Start
    tried: list[Upstream] = field(default_factory=list)
    not_reached: list[Upstream] = field(default_factory=list)
    """Those of the tried ones that may be up all the same."""
    uncertain: str | None = None
    """Set once it may have run already: bytes had left, and for this reason no answer came."""
    refused: CallResult | None = None
    """The answer of the last upstream that surely has not done the work."""
    sent_s: float = 0.0
    session: int = NONE
    work_bytes: int = 1
    dispatch: Dispatch | None = None
    """How it was sent last, where the cluster has affinity."""


C = TypeVar("C", bound=UpstreamCall)


class UpstreamWorkers(ABC, Generic[C]):
    """Runs as many requests at the upstreams of a cluster as it has servers, and `more` beside
    them. It is made in a running loop."""

    def __init__(
        self,
        urls: Sequence[UpstreamUrl],
        cluster: Cluster,
        on_end: OnEnd,
        on_health: OnHealth,
        moving: Moving | None,
        *,
        make_connection: Callable[[ConnectionOwner], Connection] | None = None,
        more: int = 0,
    ) -> None:
        # Operators may change the number of servers: connections must suffice then.
        at_once = max(cluster.server_count_max, TOKENS_MAX) + more
        usual_s = cluster.service_ms / 1e3
        told = usual_s, on_health, moving, make_connection
        self._sessions = places = None
        if cluster.affinity is not None:
            self._sessions = SessionNames(SessionSource.of(cluster.affinity))
            places = Places(len(urls), cluster.server_count_max)
        host = cluster.host or PASS_HOST
        self.upstreams = Upstreams(urls, at_once, *told, host=host, places=places)
        self.hears_orca = cluster.servers_from is not None and cluster.servers_from.orca
        self.on_orca: Callable[[str, bytes], None] | None = None
        """Hears the header of each answer in which an upstream, by its name, says its load."""
        self._on_end = on_end
        self._probe = cluster.probe
        self._calls: dict[int, C] = {}

    @abstractmethod
    def _send(self, call: C) -> None:
        """Try it at an upstream where it was not yet."""

    @abstractmethod
    def _let_go(self, call: C) -> None:
        """Close the connection that it is on, if any, and hear no more of it."""

    def seen(self, request: Request) -> SessionWork | None:
        """Returns what affinity goes by for a client's request that comes now."""
        session, work_bytes = self._session_of(request.work)
        return self.upstreams.seen(session, work_bytes, time.monotonic())

    @abstractmethod
    def _session_of(self, work: Any) -> tuple[int, int]:
        """Returns the session of a request for this, where there is affinity, and its work in
        bytes."""

    def ask_service(self, told: Callable[[bool], None]) -> None:
        """Ask whether it is well, as the cluster says (`probe`); `told` hears it."""
        method, _, target = (self._probe or "").partition(" ")
        self.upstreams.ask(method, target, told)

    def stop(self, ref: int) -> None:
        """Close the connection, which is how the upstream learns of it. The server is free at
        once, whatever the upstream does."""
        call = self._calls.pop(ref, None)
        if call is None:
            return
        self._let_go(call)
        self.upstreams.came_to_nothing(call.dispatch)
        if call.tried:
            call.tried[-1].ends[STOPPED] += 1
        self._on_end(ServiceEnded(ref, Outcome.CANCELLED, service_time_s(call.command)), None)

    async def close(self) -> None:
        calls = list(self._calls.values())
        self._calls.clear()
        for call in calls:
            self._let_go(call)
        await self.upstreams.close()

    def _know_session(self, call: C, work: Any) -> None:
        """Finds out which session a call is of, where there is affinity. Of a client's that may be
        known since it came."""
        asked = call.command.request.asked
        if asked is None:
            call.session, call.work_bytes = self._session_of(work)
        else:
            call.session, call.work_bytes = asked.session, int(asked.work)

    def _choose_by_session(self, call: C) -> Upstream | None:
        """Returns where a call is tried next, and takes it that it goes there now."""
        upstreams, told = self.upstreams, (call.session, call.work_bytes)
        upstreams.came_to_nothing(call.dispatch)
        upstream = upstreams.choose_for(*told, call.tried, call.sent_s)
        if upstream is not None:
            call.dispatch = upstreams.sent(*told, upstream, call.sent_s)
        return upstream

    def _not_delivered(self, call: C, upstream: Upstream, error: NotDelivered) -> None:
        upstream.ends[Cause.CONNECTION.value] += 1
        if self.upstreams.not_reached(upstream, error, call.sent_s):
            call.not_reached.append(upstream)
        self._send_if_there(call)

    def _send_if_there(self, call: C) -> None:
        """Unless the node has stopped it, which it may when it hears that an upstream is down."""
        if self._calls.get(call.command.ref) is call:
            self._send(call)

    def _not_done(self, call: C, upstream: Upstream, refused: CallResult) -> None:
        """The upstream has said so."""
        self.upstreams.failed(upstream, time.monotonic() - call.sent_s)
        self.upstreams.leave_alone(upstream, refused)
        call.refused = refused
        self._send(call)

    def _no_answer(
        self,
        call: C,
        upstream: Upstream,
        error: BaseException,
        *,
        is_idempotent: bool = False,
    ) -> None:
        """Count it as a failure of the upstream: one that only takes requests would be the least
        busy."""
        reason, cause = reason_of(error), cause_by(error)
        self.upstreams.failed(upstream, time.monotonic() - call.sent_s, cause)
        problem = f"upstream {upstream.name}: {reason}; whether it did the work is not known"
        is_repeatable = is_idempotent or call.command.request.keyed
        if is_repeatable and call.uncertain is None:
            call.uncertain = problem
            is_ending = isinstance(error, LostThenRefused) or is_idempotent
            if self.upstreams.is_single and cause is Cause.CONNECTION and is_ending:
                # A service that ends drops what it has, and refuses a moment later.
                call.not_reached.append(upstream)
            self._send(call)
        else:
            self._end(call, CallResult(problem=problem, cause=cause))

    def _none_left(self, call: C) -> None:
        """Decide on a call that no upstream is left for. By now the node has been told if none is
        up: what was surely not begun is decided again with that in mind."""
        if call.not_reached:
            call.tried = [one for one in call.tried if one not in call.not_reached]
            call.not_reached = []
            asyncio.get_running_loop().call_later(AGAIN_S, self._send_if_there, call)
            return
        if call.uncertain is not None and self.upstreams.are_up:
            self._end(call, CallResult(problem=call.uncertain, cause=Cause.CONNECTION))
            return
        self.upstreams.came_to_nothing(call.dispatch)
        rest_s = self.upstreams.rest_s(time.monotonic())
        if call.refused is not None:
            call.refused.retry_after_s = rest_s
            self._end(call, call.refused)
            return
        ref = call.command.ref
        del self._calls[ref]
        # What may be done twice is decided again, too, where the service is down.
        problem = (call.uncertain or self.upstreams.problem())[:PROBLEM_LENGTH_MAX]
        cause = Cause.CONNECTION if rest_s is None else Cause.UPSTREAM_STATUS
        ended = NotStarted(ref, problem, retry_after_s=rest_s, cause=cause)
        ended.may_have_run = call.uncertain is not None
        self._on_end(ended, None)

    def _end(self, call: C, ended: CallResult) -> None:
        del self._calls[call.command.ref]
        self.upstreams.came_to_nothing(call.dispatch)
        ended.upstream = call.tried[-1].name if call.tried else None
        event = event_of(call.command, ended)
        if call.dispatch is not None and isinstance(event, ServiceEnded):
            event.ran = ran_at(call.dispatch) if event.outcome is DONE else None
        self._on_end(event, None)


def ran_at(sent: Dispatch) -> RanAt:
    """Returns what neighbors are told of where a request of theirs ran."""
    return RanAt(sent.place, sent.taken, sent.reused)
