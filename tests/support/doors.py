"""What the table of a node's doors says of who knocks: for the tests that walk it."""

from spillover.apps.http.doors import Open
from spillover.apps.node.doors import DOORS
from spillover.model.access import Role
from support.api_tokens import HOLDERS

STRANGERS = (None, "wrong", "revoked")
"""Who shows no API token, or one that the node does not know, or knows no more."""
REASONS = {401: "unauthenticated", 403: "forbidden", 404: None, 405: "method_not_allowed"}
"""Of the doors, by status: those of HEAD, which has no body."""

_ROLES = {name: set(roles) for name, _, roles in HOLDERS}
_FILLED = {
    "file": "0/x.js",
    "action": "drain",
    "request_id": "order-1",
    "neighbor": "b",
    "call": "v2/reports",
    "grant": "g",
    "name": "1",
    "number": "1",
}


def filled(path):
    """A path of a table with something in its braces."""
    for name, value in _FILLED.items():
        path = path.replace(f"{{{name}}}", value)
    return path


def verbs_of(path, doors=DOORS):
    """Those that the door knows, and some that it does not: all others are as PATCH."""
    return dict.fromkeys((*doors[path], "HEAD", "OPTIONS", "PATCH"))


def may(caller, need):
    roles = _ROLES.get(caller, set())
    return need in roles or (need is Role.READ and Role.OPERATE in roles)


def expected(caller, path, verb, doors=DOORS):
    """What the doors make of it: a reason, or None where they let it through."""
    need = doors[path].get("GET" if verb == "HEAD" else verb)
    if isinstance(need, Open):
        return None
    if caller in STRANGERS:
        return "unauthenticated"
    if need is None:
        return "method_not_allowed"
    return None if may(caller, need) else "forbidden"
