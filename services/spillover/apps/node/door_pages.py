"""The pages of other origins at the door of a service, in browsers (CORS): which of them may read
what a node says by itself, and what it answers to a preflight that the service cannot be asked.

The service decides: a page that may read its last answers may read our errors. Besides there are
the origins that operators have named (`--allow-origin`), before the service has answered anything.
The service's own answers are never changed.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeAlias

from spillover.apps.http.sites import ANY_ORIGIN
from spillover.live.http1.heads import RequestHead, values
from spillover.model.passed import Fields, PassedHead

KEPT_MAX = 256
"""The most origins, and preflights, that are remembered: the longest unused is forgotten."""

KEPT_BYTES_MAX = 4096
"""The largest preflight, with its answer, that is remembered, in bytes."""

_ALLOW_ORIGIN = b"access-control-allow-origin"
_CREDENTIALS = b"access-control-allow-credentials"
_ASKED_METHOD = b"access-control-request-method"
_ASKED_HEADERS = b"access-control-request-headers"
_ANY = ANY_ORIGIN.encode()
_VARY = (b"vary", b"origin")
_SHOWN = (
    b"access-control-expose-headers",
    b"proxy-status, retry-after, spillover-request-id, x-should-retry",
)

_Key: TypeAlias = tuple[bytes, ...]


class _Lately:
    """The fields of the last answers, by the questions."""

    def __init__(self) -> None:
        self._kept: OrderedDict[_Key, Fields] = OrderedDict()

    def keep(self, key: _Key, fields: Fields) -> None:
        if (
            sum(map(len, key)) + sum(len(name) + len(value) for name, value in fields)
            > KEPT_BYTES_MAX
        ):
            return
        self._kept[key] = fields
        self._kept.move_to_end(key)
        if len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)

    def find(self, key: _Key) -> Fields | None:
        fields = self._kept.get(key)
        if fields is not None:
            self._kept.move_to_end(key)
        return fields


class Origins:
    """The known origins at one door."""

    def __init__(self, allowed: frozenset[str] = frozenset()) -> None:
        self._allowed = frozenset(one.encode() for one in allowed)
        self._lines, self._preflights = _Lately(), _Lately()

    def learn(self, page: Page, head: PassedHead) -> None:
        """Learn from an answer of the service to a page what that page may read."""
        told = values(head.headers, _ALLOW_ORIGIN)
        if len(told) != 1 or told[0] not in (_ANY, page.origin):
            return
        if page.is_preflight and 200 <= head.status < 300:
            self._preflights.keep(page.preflight, _of_cors(head.headers))
        with_credentials = values(head.headers, _CREDENTIALS) == [b"true"]
        self._lines.keep((told[0],), _allowing(told[0], with_credentials))

    def lines(self, page: Page) -> Fields:
        """Returns the fields that let that page read an error of ours; none if it may not."""
        for origin in (page.origin, _ANY):
            if (known := self._lines.find((origin,))) is not None:
                return known
        if page.origin in self._allowed:
            return _allowing(page.origin, with_credentials=True)
        return _allowing(_ANY, with_credentials=False) if _ANY in self._allowed else ()

    def preflight(self, page: Page) -> Fields | None:
        """Returns the service's earlier answer to this preflight, or what operators allow; None if
        nothing is known. What they allow is without cookies: the service may not expect any from
        pages that it was not asked about."""
        known = self._preflights.find(page.preflight)
        if known is not None:
            return known
        if self._allowed.isdisjoint((page.origin, _ANY)):
            return None
        _, _, method, headers = page.preflight
        told = [_VARY, (_ALLOW_ORIGIN, page.origin), (b"access-control-allow-methods", method)]
        return (*told, (b"access-control-allow-headers", headers)) if headers else tuple(told)


class Page:
    """The page of a browser that makes one request: it has an `Origin`."""

    __slots__ = ("_origins", "origin", "preflight")

    def __init__(self, origins: Origins, head: RequestHead) -> None:
        self._origins = origins
        self.origin = b", ".join(values(head.fields, b"origin"))
        self.preflight: _Key = ()
        """The preflight's question, and its target; empty where the request is no preflight."""
        if head.method == "OPTIONS" and _ASKED_METHOD in head.names:
            asked = [
                b", ".join(values(head.fields, one)) for one in (_ASKED_METHOD, _ASKED_HEADERS)
            ]
            self.preflight = (self.origin, head.target.partition(b"?")[0], *asked)

    @property
    def is_preflight(self) -> bool:
        """Returns whether a browser asks before it sends a request that no form could make."""
        return bool(self.preflight)

    def answered(self, head: PassedHead) -> None:
        """Learn from the answer of the service."""
        self._origins.learn(self, head)

    def may_read(self) -> Fields:
        """Returns the fields that let the page read an error of ours."""
        return self._origins.lines(self)

    def allowed_before(self) -> Fields | None:
        """Returns the answer to a preflight that the service cannot be asked; None if the request
        is no preflight, or no answer is known."""
        return self._origins.preflight(self) if self.is_preflight else None


def _allowing(origin: bytes, with_credentials: bool) -> Fields:  # noqa: FBT001 - one of two lines
    told: Fields = ((_ALLOW_ORIGIN, origin), _SHOWN)
    if with_credentials:
        told = (*told, (_CREDENTIALS, b"true"))
    return told if origin == _ANY else (*told, _VARY)


def _of_cors(fields: Fields) -> Fields:
    return tuple(
        (name, value)
        for name, value in fields
        if name.lower().startswith(b"access-control-") or name.lower() == b"vary"
    )
