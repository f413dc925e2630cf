"""The upstreams of the handlers `http:` and `proxy:`: which is the least busy, which can be
reached, which had better be left alone.

Health is passive: an upstream is down once no connection to it can be made (`policy.reach` says
when that is so), and is then looked after by connecting, never by work. One that fails counts as
busy for as long as a success takes, or it would be the least busy always; one that fails more than
the others (`policy.overflow.degradation`) is passed over for a while. What requests and answers
mean is not known here.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from random import Random
from urllib.parse import urlsplit

from spillover.core.affinity.places import Dispatch, Places
from spillover.live.engine.moving import Moving
from spillover.live.handlers.base import OnHealth
from spillover.live.handlers.calls import RESULT_LIMIT_BYTES, SAID_LIMIT_BYTES, CallResult
from spillover.live.http1.client import HttpClient, Response
from spillover.live.http1.connection import Connection, ConnectionOwner
from spillover.live.http1.known_heads import KnownAnswer, KnownHeads
from spillover.live.http1.outgoing import Again, NotHttp, Parts
from spillover.live.process.logs import Message, OncePerPeriod
from spillover.model.affinity import PlaceLoad, SessionWork
from spillover.model.causes import DONE, REJECTED, UPSTREAM_ENDS, Cause
from spillover.model.errors import ConnectTimeout, NotDelivered, PeerError
from spillover.model.topology import PASS_HOST, URL_HOST
from spillover.model.upstream_urls import UpstreamUrl
from spillover.policy.backoff import backoff_s
from spillover.policy.overflow.degradation import DEGRADED_AT, UNPROVEN, weighed
from spillover.policy.reach import Reach
from spillover.policy.reuse import Keeping

PROBE_FIRST_S = AGAIN_S = 0.05
PROBE_LONGEST_S = 1.0
"""Pauses between attempts to connect; the first is also that of a request whose attempt says
little of its upstream."""

IDLE_S_MAX = 1.5
"""Servers close idle connections, common ones after 2 s or 5 s. A request that is written at that
very moment is lost, and without a key not sent again: so the idle connection is closed first."""

AGE_S_MAX = 5.0
"""The longest use of a connection. Servers behind one address (pods, a name that moves) get their
share of the work anew within seconds after they have started again. So many seconds cost one
connection to open for thousands of requests."""

ALONE_S_MAX = 60.0
"""However long an upstream asks to be left alone, it is tried again after this time."""

ASK_TIMEOUT_S = 5.0
"""The time that a service has to answer when it is asked whether it is well."""

PASS_OVER_S = 1.0
"""The time for which an upstream is passed over that fails more than others; it doubles each time
until the upstream has worked, up to PASS_OVER_S_MAX."""

PASS_OVER_S_MAX = 30.0

USUAL_WEIGHT = 1 / 16
"""Weight of the newest success in the mean."""

CONNECTIONS_SPARE = 1_000
"""The connections beyond two for each server: those of stopped requests are gone only a moment
later."""

_log = logging.getLogger(__name__)
_log.addFilter(OncePerPeriod())


class Upstream:
    """One upstream: its connections, how many requests it has, whether it can be reached."""

    def __init__(
        self,
        url: UpstreamUrl,
        place: int,
        connections_max: int,
        moving: Moving | None,
        make_connection: Callable[[ConnectionOwner], Connection] | None,
        *,
        host: str,
        is_only: bool,
    ) -> None:
        self.name = url.name
        self.origin = url.origin
        self.authority = url.origin.partition("//")[2].encode()
        self._named = None if host in (PASS_HOST, URL_HOST) else host
        told = self._named.encode() if self._named else self.authority
        self.host = None if host == PASS_HOST else told
        """The `Host` that it gets in place of the client's."""
        self.place = place
        self.running = 0
        self.up = True
        self.was_reached = False
        """Whether it was reached since the start."""
        self.reason = ""
        """Why it could not be reached when that was last so."""
        self.attempt = 0
        self.reach = Reach()
        self.answered_s = -math.inf
        self.alone_until_s = 0.0
        """It has asked not to be asked before."""
        self.failures = 0.0
        """The sum of `policy.overflow.degradation`."""
        self.ended_s = 0.0
        self.passed_over_until_s = 0.0
        self.pause_s = PASS_OVER_S
        self.ends = dict.fromkeys(UPSTREAM_ENDS, 0)
        """The numbers of requests by their ends, for metrics."""
        self.affinity_bytes = {"missing": 0.0, "reused": 0.0}
        """The bytes that it was sent, by what it was expected to have, where there is affinity."""
        self._target = url.target
        known: KnownHeads[KnownAnswer] = KnownHeads()
        self.client = HttpClient(
            url.origin,
            connections_max=connections_max,
            idle_s_max=IDLE_S_MAX,
            keeping=Keeping(age_s_max=AGE_S_MAX, is_trusted=False),
            again=Again.HARMLESS if is_only else Again.UNREAD,  # else another one is asked
            body_limit_bytes=RESULT_LIMIT_BYTES,
            excerpt_bytes=SAID_LIMIT_BYTES + 1,
            moving=moving,
            make_connection=make_connection or (lambda pool: Connection(pool, None, moving, known)),
            host=self._named,
            server_name=self._server_name,
        )

    @property
    def _server_name(self) -> str | None:
        """Returns whom it has to prove to be with TLS; None for its URL's host."""
        return urlsplit(f"//{self._named}").hostname if self._named else None

    def is_down(self, error: NotDelivered, began_s: float, now_s: float) -> bool:
        """Returns whether an attempt to reach it that failed so says that it is down."""
        reach, client = self.reach, self.client
        reach.alive_s = max(self.answered_s, client.opened_s)
        if isinstance(error, ConnectTimeout):
            return reach.not_in_time(began_s, now_s)
        return reach.refused(client.opened_s, now_s, is_busy=client.busy > 0)

    def post(
        self, headers: Sequence[tuple[bytes, bytes]], body: Parts, *, keyed: bool
    ) -> asyncio.Future[Response]:
        """Do the same as `HttpClient.request`, without a limit in time: the node stops late
        calls."""
        return self.client.request(
            "POST", self._target, headers=headers, body=body, timeout_s=None, keyed=keyed
        )

    async def asked(self, method: str, target: str) -> bool:
        """Ask on a connection of its own, and return whether the answer is 2xx."""
        client = HttpClient(
            self.origin,
            connections_max=1,
            body_limit_bytes=RESULT_LIMIT_BYTES,
            host=self._named,
            server_name=self._server_name,
        )
        try:
            answer = await client.request(method, target, timeout_s=ASK_TIMEOUT_S)
        except PeerError:
            return False
        finally:
            await client.close()
        return 200 <= answer.status <= 299


