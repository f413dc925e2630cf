"""The rights of pages in browsers at `/requests` and under `/peer/`: none, unless they are of this
node or of an origin that is allowed to use it. Programs are not concerned.

Pages of allowed origins are told so in every answer, since their browsers ask for that (CORS), and
also before a request that no form could make. No request carries what a browser keeps for this
node: there are no cookies. Only clients' requests are allowed: messages of neighbors, operators and
sessions are for no page of another site.
"""

from __future__ import annotations

from starlette.datastructures import Headers

from spillover.apps.http.exchange import Exchange
from spillover.apps.http.problems import Problem
from spillover.apps.http.sites import ANY_ORIGIN, WebSite
from spillover.live.http1.written import head_lines
from spillover.live.membership.session_wire import SESSION
from spillover.live.overflow.protocol import PEER_PREFIX

REQUESTS = "/requests"

PREFLIGHT_S = 600
"""The time, in seconds, for which browsers may remember what they were allowed."""

_ALLOWED_METHODS = "GET, HEAD, POST, DELETE"
_ALLOWED_HEADERS = (
    "authorization, content-type, idempotency-key, prefer, spillover-deadline-ms, "
    "spillover-priority, spillover-type, traceparent, tracestate"
)
_SHOWN_HEADERS = (
    "location, preference-applied, retry-after, spillover-replayed, spillover-request-id, "
    "x-should-retry"
)


class Pages:
    """The rule for one node."""

    def __init__(self, site: WebSite) -> None:
        self._site = site

    def admit(self, exchange: Exchange) -> bool:
        """Returns whether there is more to do; False if the request is answered. Raises Problem
        `another_site`."""
        path, headers = exchange.path, Headers(raw=exchange.headers)
        if path.startswith(PEER_PREFIX) or path == SESSION:
            reason = self._site.why_not_operate(headers)
        elif path == REQUESTS or path.startswith(f"{REQUESTS}/"):
            reason = self._site.why_not_use(exchange.method, headers)
        else:
            return True
        if reason is not None:
            raise Problem("another_site", reason)
        if path.startswith(PEER_PREFIX) or path == SESSION or not self._site.allows(headers):
            return True
        told = self._allowance(headers["origin"])
        exchange.header_lines = head_lines(told)
        if exchange.method == "OPTIONS":
            exchange.answer(200, _PREFLIGHT, b"")
            return False
        return True

    def _allowance(self, origin: str) -> list[tuple[bytes, bytes]]:
        shown = (b"access-control-expose-headers", _SHOWN_HEADERS.encode())
        if ANY_ORIGIN in self._site.allowed:
            return [(b"access-control-allow-origin", b"*"), shown]
        # This is as it was given to this node, for it is one of those.
        return [(b"access-control-allow-origin", origin.encode()), (b"vary", b"origin"), shown]


_PREFLIGHT = [
    (b"access-control-allow-methods", _ALLOWED_METHODS.encode()),
    (b"access-control-allow-headers", _ALLOWED_HEADERS.encode()),
    (b"access-control-max-age", b"%d" % PREFLIGHT_S),
]
