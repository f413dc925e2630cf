"""A lean HTTP/1.1 client for one base URL: pooled connections, and a request sent again only where
a connection ended before any of its answer had come.

For the hot path between nodes and for the load generator. Which connections are used again is in
`kept`. What goes on inside a connection is in `connection`, how a request begins in
`head`, what TLS asks for in `securing`; what requests mean is none of its business.
"""

from __future__ import annotations

import asyncio
import math
import ssl
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial

from spillover.live.engine.moving import Moving
from spillover.live.engine.write_batch import WriteBatch
from spillover.live.http1.awaited import Awaited, while_heard
from spillover.live.http1.base_url import BaseUrl
from spillover.live.http1.connection import Connection, ConnectionOwner
from spillover.live.http1.kept import Kept
from spillover.live.http1.lines import UNPACED, Pace, PacedLines
from spillover.live.http1.opening import Opening
from spillover.live.http1.outgoing import (
    Again,
    OnEnd,
    OnHead,
    OnSwitch,
    OutgoingExchange,
    OutgoingRequest,
    Parts,
    Response,
    SwitchingRequest,
)
from spillover.live.http1.securing import Retired, Securing
from spillover.live.http1.trusted import TrustedCas
from spillover.live.tls.certified import PeerCertificate
from spillover.model.errors import InputError, NotDelivered, OutcomeUnknown
from spillover.policy.reuse import IDLE_S_MAX, KEEPING, Keeping

__all__ = ["HttpClient", "Response"]

WARM_AT_ONCE = 64
"""Connections that `warm` opens at the same time, below the usual backlog of a listening socket."""

AGAIN_S = 0.05
"""The pause until a request is sent again that was lost on a new connection: its server may be
about to end, and takes none soon."""


