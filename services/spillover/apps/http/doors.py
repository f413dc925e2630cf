"""The doors of a service that has API tokens, by a table of paths, verbs and roles: who may go
through. What is not in the table is not let through.

The tables are each service's own. Who asks is settled in `access`, what is told of it in `audit`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Any, TypeAlias

from spillover.apps.http.access import API_TOKEN, STILL_LET_IN, Access
from spillover.apps.http.asgi import AsgiApp, Message, Receive, Scope, Send
from spillover.apps.http.audit import Audit
from spillover.apps.http.cold import nearest_path, with_head
from spillover.apps.http.exchange import EXCHANGE, Exchange
from spillover.apps.http.openapi import Described, problems
from spillover.apps.http.problems import Problem
from spillover.model.access import ApiToken, Role
from spillover.model.addresses import of_socket


class Open(Enum):
    """Doors that need no API token."""

    ALL = "all"
    """A door for everybody."""
    NEIGHBORS = "neighbors"
    """A door for neighbors, who have certificates."""


Need: TypeAlias = Role | Open

DOORS_OF_ALL: Mapping[str, Mapping[str, Need]] = {
    "/healthz": {"GET": Open.ALL},
    "/readyz": {"GET": Open.ALL},
    # A browser that opens a page has no API token to show. These hold nothing of the service but
    # its id and version; what the console shows and does, it asks for.
    "/docs": {"GET": Open.ALL},
    "/docs/style.css": {"GET": Open.ALL},
    "/openapi.json": {"GET": Open.ALL},
    "/": {"GET": Open.ALL, "OPTIONS": Open.ALL},
    "/console": {"GET": Open.ALL},
    "/console/": {"GET": Open.ALL},
    "/console/assets/{file}": {"GET": Open.ALL},
    "/console/events": {"GET": Role.READ},
    "/console/{action}": {"POST": Role.OPERATE},
    "/state": {"GET": Role.READ},
    "/metrics": {"GET": Role.READ},
    "/admin/drain": {"POST": Role.OPERATE},
}
"""The doors that every service has. HEAD goes where GET goes. Text in braces, at an end only,
stands for anything."""


class DoorTable:
    """The table of what each door of a service needs."""

    def __init__(self, doors: Mapping[str, Mapping[str, Need]]) -> None:
        self.doors = doors
        of_many = sorted((path for path in doors if "{" in path), key=len, reverse=True)
        self._below = [(path.partition("{")[0], doors[path]) for path in of_many]

    def needs_of(self, path: str) -> Mapping[str, Need] | None:
        """Returns what is needed for each verb at this path; None where there is no door."""
        found = self.doors.get(path)
        if found is None:
            found = next((needs for below, needs in self._below if path.startswith(below)), None)
        return found

    def tell(self, schema: Described) -> None:
        """Have an OpenAPI say which API token each door needs."""
        scheme = {"type": "http", "scheme": "bearer", "description": "An API token"}
        schema["components"]["securitySchemes"] = {"api_token": scheme}
        for path, operations in schema["paths"].items():
            needs = self.needs_of(path) or {}
            for method, operation in operations.items():
                need = needs.get(method.upper())
                if isinstance(need, Role):
                    _tell_need(operation, need)


_CHALLENGE = (b"proxy-authenticate", b'Bearer realm="spillover"')


class Doors:
    """The doors of one service that has API tokens."""

    def __init__(self, access: Access, audit: Audit, table: DoorTable) -> None:
        self.access = access
        self._audit = audit
        self._table = table

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

    def let_in(self, exchange: Exchange, scope: Scope, send: Send) -> Send:
        """Returns what to answer through, with who asks in the scope, if anybody has to say. Raises
        as `enter`."""
        token = self.enter(exchange)
        if token is None:
            return send
        scope[API_TOKEN] = token
        scope[STILL_LET_IN] = partial(self.access.still_knows, token)
        return self._audited(exchange, token, send)

    def is_open(self, method: str, path: str) -> bool:
        """Returns whether nobody has to say who it is to come through this door."""
        needs = self._table.needs_of(path)
        return needs is not None and isinstance(needs.get(method), Open)

    def enter(self, exchange: Exchange) -> ApiToken | None:
        """Returns who comes through the door that a request is for; None where nobody has to say.
        Raises Problem `unauthenticated` or `forbidden`, and `not_found` or `method_not_allowed`
        where there is no door."""
        needs = self._table.needs_of("/" if exchange.path == "*" else exchange.path)
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
            raise self._no_door(exchange, needs)
        if not token.may(need):
            raise self._forbidden(exchange, token, need)
        return token

    def _audited(self, exchange: Exchange, token: ApiToken, send: Send) -> Send:
        """Returns what to answer through: where it is an act of an operator, what comes of it is
        told to the audit log."""
        needs = self._table.needs_of(exchange.path) or {}
        if needs.get(exchange.method) is not Role.OPERATE:
            return send

        async def told(message: Message) -> None:
            if message["type"] == "http.response.start":
                status = None if exchange.disconnected else int(message["status"])
                self._audit.acted(token, _door(exchange), status, _address(exchange))
            await send(message)

        return told

    def _no_door(self, exchange: Exchange, needs: Mapping[str, Need] | None) -> Problem:
        """Returns the problem of a path or a method that there is not, as an app would."""
        asked = f"{exchange.method} {exchange.path}"
        if needs is None:
            near = nearest_path(exchange.path, self._table.doors)
            hint = "" if near is None else f", did you mean {near}?"
            return Problem("not_found", f"{asked}: Not Found{hint}")
        allowed = with_head(needs)
        headers = [(b"allow", allowed.encode())]
        return Problem("method_not_allowed", f"{asked}: expected {allowed}", headers=headers)

    def _forbidden(self, exchange: Exchange, token: ApiToken, need: Role) -> Problem:
        problem = _lacks(token, need)
        self._turned_away(exchange, token, problem)
        return problem

    def _turned_away(self, exchange: Exchange, token: ApiToken | None, problem: Problem) -> None:
        self._audit.turned_away(token, _door(exchange), problem.reason, _address(exchange))


class BehindDoors:
    """An ASGI app: the doors of a service in front of its app."""

    def __init__(self, app: AsgiApp, doors: Doors) -> None:
        self._app = app
        self._doors = doors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange: Exchange = scope[EXCHANGE]
        try:
            answered_by = self._doors.let_in(exchange, scope, send)
        except Problem as problem:
            exchange.refuse(problem)
        else:
            await self._app(scope, receive, answered_by)


def _tell_need(operation: dict[str, Any], need: Role) -> None:
    operation["security"] = [{"api_token": []}]
    told = operation.get("description", "")
    operation["description"] = f"{told}\n\nFor API tokens with the role {need}.".strip()
    responses = operation["responses"]
    for status, problem in problems("unauthenticated", "forbidden").items():
        known = responses.get(str(status))
        both = problem["description"]
        if known is not None:
            both = f"{known['description']} or {both}"
        responses[str(status)] = {**problem, **(known or {}), "description": both}


def _lacks(token: ApiToken, need: Role) -> Problem:
    detail = f"expected an API token with the role {need}; {token.name} has not got it"
    return Problem("forbidden", detail)


def _door(exchange: Exchange) -> str:
    return f"{exchange.method} {exchange.path}"


def _address(exchange: Exchange) -> str | None:
    """Returns the address of the other end of the connection."""
    told = of_socket(exchange.connection.transport.get_extra_info("peername"))
    return None if told is None else told[0]
