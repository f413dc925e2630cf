"""The paths that carry the traffic, dispatched in front of FastAPI: `POST /requests` and what
nodes say to each other. They do their own error handling; everything else goes on to the app.

Measured reason: design, decision 1. What the answers mean is in `intake`, what neighbors say in
`peer_paths`, what happens to a request in the machine.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from typing import Any, TypeAlias

from spillover.apps.console.console import EVENTS_PATH, TAKE_OVER
from spillover.apps.node.direct_exchange import DirectExchange
from spillover.apps.node.direct_path import DIRECT_PATH, EXCHANGE
from spillover.apps.node.exchange import ClientGone, Exchange, ReplyTo, too_large
from spillover.apps.node.intake import Headers, answer_body, problem_of, read_request
from spillover.apps.node.pages import Pages
from spillover.apps.node.peer_paths import PeerPaths
from spillover.apps.node.problems import Problem
from spillover.apps.node.request_view import encode_view, location, node_ended
from spillover.core.names import Entry
from spillover.live import wire
from spillover.live.logs import OncePerPeriod
from spillover.live.node_shell import NodeShell
from spillover.live.reception import fingerprint
from spillover.model.request import Answer, Outcome, Request

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
AsgiApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

HotPath: TypeAlias = Callable[[Exchange, Send], Awaitable[None]]

JSON_LINE = b"content-type: application/json\r\n"
APPLIED_LINE = b"preference-applied: respond-async\r\n"
REPLAYED_LINE = b"spillover-replayed: true\r\n"

_log = logging.getLogger(__name__)
_log.addFilter(OncePerPeriod())


class HotPaths:
    """An ASGI app: the hot paths of a node, and behind them `app` for the rest.

    Most requests never see ASGI: the protocol hands those of clients that came whole to `direct`,
    which answers them when their time comes, without a task that waits.
    """

    def __init__(self, app: AsgiApp, shell: NodeShell, pages: Pages) -> None:
        self._app = app
        self._pages = pages
        self._shell = shell
        self._reception = shell.reception
        self.writes = shell.writes
        self._default_deadline_ms = shell.topology.default_deadline_ms
        self._payload_limit_bytes = shell.topology.payload_limit_bytes
        peers = PeerPaths(shell)
        self._routes: dict[str, tuple[str, HotPath]] = {
            DIRECT_PATH: ("POST", self._post_request),
            wire.FORWARD_PATH: ("POST", peers.forward),
            wire.CANCEL_PATH: ("POST", peers.cancel),
            wire.REPORTS_PATH: ("GET", peers.reports),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Taken out: left there, each request would be a reference cycle.
        exchange: Exchange = scope.pop(EXCHANGE)
        if exchange.is_of_page:
            admitted = self._admit(exchange, send)
            if admitted is None:
                return
            send = admitted
        route = self._routes.get(scope["path"])
        if route is None:
            if scope["path"] == EVENTS_PATH:
                scope[TAKE_OVER] = lambda: exchange.break_off
            await self._app(scope, receive, send)
            return
        method, answer = route
        try:
            _check_method(exchange, method)
            await answer(exchange, send)
        except Problem as problem:
            exchange.refuse(problem)
        except ClientGone:
            return
        except Exception:  # noqa: BLE001 - nothing behind this turns a bug into an answer
            self._internal_error(exchange, None)

    def _admit(self, exchange: Exchange, send: Send) -> Send | None:
        """See `Pages.admit`."""
        try:
            return self._pages.admit(exchange, send)
        except Problem as problem:
            exchange.refuse(problem)
        except Exception:  # noqa: BLE001 - as above
            self._internal_error(exchange, None)
        return None

    def direct(self, exchange: DirectExchange) -> None:
        """`POST /requests` that came whole: taken now, and answered now or later. Of no page."""
        received_s = exchange.begun_s or self._shell.now_s
        try:
            headers = self._read_headers(exchange)
            body = exchange.take_body(self._payload_limit_bytes)
            if body is not None:
                self._serve(exchange, headers, body, received_s)
            else:
                limit_bytes = self._payload_limit_bytes
                exchange.refuse(too_large(limit_bytes, whole=True, name=headers.key))
        except Problem as problem:
            exchange.refuse(problem)
        except Exception:  # noqa: BLE001 - see above
            self._internal_error(exchange, None)

    async def _post_request(self, exchange: Exchange, _: Send) -> None:
        """The same, of a request that comes in pieces."""
        received_s = exchange.begun_s or self._shell.now_s
        headers = self._read_headers(exchange)
        timeout_s = received_s + self._deadline_ms(headers) / 1e3 - self._shell.now_s
        try:
            body = await exchange.read_body(headers.framing, self._payload_limit_bytes, timeout_s)
        except Problem as problem:
            problem.id = headers.key
            raise
        self._serve(exchange, headers, body, received_s)
        await exchange.answered()

    def _read_headers(self, exchange: ReplyTo) -> Headers:
        headers = Headers()
        try:
            headers.read(exchange.headers)
        except Problem as problem:
            problem.id = headers.key
            raise
        return headers

    def _deadline_ms(self, headers: Headers) -> float:
        given = headers.deadline_ms
        return self._default_deadline_ms if given is None else given

    def _serve(self, exchange: ReplyTo, headers: Headers, body: bytes, received_s: float) -> None:
        """Take the request, or find it under its name. Raises Problem where that is refused."""
        try:
            request = read_request(headers, body)
            self._check_fit(request)
        except Problem as problem:
            problem.id = problem.id or headers.key
            raise
        deadline_s = received_s + self._deadline_ms(headers) / 1e3
        entry = self._reception.find(request.id) if request.keyed else None
        if entry is not None:
            self._replay(exchange, entry, request, headers, deadline_s)
            return
        reception = self._reception
        taken = reception.take(request, deadline_s, asynchronous=headers.asynchronous)
        if not isinstance(taken, Entry):
            raise problem_of(request.id, taken)
        if headers.asynchronous:
            self._answer_accepted(exchange, taken)
        elif taken.answer is not None:
            self._answer(exchange, taken, b"", taken.answer)
        else:
            reception.wait(taken, partial(self._answer, exchange, taken, b""))
            if not request.keyed:  # keyed work goes on when its client leaves
                exchange.watch(partial(reception.abandon, taken))

    def _check_fit(self, request: Request) -> None:
        unfit = self._shell.workers.problem_with(request.work)
        if unfit is not None:
            raise Problem("invalid", unfit, id=request.id or None)

    def _replay(
        self,
        exchange: ReplyTo,
        entry: Entry,
        request: Request,
        headers: Headers,
        deadline_s: float,
    ) -> None:
        """A name that is known: wait for the first answer, or give it again."""
        if entry.fingerprint != fingerprint(request):
            detail = "this name was given to another request before"
            raise Problem("conflict", detail, id=entry.name)
        if entry.answer is not None:
            self._answer(exchange, entry, REPLAYED_LINE, entry.answer)
        elif headers.asynchronous:
            self._answer_accepted(exchange, entry, REPLAYED_LINE)
        else:
            Joined(self._shell, exchange, entry, deadline_s, self._answer)

    def _answer(self, exchange: ReplyTo, entry: Entry, lines: bytes, answer: Answer | None) -> None:
        """Give the answer; without one the node has ended before. Called by the machine's shell,
        which a bug in here must not bring down."""
        try:
            self._give(exchange, entry, lines, answer)
        except Exception:  # noqa: BLE001 - see above
            self._internal_error(exchange, entry.name)

    def _give(self, exchange: ReplyTo, entry: Entry, lines: bytes, answer: Answer | None) -> None:
        if answer is None:
            has_not_run = self._shell.surely_never_ran(entry.ref)
            exchange.refuse(node_ended(entry.name, has_not_run=has_not_run))
            return
        if not entry.fetched:
            self._reception.fetch(entry)
        if answer.outcome is Outcome.DONE:
            name_line = b"spillover-request-id: %b\r\n" % entry.name.encode()
            body = answer_body(entry.name, answer)
            exchange.answer_raw(200, JSON_LINE + name_line + lines, body)
            return
        problem = problem_of(entry.name, answer)
        if lines:
            problem.headers.append((b"spillover-replayed", b"true"))
        exchange.refuse(problem)

    def _answer_accepted(self, exchange: ReplyTo, entry: Entry, lines: bytes = b"") -> None:
        """202, and where to ask."""
        where, name = location(entry.name).encode(), entry.name.encode()
        named = b"location: %b\r\nspillover-request-id: %b\r\n" % (where, name)
        lines = JSON_LINE + APPLIED_LINE + named + lines
        exchange.answer_raw(202, lines, encode_view(self._shell, entry))

    def _internal_error(self, exchange: ReplyTo, name: str | None) -> None:
        """Tell that there is a bug, with the story of the request if it was known by a name."""
        story = [] if name is None else self._shell.story(name)
        extra = {"request_id": name}
        _log.exception(
            "internal error in %s %s; story: %s",
            *(exchange.method, exchange.path, story),
            extra=extra,
        )
        internal = Problem("internal", "internal error; the node's log has the details", id=name)
        if story:
            internal.more["story"] = story
        exchange.refuse(internal)


class Joined:
    """A client that asks for what is under way already: it waits for the first one's answer, but
    no longer than its own deadline or than it stays."""

    __slots__ = ("_answer", "_entry", "_exchange", "_shell", "_timer")

    def __init__(
        self,
        shell: NodeShell,
        exchange: ReplyTo,
        entry: Entry,
        deadline_s: float,
        answer: Callable[[ReplyTo, Entry, bytes, Answer | None], None],
    ) -> None:
        if not shell.reception.wait(entry, self):
            detail = "too many wait for the answer to this request"
            raise Problem("queue_full", detail, id=entry.name, retry_after_s=1.0)
        self._shell = shell
        self._exchange = exchange
        self._entry = entry
        self._answer = answer
        self._timer = shell.timers.at(deadline_s, self._too_late)
        exchange.watch(self._leave)

    def __call__(self, answer: Answer | None) -> None:
        self._timer.cancel()
        self._answer(self._exchange, self._entry, REPLAYED_LINE, answer)

    def _leave(self) -> None:
        self._timer.cancel()
        self._shell.reception.leave(self._entry, self)

    def _too_late(self, _: float) -> None:
        self._shell.reception.leave(self._entry, self)
        detail = "the first request of this name was still under way at the deadline"
        self._exchange.refuse(Problem("deadline_exceeded", detail, id=self._entry.name))


def _check_method(exchange: Exchange, method: str) -> None:
    if exchange.method != method:
        detail = f"{exchange.method} {exchange.path}: expected {method}"
        raise Problem("method_not_allowed", detail, headers=[(b"allow", method.encode())])
