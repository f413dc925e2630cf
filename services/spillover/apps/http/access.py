"""Who asks: the API token that a request shows, `Authorization: Bearer SECRET`.

Secrets are known by their SHA-256 alone. What was found is kept by the connection: the same header
again costs one comparison, until there are other API tokens. Which door is open to whom is each
service's own business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from hmac import compare_digest
from typing import Any, NamedTuple

from spillover.apps.http.exchange import Exchange
from spillover.apps.http.problems import Problem
from spillover.model.access import ApiToken, Role

API_TOKEN = "spillover.api_token"  # noqa: S105 - a name
"""Where the scope of a request that goes on to an app has the ApiToken that it showed."""

STILL_LET_IN = "spillover.still_let_in"
"""Where it has what tells whether that API token still counts, for answers that last."""

SECRET_LENGTH_MAX = 512

_CHALLENGE = (b"www-authenticate", b'Bearer realm="spillover"')
_WRONG = (b"www-authenticate", b'Bearer realm="spillover", error="invalid_token"')
_SCHEME = b"bearer "

EXPECTED = "expected an API token: Authorization: Bearer ..."


class ApiTokens:
    """The API tokens of a service, as they are now. They never change: there are others after a
    change."""

    def __init__(self, tokens: Iterable[ApiToken]) -> None:
        self.by_digest = {token.sha256: token for token in tokens}

    def find(self, header: bytes) -> ApiToken | None:
        """Returns whose header this is."""
        if header[: len(_SCHEME)].lower() != _SCHEME or len(header) > SECRET_LENGTH_MAX:
            return None
        digest = sha256(header[len(_SCHEME) :].strip()).digest()
        found = self.by_digest.get(digest)
        if found is None or not compare_digest(found.sha256, digest):
            return None
        return found


class Shown(NamedTuple):
    """The right API token that a connection has shown last, and the API tokens to which it
    belongs."""

    header: bytes
    tokens: ApiTokens
    token: ApiToken


class Access:
    """Settles who asks."""

    def __init__(self, tokens: ApiTokens) -> None:
        self._tokens = tokens
        self._lasting: dict[object, tuple[ApiToken, Callable[[], None]]] = {}

    @property
    def tokens(self) -> ApiTokens:
        """Returns those that count."""
        return self._tokens

    def go_by(self, tokens: ApiTokens) -> None:
        """Let only these API tokens count from now on; what lasts by others ends."""
        self._tokens = tokens
        for token, end in list(self._lasting.values()):
            if not self.still_knows(token):
                end()

    @contextmanager
    def lasting(self, token: ApiToken, end: Callable[[], None]) -> Iterator[None]:
        """Have `end` called, perhaps more than once, when this API token counts no more while this
        lasts, or no more as it did."""
        key = object()
        self._lasting[key] = token, end
        try:
            yield
        finally:
            del self._lasting[key]

    def still_knows(self, token: ApiToken) -> bool:
        """Returns whether it is one of those, and still of the same tenant and as good."""
        found = self.tokens.by_digest.get(token.sha256)
        return found is not None and found.tenant == token.tenant and found.roles >= token.roles

    def token_of(self, exchange: Exchange) -> ApiToken:
        """Returns the API token that a request shows. Raises Problem `unauthenticated`."""
        header = None
        for name, value in exchange.headers:
            if name == b"authorization":
                if header is not None:
                    raise Problem("unauthenticated", f"{EXPECTED}, once", headers=[_WRONG])
                header = value
        if header is None:
            raise Problem("unauthenticated", EXPECTED, headers=[_CHALLENGE])
        line = exchange.connection
        shown: Shown | None = line.shown
        if (
            shown is not None
            and shown.tokens is self.tokens
            and compare_digest(shown.header, header)
        ):
            return shown.token
        token = self.tokens.find(header)
        if token is None:
            detail = f"{EXPECTED}; this one is not known here"
            raise Problem("unauthenticated", detail, headers=[_WRONG])
        line.shown = Shown(header, self.tokens, token)
        return token


def still_let_in(scope: Mapping[str, Any]) -> bool:
    """Returns whether whoever makes a request would be let in now; so is everybody without API
    tokens."""
    asks: Callable[[], bool] | None = scope.get(STILL_LET_IN)
    return asks is None or asks()


def name_in(scope: Mapping[str, Any]) -> str | None:
    """Returns what the API token of whoever makes a request is called; None without one."""
    token: ApiToken | None = scope.get(API_TOKEN)
    return None if token is None else token.name


def tenant_in(scope: Mapping[str, Any]) -> str:
    """Returns the tenant of whoever makes a request; empty where there are no tenants."""
    token: ApiToken | None = scope.get(API_TOKEN)
    return "" if token is None else token.tenant


def may_in(scope: Mapping[str, Any], role: Role) -> bool:
    """Returns whether whoever makes a request may do more; everybody may without API tokens."""
    token: ApiToken | None = scope.get(API_TOKEN)
    return token is None or token.may(role)
