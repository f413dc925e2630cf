"""The doors of a node, and who may go through: the one table of paths, verbs and roles.

It counts where a node has API tokens; else all doors are open, as far as this is concerned. What is
not in the table is not let through: a new route without an entry fails a test, and does nothing.
Who asks is settled in `apps.http.access`, who neighbors are by their certificates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TypeAlias

from spillover.apps.http.access import Access
from spillover.apps.http.asgi import Message, Send
from spillover.apps.http.audit import Audit
from spillover.apps.http.cold import nearest_path
from spillover.apps.http.exchange import Exchange
from spillover.apps.http.problems import Problem
from spillover.live.membership.session_wire import SESSION
from spillover.live.overflow.protocol import PEER_PREFIX
from spillover.model.access import ApiToken, Role


class Open(Enum):
    """Doors that need no API token."""

    ALL = "all"
    """Of everybody."""
    NEIGHBORS = "neighbors"
    """Of neighbors, who have certificates."""


Need: TypeAlias = Role | Open

DOORS: Mapping[str, Mapping[str, Need]] = {
    "/healthz": {"GET": Open.ALL},
    "/readyz": {"GET": Open.ALL},
    # The console's own files hold nothing of the node. What it shows and does, it asks for.
    "/": {"GET": Open.ALL},
    "/console": {"GET": Open.ALL},
    "/console/": {"GET": Open.ALL},
    "/console/assets/{file}": {"GET": Open.ALL},
    "/console/events": {"GET": Role.READ},
    "/console/{action}": {"POST": Role.OPERATE},
    "/requests": {"POST": Role.SUBMIT},
    "/requests/{request_id}": {"GET": Role.SUBMIT, "DELETE": Role.SUBMIT},
    SESSION: {"GET": Role.SUBMIT, "DELETE": Role.SUBMIT},
    "/state": {"GET": Role.READ},
    "/federation": {"GET": Role.READ},
    "/explain/{request_id}": {"GET": Role.READ},
    "/metrics": {"GET": Role.READ},
    "/openapi.json": {"GET": Role.READ},
    "/docs": {"GET": Role.READ},
    "/docs/style.css": {"GET": Role.READ},
    "/admin/config": {"GET": Role.READ, "PUT": Role.OPERATE},
    "/admin/drain": {"POST": Role.OPERATE},
    "/admin/resume": {"POST": Role.OPERATE},
    "/admin/policy": {"PUT": Role.OPERATE},
    "/admin/tokens": {"PUT": Role.OPERATE},
    "/admin/links/{neighbor}": {"PUT": Role.OPERATE},
    PEER_PREFIX + "{call}": {"GET": Open.NEIGHBORS, "POST": Open.NEIGHBORS},
}
"""HEAD goes where GET goes. What is in braces, at an end only, is anything."""

_ALL_OF_A_PATH = sorted((path for path in DOORS if "{" in path), key=len, reverse=True)
_BELOW = [(path.partition("{")[0], DOORS[path]) for path in _ALL_OF_A_PATH]


def needs_of(path: str) -> Mapping[str, Need] | None:
    """Returns what is needed for each verb at this path; None where there is no door."""
    found = DOORS.get(path)
    if found is None:
        found = next((needs for below, needs in _BELOW if path.startswith(below)), None)
    return found


_CHALLENGE = (b"proxy-authenticate", b'Bearer realm="spillover"')


class Doors:
    """The doors of one node that has API tokens."""

    def __init__(self, access: Access, audit: Audit) -> None:
        self.access = access
        self._audit = audit

    def submitter(self, exchange: Exchange) -> ApiToken:
        """Returns who asks for a request to be run, or for one of its own. Raises Problem
        `unauthenticated` or `forbidden`. On the way of every request."""
        try:
            token = self.access.token_of(exchange)
        except Problem as problem:
            self._turned_away(exchange, None, problem)
            raise
        if Role.SUBMIT not in token.roles:
            raise self._forbidden(exchange, token, Role.SUBMIT)
        return token

    def passer(self, shown: Sequence[bytes], door: str, address: str | None) -> ApiToken:
        """Returns who asks for a request to be passed on to a service. To this node an API token is
        shown as to a proxy (`Proxy-Authorization`): what else is shown is the service's business.
        Raises Problem `proxy_unauthenticated` or `forbidden`."""
        token = self.access.tokens.find(shown[0]) if len(shown) == 1 else None
        if token is not None and Role.SUBMIT in token.roles:
            return token
        if token is None:
            detail = "expected an API token, once: Proxy-Authorization: Bearer ..."
            problem = Problem("proxy_unauthenticated", detail, headers=[_CHALLENGE])
        else:
            problem = _lacks(token, Role.SUBMIT)
        self._audit.turned_away(token, door, problem.reason, address)
        raise problem

    def enter(self, exchange: Exchange) -> ApiToken | None:
        """Returns who comes through the door that a request is for; None where nobody has to say.
        Raises the same, and `not_found` or `method_not_allowed` where there is no door."""
        needs = needs_of(exchange.path)
        method = "GET" if exchange.method == "HEAD" else exchange.method
        need = None if needs is None else needs.get(method)
        if isinstance(need, Open):
            return None
        try:
            token = self.access.token_of(exchange)
        except Problem as problem:
            self._turned_away(exchange, None, problem)
            raise
        if need is None:
            raise _no_door(exchange, needs)
        if not token.may(need):
            raise self._forbidden(exchange, token, need)
        return token

    def audited(self, exchange: Exchange, token: ApiToken, send: Send) -> Send:
        """Returns what to answer through: where it is an act of an operator, what comes of it is
        told to the audit log."""
        needs = needs_of(exchange.path) or {}
        if needs.get(exchange.method) is not Role.OPERATE:
            return send

        async def told(message: Message) -> None:
            if message["type"] == "http.response.start":
                status = None if exchange.disconnected else int(message["status"])
                self._audit.acted(token, _door(exchange), status, _address(exchange))
            await send(message)

        return told

    def _forbidden(self, exchange: Exchange, token: ApiToken, need: Role) -> Problem:
        problem = _lacks(token, need)
        self._turned_away(exchange, token, problem)
        return problem

    def _turned_away(self, exchange: Exchange, token: ApiToken | None, problem: Problem) -> None:
        self._audit.turned_away(token, _door(exchange), problem.reason, _address(exchange))


def _lacks(token: ApiToken, need: Role) -> Problem:
    detail = f"expected an API token with the role {need}; {token.name} has not got it"
    return Problem("forbidden", detail)


def _no_door(exchange: Exchange, needs: Mapping[str, Need] | None) -> Problem:
    """As the app tells it."""
    asked = f"{exchange.method} {exchange.path}"
    if needs is None:
        near = nearest_path(exchange.path, DOORS)
        hint = "" if near is None else f", did you mean {near}?"
        return Problem("not_found", f"{asked}: Not Found{hint}")
    allowed = ", ".join(needs)
    headers = [(b"allow", allowed.encode())]
    return Problem("method_not_allowed", f"{asked}: expected {allowed}", headers=headers)


def _door(exchange: Exchange) -> str:
    return f"{exchange.method} {exchange.path}"


def _address(exchange: Exchange) -> str | None:
    """Of the other end of the connection."""
    told = exchange.connection.transport.get_extra_info("peername")
    return str(told[0]) if isinstance(told, tuple) else None
