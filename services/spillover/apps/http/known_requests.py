"""Requests that need no task and whose head has come before: they need no parser either, since what
it made of the same bytes holds again. What such a head is, `live.http.known_heads` says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from spillover.apps.http.exchange import Exchange, Line
from spillover.live.http.known_heads import KnownHeads

_NOT_KEPT = frozenset(
    {b"authorization", b"cookie", b"idempotency-key", b"proxy-authorization", b"traceparent"}
)
"""Headers of requests whose heads are not remembered: secret, or another each time."""


@dataclass(frozen=True, slots=True)
class KnownRequest:
    """What the head of a request meant that needs no task."""

    method: str
    path: str
    query: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    length_at: int
    """Which of the headers is the length."""
    serve: Callable[[Exchange], None]
    of_peers: bool
    """Whether it came on a connection whose other end was settled: it counts on no other."""


class KnownRequests(KnownHeads[KnownRequest]):
    """Those of all connections of one server."""

    __slots__ = ()

    def begin(
        self, line: Line, head: bytes, length: bytes, body: bytes
    ) -> tuple[Exchange, Callable[[Exchange], None]] | None:
        """Returns the request that this is, and what serves it; None where it is not known."""
        known = self.meanings.get(head)
        if known is None or (known.of_peers and line.peer is None):
            return None
        headers = list(known.headers)
        headers[known.length_at] = (b"content-length", length)
        exchange = Exchange(line, known.method, known.path, known.query, headers, keep_alive=True)
        exchange.pieces, exchange.size_bytes, exchange.more_body = [body], len(body), False
        return exchange, known.serve

    def learn_from(
        self, exchange: Exchange, *whole: bytes, serve: Callable[[Exchange], None]
    ) -> None:
        """The parser has found this request in a message that was taken apart so."""
        head, length, body = whole
        is_usual = exchange.keep_alive and not exchange.is_old
        if exchange.pieces != [body] or exchange.more_body or not is_usual:
            return
        names = [name for name, _ in exchange.headers]
        if (b"content-length", length) in exchange.headers and _NOT_KEPT.isdisjoint(names):
            asked = exchange.method, exchange.path, exchange.query, tuple(exchange.headers)
            at = names.index(b"content-length")
            was_settled = exchange.connection.peer is not None
            self.learn(head, KnownRequest(*asked, at, serve, was_settled))
