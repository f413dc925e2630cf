"""The ASGI app of a producer: the calls that carry objects in front, FastAPI with the cold ones
behind.
"""

from __future__ import annotations

import logging
import re
import sys
from contextlib import suppress

from fastapi import FastAPI, Request
from fastapi.responses import Response, StreamingResponse

from spillover.apps.http.access import Access
from spillover.apps.http.asgi import Receive, Scope, Send
from spillover.apps.http.audit import Audit
from spillover.apps.http.cold import complete, new_app, without_pydantic_1
from spillover.apps.http.doors import Doors
from spillover.apps.http.exchange import EXCHANGE, ClientGone, Exchange
from spillover.apps.http.openapi import Described, describe, problems
from spillover.apps.http.problems import BUG, Problem
from spillover.apps.http.service import Direct, DirectPost, Edge
from spillover.apps.http.sites import WebSite
from spillover.apps.queue import views
from spillover.apps.queue.calls import NOBODY, Call, QueueCalls, store_damaged
from spillover.apps.queue.console_view import queue_console
from spillover.apps.queue.doors import TABLE
from spillover.apps.queue.openapi_told import tell_calls
from spillover.core.queue import events as ev
from spillover.live.process.logs import Message, OncePerPeriod
from spillover.live.queue.bodies import Damaged
from spillover.live.queue.shell import QueueShell

SITE = WebSite()
"""A producer has no name in its configuration."""

_log = logging.getLogger(__name__)
_log.addFilter(OncePerPeriod())

_OF_GRANT = re.compile(r"/(objects|grants)/([^/]{1,200})(?:/(ack|nack|extend))?")


class QueueApp:
    """One producer's service. With `access` it is for who has API tokens."""

    def __init__(
        self, shell: QueueShell, *, object_limit_bytes: int, access: Access | None = None
    ) -> None:
        self._doors: Doors | None = None
        if access is not None:
            self._doors = Doors(access, Audit(lambda: shell.now_s), TABLE)
        calls = self._calls = QueueCalls(shell, object_limit_bytes, self._doors)
        self.edge = Edge(Direct([DirectPost(path, self.direct) for path in calls.peers_messages]))
        self._by_path: dict[str, dict[str, Call]] = {
            "/objects": {"POST": calls.offer},
            "/take": {"POST": calls.take},
            **{path: {"POST": calls.of_peer} for path in calls.peers_messages},
        }
        self._of_grant: dict[tuple[str, str | None], dict[str, Call]] = {
            ("objects", None): {"GET": calls.fetch},
            ("grants", "ack"): {"POST": calls.acknowledge},
            ("grants", "nack"): {"POST": calls.give_back},
            ("grants", "extend"): {"POST": calls.extend},
        }
        about = views.About(shell.public_urls[shell.settings.id], object_limit_bytes)
        self.cold = create_cold_app(shell, about, has_tokens=access is not None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange: Exchange = scope[EXCHANGE]
        if self._doors is not None:
            try:
                send = self._doors.let_in(exchange, scope, send)
            except Problem as problem:
                exchange.refuse(problem)
                return
        by_method, grant = self._find(scope["path"])
        if not by_method:
            await self.cold(scope, receive, send)
            return
        if exchange.is_of_page:
            headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in exchange.headers}
            if (reason := SITE.why_not_use(exchange.method, headers)) is not None:
                exchange.refuse(Problem("another_site", reason))
                return
        call = by_method.get(exchange.method)
        try:
            if call is None:
                raise _wrong_method(exchange, by_method)
            await call(exchange, send, grant)
        except Problem as problem:
            # Where the connection has said already what was wrong with the body, that was all.
            if exchange.response_started and not exchange.disconnected:
                raise
            exchange.refuse(problem)
        except ClientGone:
            with suppress(Exception):
                exchange.break_off()

    def direct(self, exchange: Exchange, body: bytes) -> None:
        """What a peer says, that came whole: answered now, without a task. Of no page."""
        try:
            if self._doors is not None:
                self._doors.enter(exchange)
            self._calls.of_peer_whole(exchange, body)
        except Problem as problem:
            exchange.refuse(problem)
        except ClientGone:
            exchange.break_off()
        except Exception:  # noqa: BLE001 - nothing behind this turns a bug into an answer
            told = {"method": exchange.method, "path": exchange.path}
            _log.exception(Message("internal error", **told))
            exchange.refuse(Problem("internal", BUG))

    def _find(self, path: str) -> tuple[dict[str, Call], str]:
        """The calls of a path, by method, and the grant that it names; none of a cold path."""
        if (calls := self._by_path.get(path)) is not None:
            return calls, ""
        if (found := _OF_GRANT.fullmatch(path)) is not None:
            kind, grant, what = found.groups()
            return self._of_grant.get((kind, what), {}), grant
        return {}, ""


def _wrong_method(exchange: Exchange, by_method: dict[str, Call]) -> Problem:
    allowed = ", ".join(by_method)
    detail = f"{exchange.method} {exchange.path}: Method Not Allowed, expected {allowed}"
    return Problem("method_not_allowed", detail, headers=[(b"allow", allowed.encode())])


