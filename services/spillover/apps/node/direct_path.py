"""Which requests need no task, and how one is served without: `POST /requests` whose body comes in
time, and `GET /requests/{id}`, which may wait for long. What is bounded of every connection is in
`http_protocol`, which builds on this.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from spillover.apps.node.direct_exchange import LOOKUP_PREFIX, DirectExchange, DirectLookup
from spillover.apps.node.exchange import Exchange
from spillover.apps.node.unread import UnreadAnswers
from spillover.live.engine.write_batch import WriteBatch

EXCHANGE = "spillover.exchange"
"""Where a scope carries the Exchange of its request."""

DIRECT_PATH = DirectExchange.path
"""What is posted to it is given to the app's `direct`, if it has one, where it needs no waiting
for; so is what is asked for by GET behind LOOKUP_PREFIX."""

DIRECT_BODY_BYTES = 262_144
"""A body for the direct path that is longer and has not come whole is read by the app."""

DIRECT_WITHIN_S = 0.02
"""So is one that takes longer. What comes in a few segments takes microseconds."""

_DIRECT_URL = DIRECT_PATH.encode()
_LOOKUP_URL = LOOKUP_PREFIX.encode()


class DirectPath(UnreadAnswers):
    """uvicorn's protocol, with a way around its tasks. Whoever answers needs what is declared here
    and defined in `http_protocol`."""

    writes: WriteBatch
    on_gone: Callable[[], None] | None
    body_timeout_s: ClassVar[float]

    cycle: RequestResponseCycle | DirectExchange | None  # type: ignore[assignment]
    """None before the first head."""

    peer: Any = None
    """Who is at the other end, once that is settled: of `live.overflow.identity`, for neighbors."""

    is_of_page = False
    """Whether the head that is read tells that a browser sends it."""

    def __init__(self, *args: Any, **fields: Any) -> None:
        super().__init__(*args, **fields)
        can_go_on = hasattr(HttpToolsProtocol, "_start_asgi_task")  # of uvicorn's inner life
        self._direct_app = self.app if can_go_on and hasattr(self.app, "direct") else None
        self._put_off: DirectExchange | None = None
        """A request whose body is collected before anybody hears of the request."""
        self._put_off_timer: asyncio.TimerHandle | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._put_off = None
        if self._put_off_timer is not None:
            self._put_off_timer.cancel()
        super().connection_lost(exc)

    def _watch_body(self) -> None:
        """Bound the time for a body that is still to come."""
        raise NotImplementedError

    def _puts_off(self) -> bool:
        """At the end of a head: whether the request may go without a task. It then waits until the
        data at hand is read; if it has come whole by then, it is served."""
        cycle, parser, app = self.cycle, self.parser, self._direct_app
        is_post = self.url == _DIRECT_URL
        if (
            not (is_post or self.url.startswith(_LOOKUP_URL))
            or app is None
            or self.expect_100_continue
            or self.is_of_page  # who may ask is checked behind `HotPaths.__call__`
            or not (cycle is None or cycle.response_complete)  # in a pipeline
            or parser.get_method() != (b"POST" if is_post else b"GET")
        ):
            return False
        is_current = parser.get_http_version() == "1.1"
        keep_alive = is_current and parser.should_keep_alive()
        if is_post:
            if not is_current:
                return False
            direct = DirectExchange(self, app, self.headers, keep_alive=keep_alive)
        else:
            direct = DirectLookup(self, app, self.headers, keep_alive=keep_alive, url=self.url)
        self.headers = []  # trailers are no headers
        self.cycle = self._put_off = direct
        return True

    def _make_scope(self, headers: list[tuple[bytes, bytes]]) -> Any:
        """What uvicorn makes of every request before it knows what it is."""
        return {
            "type": "http",
            "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
            "http_version": "1.1",
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "root_path": self.root_path,
            "headers": headers,
            "state": self.app_state.copy(),
        }

    def _try_put_off(self, direct: DirectExchange) -> None:
        """Serve it directly if all of it is here, let it wait a little, or give it a task."""
        if self.transport.is_closing():  # for what came behind it
            direct.disconnected = True
            self._put_off = None
        elif not direct.is_open:
            self._give_task(direct)
        elif not direct.more_body:
            self._put_off = None
            direct.app.direct(direct)
        elif direct.size_bytes > DIRECT_BODY_BYTES:
            self._give_task(direct)
        elif direct.begun_s is None:
            direct.begun_s = self.loop.time()
            if self._put_off_timer is None:
                self._set_put_off_timer(DIRECT_WITHIN_S)

    def _set_put_off_timer(self, delay_s: float) -> None:
        self._put_off_timer = self.loop.call_later(delay_s, self._on_put_off_timeout)

    def _on_put_off_timeout(self) -> None:
        """It was set for a request that may have been served since."""
        self._put_off_timer = None
        direct = self._put_off
        if direct is None:
            return
        rest_s = (direct.begun_s or 0.0) + DIRECT_WITHIN_S - self.loop.time()
        if rest_s > 0:
            self._set_put_off_timer(rest_s)
        else:
            self._give_task(direct)
            self._watch_body()

    def _give_task(self, direct: DirectExchange) -> None:
        """Go on with it as uvicorn does with all."""
        self._put_off = None
        scope = self._make_scope(direct.headers)
        scope |= {"method": direct.method, "path": direct.path, "raw_path": direct.raw_path}
        scope["query_string"] = direct.query
        cycle = RequestResponseCycle(
            scope=scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=False,
            keep_alive=direct.keep_alive,
            on_response=self.on_response_complete,
        )
        cycle.body += direct.body()
        cycle.more_body = direct.more_body
        cycle.message_event.set()
        exchange = scope[EXCHANGE] = Exchange(self, cycle)
        exchange.begun_s = direct.begun_s
        if self.cycle is direct:  # else another one's head has come behind it
            self.cycle = cycle
        super()._start_asgi_task(cycle, direct.app)