class Upstreams:
    """All upstreams of a cluster. Made inside a running loop; all count as up until looked at.

    `on_health` hears False when the last one that was up goes down and True when the first one is
    up again; never before this is made.
    """

    def __init__(
        self,
        urls: Sequence[UpstreamUrl],
        servers: int,
        usual_s: float,
        on_health: OnHealth,
        moving: Moving | None = None,
        make_connection: Callable[[ConnectionOwner], Connection] | None = None,
        *,
        host: str = PASS_HOST,
        places: Places | None = None,
    ) -> None:
        self._places = places
        self._usual_s = usual_s
        """How long a success takes."""
        connections_max = 2 * servers + CONNECTIONS_SPARE
        self._all = [
            Upstream(
                url,
                place,
                connections_max,
                moving,
                make_connection,
                host=host,
                is_only=len(urls) == 1,
            )
            for place, url in enumerate(urls)
        ]
        self._on_health = on_health
        self._random = Random()  # only spreads attempts to connect
        self._next = 0
        self._looking: set[asyncio.Task[None]] = set()
        for upstream in self._all:
            self._look_after(upstream)

    def choose(self, tried: Collection[Upstream], now_s: float) -> Upstream | None:
        """Returns the least busy that is up, need not be left alone, and was not tried, ties by
        rotation; None if there is none. Those that were never reached yet come after others, those
        that fail more than others last."""
        if len(self._all) == 1:
            only = self._all[0]
            is_free = only.up and only.alone_until_s <= now_s and only not in tried
            return only if is_free else None
        turned = self._all[self._next :] + self._all[: self._next]
        candidates = (
            upstream
            for upstream in turned
            if upstream.up and upstream.alone_until_s <= now_s and upstream not in tried
        )
        chosen = min(
            candidates,
            key=lambda upstream: (
                upstream.passed_over_until_s > now_s,
                not upstream.was_reached,
                upstream.running,
            ),
            default=None,
        )
        if chosen is not None:
            self._next = (chosen.place + 1) % len(self._all)
        return chosen

    def choose_for(
        self, session: int, work: float, tried: Collection[Upstream], now_s: float
    ) -> Upstream | None:
        """Returns what `choose` would, but by what it costs where the session is of use: of those
        that had better be left alone none is taken for its sake."""
        best = self.choose(tried, now_s)
        if best is None or self._places is None or len(self._all) == 1:
            return best
        running = [(best.place, best.running), *self._running(tried, now_s)]
        return self._all[self._places.choose(session, work, running, self._usual_s, now_s)]

    def _running(self, tried: Collection[Upstream], now_s: float) -> list[tuple[int, int]]:
        """Returns the places of those that a request may go to now, with what runs there."""
        there = [
            ((one.passed_over_until_s > now_s, not one.was_reached), one.place, one.running)
            for one in self._all
            if one.up and one.alone_until_s <= now_s and one not in tried
        ]
        best = min([rank for rank, _, _ in there], default=None)
        return [(place, running) for rank, place, running in there if rank == best]

    def seen(self, session: int, work: float, now_s: float) -> SessionWork | None:
        """Returns what `choose_for` would go by, for the choice between here and other sites; None
        where it would not."""
        if self._places is None:
            return None
        return self._places.seen(session, work, self._running((), now_s), self._usual_s, now_s)

    def loads(self) -> tuple[PlaceLoad, ...]:
        """Returns what neighbors are told of them, where there is affinity."""
        if self._places is None:
            return ()
        now_s = time.monotonic()
        return self._places.loads(self._running((), now_s), self._usual_s, now_s)

    def use(self, servers: int) -> None:
        """All of them together run this number of requests at a time from now on, as operators
        say."""
        if self._places is not None:
            self._places.use(servers)

    def sent(self, session: int, work: float, upstream: Upstream, now_s: float) -> Dispatch | None:
        if self._places is None:
            return None
        dispatch = self._places.sent(session, work, upstream.place, now_s)
        upstream.affinity_bytes["missing"] += dispatch.expected
        upstream.affinity_bytes["reused"] += work - dispatch.expected
        return dispatch

    def began(self, sent: Dispatch | None) -> None:
        """The first byte of its answer has come."""
        if sent is not None and self._places is not None:
            self._places.began(sent, time.monotonic())

    def came_to_nothing(self, sent: Dispatch | None) -> None:
        """It was not answered, or with a failure; that is so of none whose answer has begun."""
        if sent is not None and self._places is not None:
            self._places.failed(sent, time.monotonic())

    def __iter__(self) -> Iterator[Upstream]:
        return iter(self._all)

    def worked(self, upstream: Upstream, took_s: float | None) -> None:
        """It has done a request in this time, or (None) has said what is wrong with it, which tells
        nothing of how long a success takes."""
        upstream.ends[DONE if took_s is not None else REJECTED] += 1
        if took_s is not None:
            self._usual_s += (took_s - self._usual_s) * USUAL_WEIGHT
        upstream.pause_s = PASS_OVER_S
        if upstream.failures:
            self._weigh(upstream, failed=False)

    def failed(
        self, upstream: Upstream, took_s: float, cause: Cause = Cause.UPSTREAM_STATUS
    ) -> None:
        """It has answered with a failure, that it has not done the work, or not at all."""
        upstream.ends[cause.value] += 1
        rest_s = self._usual_s - took_s
        if rest_s > 0.0:
            upstream.running += 1
            asyncio.get_running_loop().call_later(rest_s, self._cooled, upstream)
        self._weigh(upstream, failed=True)
        if upstream.failures >= DEGRADED_AT and len(self._all) > 1:
            now_s = time.monotonic()
            if upstream.passed_over_until_s <= now_s:
                name, pause_s = upstream.name, upstream.pause_s
                _log.warning(Message("upstream is passed over", upstream=name, pause_s=pause_s))
                upstream.passed_over_until_s = now_s + pause_s
                upstream.pause_s = min(2.0 * pause_s, PASS_OVER_S_MAX)
            upstream.failures = UNPROVEN

    def leave_alone(self, upstream: Upstream, asked: CallResult) -> None:
        """It has said that it surely has not done the work, and perhaps how long to leave it."""
        upstream.reason = asked.problem or ""
        if asked.retry_after_s is not None:
            pause_s = min(asked.retry_after_s, ALONE_S_MAX)
            upstream.alone_until_s = time.monotonic() + pause_s
            _log.warning(Message("upstream is left alone", upstream=upstream.name, pause_s=pause_s))

    def rest_s(self, now_s: float) -> float | None:
        """Returns how long all that can be reached want to be left alone; None if one does not."""
        alone_s = [upstream.alone_until_s - now_s for upstream in self._all if upstream.up]
        shortest_s = min(alone_s, default=0.0)
        return shortest_s if shortest_s > 0.0 else None

    def _weigh(self, upstream: Upstream, *, failed: bool) -> None:
        now_s = time.monotonic()
        since_last_s = now_s - upstream.ended_s
        upstream.failures = weighed(upstream.failures, failed, 0.0, since_last_s)
        upstream.ended_s = now_s

    @staticmethod
    def _cooled(upstream: Upstream) -> None:
        upstream.running -= 1

    def not_reached(self, upstream: Upstream, error: NotDelivered, began_s: float) -> bool:
        """It could not be reached by an attempt that began then. Returns whether it counts as up
        all the same, and may be tried again after AGAIN_S, others first."""
        now_s = time.monotonic()
        if not upstream.up or upstream.is_down(error, began_s, now_s):
            self.unreachable(upstream, reason_of(error))
            return False
        upstream.reason = reason_of(error)
        if len(self._all) > 1:
            until_s = now_s + PASS_OVER_S
            upstream.passed_over_until_s = max(upstream.passed_over_until_s, until_s)
        return True

    def unreachable(self, upstream: Upstream, reason: str) -> None:
        """It is down: leave it alone until a connection can be made."""
        upstream.reason = reason
        if not upstream.up:
            return
        upstream.reach.forget()
        upstream.up = False
        _log.warning(Message("upstream cannot be reached", upstream=upstream.name, reason=reason))
        self._look_after(upstream)
        if not self._count_up():
            self._on_health(False)  # noqa: FBT003 - the shape of the callback

    @property
    def are_up(self) -> bool:
        return self._count_up() > 0

    @property
    def is_single(self) -> bool:
        """Returns whether there is one, so that no other can be asked."""
        return len(self._all) == 1

    def problem(self) -> str:
        """Returns why there is no upstream to choose, in one line."""
        last = next((upstream for upstream in self._all if not upstream.up), None)
        if last is None:
            return f"upstream {self._all[0].name} wants to be left alone: {self._all[0].reason}"
        if len(self._all) == 1:
            return f"upstream {last.name} cannot be reached: {last.reason}"
        many = f"none of {len(self._all)} upstreams can be reached"
        return f"{many}, {last.name} among them: {last.reason}"

    def ask(self, method: str, target: str, told: Callable[[bool], None]) -> None:
        """Ask all that are up, beside all work; `told` hears whether any answers with 2xx."""
        task = asyncio.get_running_loop().create_task(self._ask(method, target, told))
        self._looking.add(task)
        task.add_done_callback(self._looking.discard)

    async def _ask(self, method: str, target: str, told: Callable[[bool], None]) -> None:
        asked = [one.asked(method, target) for one in self._all if one.up]
        answers = await asyncio.gather(*asked, return_exceptions=True)  # a bug is no good news
        told(any(answer is True for answer in answers))

    async def close(self) -> None:
        for task in self._looking:
            task.cancel()
        await asyncio.gather(*self._looking, return_exceptions=True)
        for upstream in self._all:
            await upstream.client.close()

    @property
    def some_up(self) -> bool:
        """Returns whether one can be reached, as far as is known."""
        return any(upstream.up for upstream in self._all)

    def _count_up(self) -> int:
        return sum(upstream.up for upstream in self._all)

    def _look_after(self, upstream: Upstream) -> None:
        look = self._look_once if upstream.up else self._probe
        task = asyncio.get_running_loop().create_task(look(upstream))
        self._looking.add(task)
        task.add_done_callback(self._looking.discard)

    async def _look_once(self, upstream: Upstream) -> None:
        while upstream.up:
            began_s = time.monotonic()
            try:
                await upstream.client.warm(1)
            except NotDelivered as error:
                if self.not_reached(upstream, error, began_s):
                    await asyncio.sleep(AGAIN_S)
            else:
                upstream.was_reached = True
                return

    async def _probe(self, upstream: Upstream) -> None:
        """Connect until that works. Only an answer starts the backoff anew: what accepts
        connections and closes them is not to be asked twenty times a second."""
        while not upstream.up:
            draw = self._random.random()
            pause_s = backoff_s(upstream.attempt, PROBE_FIRST_S, PROBE_LONGEST_S, draw)
            upstream.attempt += 1
            await asyncio.sleep(pause_s)
            try:
                await upstream.client.warm(upstream.client.idle + 1)
            except NotDelivered as error:
                upstream.reason = reason_of(error)
            else:
                upstream.up = upstream.was_reached = True
        _log.info(Message("upstream can be reached again", upstream=upstream.name))
        now_s = time.monotonic()
        if not any(one.up and one.alone_until_s <= now_s for one in self._all if one != upstream):
            self._on_health(True)  # noqa: FBT003 - the shape of the callback


def cause_by(error: BaseException) -> Cause:
    """Returns what an upstream failed by that gave no whole answer."""
    return Cause.UPSTREAM_ANSWER if isinstance(error, NotHttp) else Cause.CONNECTION


def reason_of(error: BaseException) -> str:
    """Returns what the client says without the URL before it, whose query is nobody's business."""
    text = " ".join(str(error).split())
    return text.partition(": ")[2] or text