@without_pydantic_1()
def create_cold_app(shell: QueueShell, about: views.About, *, has_tokens: bool = False) -> FastAPI:
    """Returns everything that carries no object."""
    app = new_app(f"Spillover queue producer {shell.settings.id}", shell.metrics.registry)

    @app.get("/state")
    async def state() -> views.QueueState:
        """Returns the producer as it is now."""
        return views.queue_state(shell, about)

    @app.get("/readyz", responses=problems("draining"))
    async def readyz() -> dict[str, str]:
        """200 while objects are taken in."""
        if shell.machine.draining:
            raise Problem("draining", "the producer is draining")
        return {"status": "ready"}

    @app.get("/explain/{name}", responses=problems("not_found"))
    async def explain(name: str) -> views.Explanation:
        """Returns what happened here to an object or to a probe, as long as it is remembered."""
        found = views.explanation(shell, name)
        if found is None:
            expected = "expected the id of an object, or of a probe, that was here lately"
            raise Problem("not_found", f"{expected}, got {name[:200]!r}")
        return found

    _add_admin_routes(app, shell, about)
    _add_dead_routes(app, shell, about)
    _add_bulk_route(app, shell)
    console = queue_console(shell, about, has_tokens=has_tokens)
    complete(app, console, "/objects", "/take", "/grants/{grant}/ack")

    def tell_more(schema: Described) -> None:
        tell_calls(schema)
        if has_tokens:
            TABLE.tell(schema)

    describe(app, tell_more)
    return app


def _add_admin_routes(app: FastAPI, shell: QueueShell, about: views.About) -> None:
    def operate(request: Request) -> None:
        reason = SITE.why_not_operate(request.headers)
        if reason is not None:
            raise Problem("another_site", reason)

    @app.post("/admin/drain", status_code=202, responses=problems("another_site"))
    async def drain(request: Request) -> views.QueueState:
        """Take no object any more, and give away those that are here."""
        operate(request)
        shell.feed(ev.Drain())
        return views.queue_state(shell, about)

    @app.post("/admin/resume", responses=problems("another_site"))
    async def resume(request: Request) -> views.QueueState:
        """Take objects again."""
        operate(request)
        shell.feed(ev.Resume())
        return views.queue_state(shell, about)


def _add_dead_routes(app: FastAPI, shell: QueueShell, about: views.About) -> None:
    @app.get("/dead")
    async def dead() -> list[views.DeadObject]:
        """Returns the objects that were granted too often in vain."""
        return views.dead_objects(shell)

    @app.get(
        "/dead/{number}", response_class=Response, responses=problems("not_found", "store_damaged")
    )
    async def read_dead(number: int) -> StreamingResponse:
        """Returns one of them; it stays where it is."""
        if number not in shell.machine.objects.dead:
            raise Problem("not_found", f"expected the number of a dead object, got {number}")
        body = shell.bodies[number]
        try:
            shell.bodies.check(number)
        except Damaged as error:
            raise store_damaged(error) from error
        headers = {"content-length": str(body.size_bytes)}
        pieces = shell.bodies.chunks(number)
        return StreamingResponse(pieces, media_type=body.content_type, headers=headers)

    async def operate(request: Request, number: int, make: type[ev.PutBack | ev.Discard]) -> None:
        if (reason := SITE.why_not_operate(request.headers)) is not None:
            raise Problem("another_site", reason)
        answer = await shell.ask(lambda ref: make(ref, number))
        if not answer.known:
            raise Problem("not_found", f"expected the number of a dead object, got {number}")

    @app.post("/dead/{number}/put-back", responses=problems("not_found", "another_site"))
    async def put_back(number: int, request: Request) -> views.QueueState:
        """Put one of them back into its buffer, as if it had never been granted."""
        await operate(request, number, ev.PutBack)
        return views.queue_state(shell, about)

    @app.delete("/dead/{number}", responses=problems("not_found", "another_site"))
    async def discard(number: int, request: Request) -> views.QueueState:
        """Discard one of them, for good."""
        await operate(request, number, ev.Discard)
        await shell.bodies.settled()
        return views.queue_state(shell, about)


def _add_bulk_route(app: FastAPI, shell: QueueShell) -> None:
    @app.post("/dead/put-back", responses=problems("another_site"))
    async def put_all_back(
        request: Request,
        content_type: str | None = None,
        first: int = 0,
        last: int = sys.maxsize,
    ) -> views.DeadPutBack:
        """Put all of them back, or those of this content type and with numbers from `first` to
        `last`: what was wrong with their handling has been mended."""
        if (reason := SITE.why_not_operate(request.headers)) is not None:
            raise Problem("another_site", reason)
        found = views.dead_numbers(shell, content_type, first, last)
        for number in found:
            shell.feed(ev.PutBack(NOBODY, number))
        return views.DeadPutBack(put_back=len(found), dead=len(shell.machine.objects.dead))