class HttpClient:
    """Connections to one server, reused last in, first out, each carrying one request at a time.

    A request takes an idle connection, or opens one; beyond `connections_max` open ones it fails
    at once, nothing waits for a free one. A connection idle for `idle_s_max` is closed, or sooner
    where the server closes sooner; how else it is kept is told by `keeping`.

    A connection that ends before any of an answer has come ends its request with NotDelivered if
    the server surely has not read it, else with OutcomeUnknown, unless it may be sent `again` on a
    new one. For that what was sent is held until the answer comes.

    `connect_timeout_s` leaves out what the loop is late by itself. `body_limit_bytes` holds for the
    body of each answer, but not for streams. Given `excerpt_bytes`, an answer that is not 2xx ends
    with so much of its body.

    `user_timeout_s` is how long the other end may be gone without a word before the connection is
    given up (see `keepalive`). Given `writes`, requests leave
    together at the end of the loop's turn. Given `moving`, answers count there while they come.
    `headers` go with each request, and `host` in place of the url's. `make_connection` makes
    connections of another kind, for exchanges that are given to `dispatch`.

    With `https://` there are handshakes by `tls` (None: whom the system trusts), in which the other
    end has to prove that it is `server_name` (None: the url's host); a few at once, others wait
    their turn, and the time to connect is longer by one. With `first` a new connection counts only
    once that path was asked for on it and answered, however: who does not believe this side's
    certificate says so only after the handshake, and a request would be lost to that.
    `on_tls_failure` hears why a handshake failed.

    A client belongs to the event loop that first uses it. Raises InputError for a base URL that
    is not `http://HOST[:PORT][/PREFIX]` or the same with `https`, and for `tls` without that.
    """

    def __init__(
        self,
        base_url: str,
        *,
        headers: Sequence[tuple[bytes, bytes]] = (),
        host: str | None = None,
        connections_max: int = 20_000,
        idle_s_max: float = IDLE_S_MAX,
        keeping: Keeping = KEEPING,
        again: Again = Again.HARMLESS,
        connect_timeout_s: float = 1.0,
        body_limit_bytes: int = 64 * 1024 * 1024,
        excerpt_bytes: int | None = None,
        user_timeout_s: float | None = None,
        writes: WriteBatch | None = None,
        moving: Moving | None = None,
        tls: ssl.SSLContext | TrustedCas | None = None,
        server_name: str | None = None,
        first: str | None = None,
        on_tls_failure: Callable[[str], None] | None = None,
        make_connection: Callable[[ConnectionOwner], Connection] | None = None,
    ) -> None:
        self._server = BaseUrl(base_url, headers, host)
        if tls is not None and not self._server.is_secure:
            raise InputError("base URL", "", f"expected https://, got {base_url!r}")
        self._securing: Securing | None = None
        if self._server.is_secure:
            name = server_name or self._server.host
            self._securing = Securing(tls, name, first, on_tls_failure)
        self.connections_max = connections_max
        """Open at the same time; those that are open stay."""
        self.opened_s = -math.inf
        """When a connection was last opened that has not been lost without an answer since."""
        self._kept = Kept(idle_s_max, keeping)
        self.released = self._kept.released
        self._again = again
        self._body_limit_bytes = body_limit_bytes
        self._excerpt_bytes = excerpt_bytes
        make = make_connection or (lambda pool: Connection(pool, writes, moving))
        told = make, connect_timeout_s, user_timeout_s, self._securing
        self._opening = Opening(self._server, *told)
        self._open: set[Connection] = set()
        self._closing: set[Connection] = set()
        self._connecting: set[asyncio.Task[Connection]] = set()
        self._ended = asyncio.Event()  # an attempt to connect, or a connection
        self._closed = False

    def __repr__(self) -> str:
        return (
            f"<HttpClient {self._server.url} idle={self.idle} busy={self.busy}"
            f" connecting={len(self._connecting)}{' closed' if self._closed else ''}>"
        )

    @property
    def idle(self) -> int:
        """Open connections that carry no request."""
        return len(self._kept)

    @property
    def busy(self) -> int:
        """Open connections with a request or a stream under way."""
        return len(self._open) - self.idle

    @property
    def is_unused(self) -> bool:
        """Returns whether nothing is under way."""
        return not (self.busy or self._connecting)

    def request(
        self,
        method: str,
        path: str,
        *,
        headers: Sequence[tuple[bytes, bytes]] = (),
        body: bytes | Parts = b"",
        timeout_s: float | None,
        keyed: bool = False,
    ) -> asyncio.Future[Response]:
        """Send a request, now if a connection is idle, and return the future of its answer. The
        body may be given in parts that follow each other.

        `timeout_s` runs from this call to the last byte of the answer; None is no limit.
        Cancelling the future closes the connection. Any status is an answer, not an error.

        The future raises NotDelivered if surely nothing was sent (refused, no connection in
        time, connection limit, client closed) and OutcomeUnknown if anything was and no complete
        valid answer came. Raises ValueError for a method, path or header that cannot be sent.
        """
        answer = Awaited(loop=asyncio.get_running_loop())
        answer.exchange = self.send(
            method,
            path,
            answer.settle,
            headers=headers,
            body=body,
            timeout_s=timeout_s,
            keyed=keyed,
        )
        return answer

    def send(
        self,
        method: str,
        path: str,
        on_end: OnEnd,
        *,
        headers: Sequence[tuple[bytes, bytes]] = (),
        body: bytes | Parts = b"",
        timeout_s: float | None,
        on_head: OnHead | None = None,
        keyed: bool = False,
    ) -> OutgoingRequest:
        """Send a request as `request` does, but call `on_end` with what the future would give or
        raise: at once when it is known, a turn of the loop and some microseconds before a future
        tells. `on_head` may have the body given piece by piece."""
        parts = body if isinstance(body, tuple) else (body,)
        head = self._server.head(method, path, headers, sum(map(len, parts)))
        exchange = OutgoingRequest(
            method, self._server.url + path, on_end, self._body_limit_bytes,
            excerpt_bytes=self._excerpt_bytes, on_head=on_head, is_keyed=keyed,
        )  # fmt: skip
        if timeout_s is not None and timeout_s <= 0:
            exchange.break_off("no time was left to send it")
            return exchange
        self.dispatch(exchange, head, parts)
        if timeout_s is not None:
            exchange.expire_after(timeout_s)
        return exchange

    def switch(
        self, path: str, protocol: bytes, on_switch: OnSwitch, on_end: OnEnd, *, timeout_s: float
    ) -> SwitchingRequest:
        """Ask for a connection that becomes this protocol's. `on_switch` is given it, within this
        time; `on_end` hears of its end, or of another answer: also of 101 for another protocol."""
        head = self._server.head("GET", path, (), 0)[:-2]
        exchange = SwitchingRequest("GET", self._server.url + path, on_end, self._body_limit_bytes)
        exchange.protocol, exchange.on_switch = protocol, on_switch
        asked = b"%bConnection: upgrade\r\nUpgrade: %b\r\n\r\n" % (head, protocol)
        self.dispatch(exchange, asked, (b"",))
        exchange.expire_after(timeout_s)
        return exchange

    async def warm(self, connections: int) -> None:
        """Open as many connections as are missing to `connections` idle ones, up to the limit.

        Raises NotDelivered if one cannot be opened; the others stay.
        """
        missing = min(connections - self.idle, self._room())
        while missing > 0:
            tasks = [self._connect_for(None) for _ in range(min(missing, WARM_AT_ONCE))]
            missing -= len(tasks)
            await asyncio.wait(tasks)
            if self._closed:
                raise NotDelivered(f"{self._server.url}: this client was closed")
            for task in tasks:
                task.result()

    def renew(self, tls: ssl.SSLContext) -> None:
        """Go by this context from the next connection on. Those that are open end: streams and idle
        ones now, the others with their answers."""
        if self._securing is not None:
            self._securing.context = tls
            self._retire(list(self._open))

    def retire(self, is_over: Callable[[PeerCertificate], bool]) -> None:
        """End those whose other end has shown a certificate that is over, as `renew`."""
        if self._securing is not None:
            shown = self._securing.certificates.items()
            self._retire([connection for connection, one in shown if is_over(one)])

    def _retire(self, connections: list[Connection]) -> None:
        for connection in connections:
            exchange = connection.exchange
            if exchange is None:
                connection.close()
            elif isinstance(exchange, SwitchingRequest) and exchange.on_retire is not None:
                exchange.on_retire()
            elif isinstance(exchange, OutgoingRequest) and exchange.is_endless:  # of reports
                exchange.break_off("the certificates of this connection have changed")
            elif connection.pool is self:
                connection.pool = Retired(self)

    async def stream_lines(
        self,
        path: str,
        on_line: Callable[[bytes], None],
        *,
        headers: Sequence[tuple[bytes, bytes]] = (),
        line_limit_bytes: int = 65_536,
        silence_s: float | None,
        pace: Pace = UNPACED,
    ) -> None:
        """GET an answer without end and call `on_line` with each line, without its newline, at this
        pace at most: beyond it the answer is not read.

        Returns when the server ends the answer. Raises PeerError if no connection can be had, the
        status is not 200, the answer breaks off or ends within a line, a line is too long, or
        no line is complete for `silence_s`. What `on_line` raises ends the stream and comes out
        here.
        """
        head = self._server.head("GET", path, headers, 0)
        name = f"GET {self._server.url}{path}"
        lines = PacedLines(name, on_line, line_limit_bytes, pace)
        answer = Awaited(loop=asyncio.get_running_loop())
        url = self._server.url + path
        exchange = OutgoingRequest(
            "GET", url, answer.settle, sys.maxsize, takes_whole=False, on_body=lines.feed
        )
        answer.exchange = lines.source = exchange
        self.dispatch(exchange, head, (b"",))
        try:
            if silence_s is not None:
                await while_heard(exchange, lines, answer, silence_s)
            await answer
        finally:
            answer.cancel()
            lines.close()
            lines.source = None
            del answer, exchange  # an error has this frame in its traceback, and they the error
        lines.end()

    async def close(self) -> None:
        """Close all connections and wait until they are; what is under way fails."""
        self._closed = True
        self._kept.close()
        for connection in list(self._open):
            if connection.exchange is not None:
                connection.exchange.break_off("this client was closed")
            connection.close()
        for task in self._connecting:
            task.cancel()
        while self._connecting or self._closing:
            self._ended.clear()
            await self._ended.wait()

    def close_copies(self) -> None:
        """In a forked process: see `Connection.close_copy`."""
        for connection in self._open | self._closing:
            connection.close_copy()

    def take_idle(self) -> Connection | None:
        """Take an idle connection, for `opening.Owner`."""
        return self._kept.take(time.monotonic())

    def opened(self, connection: Connection) -> None:
        """Take an opened connection, for `opening.Owner`."""
        self._open.add(connection)
        self.opened_s = time.monotonic()
        self._kept.opened(connection, self.opened_s)

    def abandoned(self, connection: Connection) -> None:
        """Learn from an abandoned connection when connections can be used again, for
        `connection.Pool`."""
        if connection in self._open:  # not by this side
            self._kept.abandoned(connection)

    def unanswered(
        self, connection: Connection, exchange: OutgoingExchange, what: str, *, is_unread: bool
    ) -> None:
        """Send an unanswered request again, or end it with what is known, for `connection.Pool`."""
        self._kept.lost_on(connection)
        if not connection.has_answered:
            self.opened_s = -math.inf
        told = f"{exchange.method} {exchange.url}: {what}"
        goes_again = not self._closed and exchange.may_go_again(self._again, is_unread=is_unread)
        if goes_again and self._room() > 0:
            assert exchange.message is not None  # noqa: S101 - else it may not
            if not is_unread:
                exchange.uncertain = what
                # A server that is ending may well take one more connection and drop it, too.
                exchange.doubted = not connection.has_answered or exchange.is_keyed
            pause_s = 0.0 if connection.has_answered else AGAIN_S
            exchange.opening = self._connect_for(exchange, *exchange.message, pause_s=pause_s)
        elif is_unread:
            exchange.undelivered(NotDelivered(told))
        else:
            exchange.fail(OutcomeUnknown(told))

    def dropped(self, connection: Connection) -> None:
        """Never use the connection again, for `connection.Pool`."""
        self._kept.dropped(connection)
        if connection in self._open:
            self._open.remove(connection)
            self._closing.add(connection)

    def lost(self, connection: Connection) -> None:
        """Forget a connection whose socket is closed, for `connection.Pool`."""
        self.abandoned(connection)
        self.dropped(connection)
        if self._securing is not None:
            self._securing.certificates.pop(connection, None)
        self._closing.discard(connection)
        self._ended.set()

    def dispatch(self, exchange: OutgoingExchange, head: bytes, body: Parts) -> None:
        """Send what is written already, now if a connection is idle; else as `send`."""
        if self._again is not Again.NEVER:
            exchange.message = head, body
        connection = self._kept.take(time.monotonic())
        if connection is not None:
            connection.send(exchange, head, body)
            return
        if self._closed:
            exchange.break_off("this client was closed")
        elif self._room() <= 0:
            exchange.break_off(f"all {self.connections_max} connections are in use")
        else:
            exchange.opening = self._connect_for(exchange, head, body)

    def _room(self) -> int:
        return self.connections_max - len(self._open) - len(self._connecting)

    def _connect_for(
        self,
        exchange: OutgoingExchange | None,
        head: bytes = b"",
        body: Parts = (),
        pause_s: float = 0.0,
    ) -> asyncio.Task[Connection]:
        """Open a connection for a request, or without one to have it idle."""
        opening = self._open_later(pause_s) if pause_s else self._opening.open(self)
        task = asyncio.get_running_loop().create_task(opening)
        self._connecting.add(task)
        task.add_done_callback(partial(self._connected, exchange, head, body))
        return task

    async def _open_later(self, pause_s: float) -> Connection:
        await asyncio.sleep(pause_s)
        return await self._opening.open(self)

    def _connected(
        self,
        exchange: OutgoingExchange | None,
        head: bytes,
        body: Parts,
        task: asyncio.Task[Connection],
    ) -> None:
        self._connecting.discard(task)
        self._ended.set()
        if exchange is not None:
            exchange.opening = None
        error = None if task.cancelled() else task.exception()
        if task.cancelled() or error is not None:
            if exchange is not None:
                closed = NotDelivered(f"{exchange.url}: this client was closed")
                exchange.undelivered(error or closed)
            return
        connection = task.result()
        if not connection.usable:
            if exchange is not None:
                what = "the server closed the new connection at once"
                exchange.undelivered(NotDelivered(f"{exchange.method} {exchange.url}: {what}"))
            return
        if connection not in self._open:
            self.opened(connection)
        if self._closed:
            connection.close()
            if exchange is not None:
                exchange.break_off("this client was closed")
        elif exchange is None or exchange.on_end is None:
            connection.idle_since_s = time.monotonic()
            connection.pool.released(connection)
        else:
            connection.send(exchange, head, body)
