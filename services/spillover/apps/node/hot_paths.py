"""The paths that carry the traffic, dispatched in front of FastAPI: `POST /requests`, look-ups of
requests by name, and the messages between nodes. They do their own error handling; everything else
goes on to the app.

Measured reason: design, decision 1. `intake` knows what requests mean, `lookups` how one asks for a
request, `peer_paths` what neighbors say, and the machine what happens to a request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

from spillover.apps.http.access import tenant_in
from spillover.apps.http.asgi import Receive, Scope, Send
from spillover.apps.http.cold import MadeWhenAsked
from spillover.apps.http.doors import Doors
from spillover.apps.http.exchange import EXCHANGE, ClientGone, Exchange, too_large
from spillover.apps.http.problems import Problem
from spillover.apps.http.service import Direct, DirectPost, Edge
from spillover.apps.node.answers import (
    JSON_LINE,
    EncodedOnce,
    answer_body,
    answer_internal_error,
    encode,
    no_results,
    node_ended,
    problem_of,
    rate_limited,
    status_of,
    with_lines,
)
from spillover.apps.node.counted_requests import CountedRequests
from spillover.apps.node.intake import (
    NO_HEADERS,
    Headers,
    asked_name,
    read_headers,
    read_request,
)
from spillover.apps.node.lookups import LOOKUP_METHODS, LOOKUP_PREFIX, Lookups
from spillover.apps.node.pages import REQUESTS, Pages
from spillover.apps.node.peer_paths import PEER_OF, PeerPaths, peer_of
from spillover.apps.node.preferences import Preferences, waited_line
from spillover.apps.node.request_view import encode_view, location
from spillover.apps.node.session_paths import SessionPaths
from spillover.apps.node.site_paths import EXPLAIN_PREFIX, SitePaths
from spillover.apps.node.waiting import WaitingClient
from spillover.core.overflow.idempotency import IdempotencyRecord
from spillover.live.membership.session_wire import SESSION
from spillover.live.overflow.frames.frame import FORWARD
from spillover.live.overflow.frames.frame import PASS as PASSED
from spillover.live.overflow.home_requests import fingerprint
from spillover.live.overflow.protocol import (
    FIRST,
    PASS,
    PEER_PREFIX,
    SHARED,
    SIBLINGS,
    SPOKEN,
    is_of_another_version,
)
from spillover.live.overflow.request_log import is_logged, log_request
from spillover.live.overflow.shell import NodeShell
from spillover.live.overflow.waiters import Told
from spillover.model.ids import name_of
from spillover.model.request import DONE, Answer, Refusal, Request

HotPath: TypeAlias = Callable[[Exchange, Send], Awaitable[None]]

REPLAYED_LINE = b"spillover-replayed: true\r\n"


class HotPaths:
    """An ASGI app: the hot paths of a node, and behind them the `cold` ones.

    Most requests never see ASGI: connections hand clients' requests that came whole to `direct`,
    and those of neighbors to `PeerPaths.take_whole`. These answer them when their time comes,
    without a task that waits.
    """

    def __init__(
        self,
        cold: MadeWhenAsked,
        shell: NodeShell,
        pages: Pages,
        sessions: SessionPaths,
        doors: Doors | None = None,
    ) -> None:
        self.cold = cold
        self._pages = pages
        self._sessions = sessions
        self.doors = self._doors = doors
        """The doors by API tokens; None where there are none, and so no tenants."""
        self._shell = shell
        self._clock = shell.timers.clock
        self._site: SitePaths | None = None
        """The other nodes of the site, as far as requests concern them; None where there are
        none."""
        self._later = set[asyncio.Task[None]]()
        """The tasks of requests that came whole and wait for another node."""
        self._counted = CountedRequests(shell.metrics.gateway.http)
        self._counts, self._refuse = self._counted.posts, self._counted.refuse
        shell.requests.status_of = status_of
        self._home_requests = shell.requests.home
        self._waiters = shell.requests.waiters
        self._problem_with = shell.requests.workers.problem_with
        self._peers = peers = PeerPaths(shell)
        posts = [DirectPost(REQUESTS, self.direct)]
        if doors is None or doors.is_open("POST", SPOKEN[0].forward):
            for path, kind in (*((one.forward, FORWARD) for one in SPOKEN), (PASS, PASSED)):
                posts.append(DirectPost(path, partial(peers.take_whole, kind), of_peers=True))
        direct = Direct(posts, (LOOKUP_PREFIX,), self.direct)
        self.edge = Edge(direct, shell.writes, shell.room.moving, recalled_below=PEER_PREFIX)
        self._go_by()
        shell.on_change.append(self._go_by)
        self._lookups = Lookups(shell)
        self._encoded = EncodedOnce(asyncio.get_running_loop())
        self._routes: dict[str, tuple[tuple[str, ...], HotPath]] = {
            REQUESTS: (("POST",), self._post_request),
        }
        for calls in SPOKEN:
            self._routes[calls.forward] = ("POST",), peers.forward
            self._routes[calls.cancel] = ("POST",), peers.cancel
            self._routes[calls.reports] = ("GET",), peers.reports
        self._routes[FIRST] = ("GET",), peers.hello
        self._routes[SHARED] = ("GET",), peers.share
        self._routes[PASS] = ("POST",), peers.passed
        self._routes[SESSION] = ("GET", "DELETE"), self._serve_session
        self._routes[SIBLINGS] = ("GET",), peers.siblings

    def _go_by(self) -> None:
        """Go by the topology, which has changed."""
        topology = self._shell.topology
        self._default_deadline_ms = topology.default_deadline_ms
        self._payload_limit_bytes = topology.payload_limit_bytes
        if self._site is None and self._shell.site is not None:
            self._site = SitePaths(self._shell, self._shell.site)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange: Exchange = scope[EXCHANGE]
        if exchange.is_of_page and not self._admit(exchange):
            return
        if self._site is not None and not self._let_sibling_in(exchange, scope, self._site):
            return
        if self._doors is not None:
            answered_by = self._let_in(exchange, scope, send, self._doors)
            if answered_by is None:
                return
            send = answered_by
        route = self._routes.get(scope["path"]) or self._lookup_route(scope)
        if route is None:
            if self._site is None or not await self._told_elsewhere(exchange, scope, self._site):
                await self._go_on(exchange, scope, receive, send)
            return
        methods, answer = route
        try:
            _check_method(exchange, methods)
            await answer(exchange, send)
        except Problem as problem:
            self._refuse(exchange, problem)
        except ClientGone:
            return
        except Exception:  # noqa: BLE001 - nothing behind this turns a bug into an answer
            self._internal_error(exchange, None)

    async def _go_on(self, exchange: Exchange, scope: Scope, receive: Receive, send: Send) -> None:
        """Have the app answer a request that is not hot."""
        if scope["path"].startswith(PEER_PREFIX):
            if is_of_another_version(scope["path"]):
                exchange.refuse(self._peers.other_version(exchange))
                return
            headers = dict(exchange.headers)
            scope[PEER_OF] = partial(peer_of, self._shell.neighborhood.peers, exchange, headers)
        await self.cold(scope, receive, send)

    def _admit(self, exchange: Exchange) -> bool:
        """Returns whether there is more to do for a browser's page (`Pages.admit`)."""
        try:
            return self._pages.admit(exchange)
        except Problem as problem:
            self._refuse(exchange, problem)
        except Exception:  # noqa: BLE001 - as above
            self._internal_error(exchange, None)
        return False

    def _let_in(self, exchange: Exchange, scope: Scope, send: Send, doors: Doors) -> Send | None:
        """Put the caller in the scope, and return the `send` to answer through; None if the call
        was answered with a problem."""
        try:
            return doors.let_in(exchange, scope, send)
        except Problem as problem:
            self._refuse(exchange, problem)
        except Exception:  # noqa: BLE001 - as above
            self._internal_error(exchange, None)
        return None

    def direct(self, exchange: Exchange, body: bytes) -> None:
        """Take `POST /requests` that came whole, or `GET /requests/{id}`, which come from no page.
        They are answered now or later."""
        received_s = exchange.begun_s or self._clock()
        try:
            if self._site is not None:
                self._site.tell_cluster(exchange)
            tenant = "" if self._doors is None else self._doors.submitter(exchange).tenant
            is_question = exchange.method == "GET"
            headers = NO_HEADERS if is_question else read_headers(exchange.headers)
            if (site := self._site) is not None and self._is_for_later(
                exchange, headers, body, site, tenant
            ):
                task = asyncio.create_task(self._serve_later(exchange, body))
                self._later.add(task)
                task.add_done_callback(self._later.discard)
                return
            if is_question:
                self._lookups.serve(exchange, tenant)
                return
            exchange.headers.clear()  # these are read, and a third of what waits would keep
            limit_bytes = self._payload_limit_bytes
            if len(body) <= limit_bytes:
                self._serve(exchange, headers, body, received_s, tenant)
            else:
                self._refuse(exchange, too_large(limit_bytes, whole=True, name=headers.key))
        except Problem as problem:
            self._refuse(exchange, problem)
        except Exception:  # noqa: BLE001 - see above
            self._internal_error(exchange, None)

    async def _post_request(self, exchange: Exchange, _: Send) -> None:
        """Take `POST /requests` that comes in pieces. Raises Problem."""
        received_s = exchange.begun_s or self._shell.now_s
        tenant = self._tenant(exchange)
        headers = read_headers(exchange.headers)
        timeout_s = received_s + self._deadline_ms(headers) / 1e3 - self._shell.now_s
        try:
            body = await exchange.read_body(self._payload_limit_bytes, timeout_s)
        except Problem as problem:
            problem.id = headers.key
            if problem.reason == "queue_full":  # refused as those that found it full
                self._shell.metrics.home_refused(Refusal.MEMORY_FULL)
            raise
        await self._serve_at_site(exchange, headers, body, received_s, tenant)
        await exchange.answered()

    # --- where the site has other nodes -------------------------------------------------------

    def _let_sibling_in(self, exchange: Exchange, scope: Scope, site: SitePaths) -> bool:
        """Turn the call of a sibling into what its client has asked; returns whether to go on."""
        try:
            if site.is_of_sibling(exchange):
                scope["path"] = exchange.path
            else:
                site.tell_cluster(exchange)
        except Problem as problem:
            self._refuse(exchange, problem)
            return False
        return True

    def _is_for_later(
        self, exchange: Exchange, headers: Headers, body: bytes, site: SitePaths, tenant: str
    ) -> bool:
        """Returns whether a request that came whole needs a task, since others may have to be
        asked."""
        if exchange.method == "GET":
            return not site.is_known(exchange.path.removeprefix(LOOKUP_PREFIX), tenant)
        name = asked_name(headers, body)
        return not site.is_here(exchange, name, tenant)

    async def _serve_later(self, exchange: Exchange, body: bytes) -> None:
        received_s = exchange.begun_s or self._clock()
        try:
            tenant = self._tenant(exchange)
            if exchange.method == "GET":
                await self._look_up(exchange, tenant)
                return
            headers = read_headers(exchange.headers)
            if len(body) <= self._payload_limit_bytes:
                await self._serve_at_site(exchange, headers, body, received_s, tenant)
            else:
                self._refuse(
                    exchange, too_large(self._payload_limit_bytes, whole=True, name=headers.key)
                )
        except Problem as problem:
            self._refuse(exchange, problem)
        except ClientGone:
            return
        except Exception:  # noqa: BLE001 - see above
            self._internal_error(exchange, None)

    async def _serve_at_site(
        self, exchange: Exchange, headers: Headers, body: bytes, received_s: float, tenant: str
    ) -> None:
        """Take the request here, unless it is another node's. Raises Problem."""
        if (site := self._site) is not None:
            name = asked_name(headers, body)
            within_s = max(0.0, received_s + self._deadline_ms(headers) / 1e3 - self._shell.now_s)
            if not site.is_here(exchange, name, tenant) and await site.answer(
                exchange, name, tenant, body, within_s
            ):
                return
        self._serve(exchange, headers, body, received_s, tenant)

    async def _look_up(self, exchange: Exchange, tenant: str) -> None:
        if self._site is None or not await self._site.look_up(exchange, tenant):
            self._lookups.serve(exchange, tenant)

    async def _told_elsewhere(self, exchange: Exchange, scope: Scope, site: SitePaths) -> bool:
        """Returns whether a cold question about a request is settled: another node, or a problem,
        has answered it, or nobody waits. The tenant is the one that the app would take."""
        try:
            for prefix, method in ((LOOKUP_PREFIX, "DELETE"), (EXPLAIN_PREFIX, "GET")):
                if exchange.path.startswith(prefix) and exchange.method == method:
                    return await site.look_up(exchange, tenant_in(scope), prefix)
        except Problem as problem:
            self._refuse(exchange, problem)
            return True
        except ClientGone:
            return True
        except Exception:  # noqa: BLE001 - as above
            self._internal_error(exchange, None)
            return True
        return False

    def _lookup_route(self, scope: Scope) -> tuple[tuple[str, ...], HotPath] | None:
        """Returns the methods and the path of a look-up that does not come directly: in a pipeline,
        or by HEAD. Returns None for any other path."""
        path, method = scope["path"], scope["method"]
        if not path.startswith(LOOKUP_PREFIX) or method == "DELETE":
            return None
        if path == LOOKUP_PREFIX and method not in LOOKUP_METHODS:
            return None
        return (*LOOKUP_METHODS, "DELETE"), self._get_request

    async def _get_request(self, exchange: Exchange, _: Send) -> None:
        await self._look_up(exchange, self._tenant(exchange))
        await exchange.answered()

    async def _serve_session(self, exchange: Exchange, send: Send) -> None:
        token = None if self._doors is None else self._doors.submitter(exchange)
        await self._sessions.serve(exchange, send, token)

    def _tenant(self, exchange: Exchange) -> str:
        """Returns the tenant of a request that was let in."""
        return "" if self._doors is None else self._doors.submitter(exchange).tenant

    def _deadline_ms(self, headers: Headers) -> float:
        given = headers.deadline_ms
        return self._default_deadline_ms if given is None else given

    def _serve(
        self, exchange: Exchange, headers: Headers, body: bytes, received_s: float, tenant: str
    ) -> None:
        """Take the request, or find it under its name. Raises Problem if that is refused."""
        self._counts.received_bytes += len(body)
        try:
            request = read_request(headers, body, tenant)
        except Problem as problem:
            problem.id = problem.id or headers.key
            raise
        unfit = self._problem_with(request.work)
        if unfit is not None:
            raise Problem("invalid", unfit, id=name_of(request.id) or None)
        deadline_s = received_s + self._deadline_ms(headers) / 1e3
        home_requests, preferences = self._home_requests, headers.preferences
        entry = home_requests.find(request.id) if request.keyed else None
        if entry is not None:
            _check_same(entry, request)
            if not entry.may_run_again:
                self._replay(exchange, entry, preferences, deadline_s)
                return
        respond_async = preferences.respond_async
        if tenant or respond_async:
            self._check_may_come(request, tenant, respond_async=respond_async)
        taken = home_requests.take(request, deadline_s, asynchronous=respond_async)
        if not isinstance(taken, IdempotencyRecord):
            raise problem_of(name_of(request.id), taken)
        if respond_async:
            self._wait_or_accept(exchange, taken, preferences, b"")
        elif taken.answer is not None:
            self._answer(exchange, taken, b"", taken.answer)
        else:
            self._waiters.wait(taken.ref, partial(self._answer, exchange, taken, b""))
            if not request.keyed:  # keyed work goes on when its client leaves
                exchange.watch(partial(home_requests.abandon, taken))

    def _check_may_come(self, request: Request, tenant: str, *, respond_async: bool) -> None:
        if respond_async and self._shell.machine.admission.emptying:
            self._shell.metrics.home_refused(Refusal.DRAINING)
            raise no_results(name_of(request.id))
        quotas = self._home_requests.quotas if tenant else None
        excess = None if quotas is None else quotas.ask(tenant, self._shell.now_s)
        if excess is not None:
            self._shell.metrics.home_refused(Refusal.RATE_LIMITED)
            raise rate_limited(name_of(request.id), excess)

    def _replay(
        self,
        exchange: Exchange,
        entry: IdempotencyRecord,
        preferences: Preferences,
        deadline_s: float,
    ) -> None:
        """Answer a request whose name is known: wait for the answer of the run under way, or give
        the answer again."""
        if entry.answer is not None:
            lines = REPLAYED_LINE + waited_line(preferences)
            self._answer(exchange, entry, lines, entry.answer)
        elif preferences.respond_async:
            self._wait_or_accept(exchange, entry, preferences, REPLAYED_LINE)
        else:
            self._join(exchange, entry, deadline_s)

    def _join(self, exchange: Exchange, entry: IdempotencyRecord, deadline_s: float) -> None:
        """Have a client wait for the answer of the run under way, but no longer than its own
        deadline or its stay."""
        on_answer = partial(self._answer, exchange, entry, REPLAYED_LINE)
        waiting = WaitingClient(entry.ref, on_answer, partial(self._too_late, exchange, entry))
        if not waiting.begin(self._shell, exchange, deadline_s):
            detail = "too many wait for the answer to this request"
            raise Problem("queue_full", detail, id=entry.name, retry_after_s=1.0)

    def _too_late(self, exchange: Exchange, entry: IdempotencyRecord) -> None:
        detail = "the first request of this name was still under way at the deadline"
        problem = Problem("deadline_exceeded", detail, id=entry.name, is_keyed=True)
        self._refuse(exchange, problem)

    def _wait_or_accept(
        self, exchange: Exchange, entry: IdempotencyRecord, preferences: Preferences, lines: bytes
    ) -> None:
        """Give an asynchronous request its answer if that comes while the client would wait; else
        202."""
        wait_s, both = preferences.wait_s, b"respond-async, wait=%d"
        if wait_s:
            on_answer = partial(self._answer, exchange, entry, lines + waited_line(preferences))
            on_late = partial(self._answer_accepted, exchange, entry, both % wait_s, lines)
            if entry.answer is not None:
                on_answer(entry.answer)
                return
            waiting = WaitingClient(entry.ref, on_answer, on_late)
            if waiting.begin(self._shell, exchange, self._shell.now_s + wait_s):
                return
        self._answer_accepted(exchange, entry, b"respond-async", lines)

    def _answer(
        self, exchange: Exchange, entry: IdempotencyRecord, lines: bytes, told: Told
    ) -> None:
        """Give the answer; None says that the node has ended before. The machine's shell calls
        this, so that a bug in here must not bring it down."""
        name = entry.name
        try:
            if isinstance(told, Answer):
                if not entry.fetched:
                    self._home_requests.fetch(entry)
                if lines and lines.startswith(REPLAYED_LINE) and is_logged():
                    status = 200 if told.outcome is DONE else status_of(told)[0]
                    log_request(entry, told, status, replayed=True)
                if told.outcome is not DONE:
                    problem = with_lines(_of_entry(entry, problem_of(name, told)), lines)
                    self._refuse(exchange, problem, was_accepted=True)
                    return
                name_line = b"spillover-request-id: %b\r\n" % name.encode()
                if lines:  # one of several clients that are given it
                    body = self._encoded.body(told, lambda: encode(answer_body(name, told)))
                else:
                    body = encode(answer_body(name, told))
                counts = self._counts
                counts.statuses[0 if exchange.disconnected else 2] += 1
                counts.sent_bytes += len(body)
                exchange.answer_raw(200, JSON_LINE + name_line + lines, body)
            elif told is None:
                has_not_run = self._shell.machine.surely_never_ran(entry.ref)
                problem = node_ended(name, has_not_run=has_not_run)
                self._refuse(exchange, _of_entry(entry, problem))
            else:
                self._refuse(exchange, problem_of(name, told))
        except Exception:  # noqa: BLE001 - see above
            self._internal_error(exchange, entry.id)

    def _answer_accepted(
        self, exchange: Exchange, entry: IdempotencyRecord, applied: bytes, lines: bytes
    ) -> None:
        """Answer with 202, and where to ask, once the request is surely accepted. Timers call this,
        too."""
        if self._home_requests.is_unconfirmed(entry):
            give = partial(self._answer_accepted, exchange, entry, applied, lines)
            self._home_requests.when_accepted(entry, give)
            self._waiters.wait(entry.ref, partial(self._not_accepted, exchange, entry))
            return
        where, name = location(entry.name).encode(), entry.name.encode()
        named = b"location: %b\r\nspillover-request-id: %b\r\n" % (where, name)
        lines = JSON_LINE + b"preference-applied: %b\r\n" % applied + named + lines
        self._counts.statuses[0 if exchange.disconnected else 2] += 1
        exchange.answer_raw(202, lines, encode_view(self._shell, entry))

    def _not_accepted(self, exchange: Exchange, entry: IdempotencyRecord, told: Told) -> None:
        """Answer a request that is refused after all, or whose node ends before it is accepted."""
        if not isinstance(told, Answer):
            self._answer(exchange, entry, b"", told)

    def _internal_error(self, exchange: Exchange, request_id: str | None) -> None:
        if exchange.path == REQUESTS:
            self._counts.statuses[5] += 1
        answer_internal_error(self._shell, exchange, request_id)


def _check_same(entry: IdempotencyRecord, request: Request) -> None:
    """Raise Problem where a name was first given to another request: it stays with that one."""
    if entry.fingerprint != fingerprint(request):
        detail = "this name was given to another request before"
        raise Problem("conflict", detail, id=entry.name)


def _of_entry(entry: IdempotencyRecord, problem: Problem) -> Problem:
    """Returns the problem, which now says whether the request is keyed."""
    problem.is_keyed = entry.fingerprint is not None
    return problem


def _check_method(exchange: Exchange, methods: tuple[str, ...]) -> None:
    if exchange.method not in methods:
        detail = f"{exchange.method} {exchange.path}: expected {' or '.join(methods)}"
        allow = ", ".join(methods).encode()
        raise Problem("method_not_allowed", detail, headers=[(b"allow", allow)])
