"""Requests that need no task and whose head has come before: they need no parser either, since what
it made of the same bytes holds again. What such a head is, `live.http1.known_heads` says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from spillover.apps.http.exchange import Exchange
from spillover.live.http1.known_heads import NOT_KEPT, KnownHeads, without_key

KEY = b"idempotency-key"


@dataclass(frozen=True, slots=True)
class KnownRequest:
    """What the head of a request meant that needs no task."""

    method: str
    path: str
    query: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    """All but the length of the body, and the key."""
    serve: Callable[[Exchange, bytes], None]
    of_peers: bool
    """Whether it came on a connection whose other end was settled: it counts on no other."""
    is_keyed: bool
    """Whether it has an `Idempotency-Key`, which is another one each time."""


class KnownRequests(KnownHeads[KnownRequest]):
    """Those of all connections of one server."""

    __slots__ = ()

    def learn_from(
        self, exchange: Exchange, *whole: bytes, serve: Callable[[Exchange, bytes], None]
    ) -> None:
        """The parser has found this request in a message that was taken apart so."""
        head, length, body = whole
        is_usual = exchange.keep_alive and not exchange.is_old
        if exchange.pieces != [body] or exchange.more_body or not is_usual:
            return
        names = [name for name, _ in exchange.headers]
        headers = dict(exchange.headers)
        key = headers.pop(KEY, None)
        if key is not None:
            keyless = without_key(head)
            if keyless is None or keyless[1] != key or names.count(KEY) != 1:
                return
            head = keyless[0]
        if headers.pop(b"content-length", b"") == length and NOT_KEPT.isdisjoint(headers):
            asked = exchange.method, exchange.path, exchange.query
            others = [one for one in exchange.headers if one[0] not in (b"content-length", KEY)]
            was_settled = exchange.connection.peer is not None
            ends = serve, was_settled, key is not None
            self.learn(head, KnownRequest(*asked, tuple(others), *ends))
