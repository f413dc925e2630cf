"""The messages between the nodes of one site as they are written: a line of JSON for each."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from spillover.core.overflow.quotas import Use
from spillover.core.overflow.sibling_messages import (
    Frozen,
    Give,
    Installed,
    Prepare,
    SiblingLoad,
    SiblingMessage,
)
from spillover.live.overflow.wire import MalformedMessage
from spillover.model.errors import UNREADABLE
from spillover.model.ranges import Whole


class GoesBy(msgspec.Struct, frozen=True):
    """The configuration that the node goes by. It is said on each stream first, and when it
    changes."""

    stamp: Annotated[str, msgspec.Meta(max_length=200)]


Policy = Annotated[str, msgspec.Meta(max_length=100)]


class Operated(msgspec.Struct, frozen=True):
    """The operators' changes at the node, where several processes are one node to them. They are
    said on each new stream, since a process that was started again knows nothing of them."""

    at_ms: Whole
    """The time of the last change, in milliseconds by the clock of the machine."""
    drains: bool
    policy: Policy
    shadow: Policy | None


TENANTS_MAX = 200
"""The most tenants of one line."""


class Uses(msgspec.Struct, frozen=True):
    """The uses of tenants at the node."""

    tenants: Annotated[dict[str, Use], msgspec.Meta(max_length=TENANTS_MAX)]


class Sessions(msgspec.Struct, frozen=True):
    """The clients that have a session at the node. They are said on each stream first, and when
    they change."""

    clients: Whole
    let_in: Whole
    """The number of clients that were let in since the node's start."""


OfShells: TypeAlias = GoesBy | Uses | Operated | Sessions
"""The messages that are not the machine's business."""


class _Line(msgspec.Struct, omit_defaults=True):
    """One message, under its name."""

    configuration: GoesBy | None = None
    uses: Uses | None = None
    operated: Operated | None = None
    sessions: Sessions | None = None
    load: SiblingLoad | None = None
    prepare: Prepare | None = None
    frozen: Frozen | None = None
    installed: Installed | None = None
    give: Give | None = None


_NAMES: dict[type, str] = {
    GoesBy: "configuration",
    Uses: "uses",
    Operated: "operated",
    Sessions: "sessions",
    SiblingLoad: "load",
    Prepare: "prepare",
    Frozen: "frozen",
    Installed: "installed",
    Give: "give",
}

_decoder = msgspec.json.Decoder(_Line)


def encode(message: SiblingMessage | OfShells) -> bytes:
    """Returns the line of a message."""
    return msgspec.json.encode({_NAMES[type(message)]: message}) + b"\n"


def decode(line: bytes) -> SiblingMessage | OfShells | None:
    """Returns the message of a line; None for one of a kind that is not known here. Raises
    MalformedMessage."""
    try:
        told = _decoder.decode(line)
    except UNREADABLE as error:
        raise MalformedMessage(str(error)) from None
    of_view = told.load or told.prepare or told.frozen or told.installed or told.give
    of_shells = told.configuration or told.uses or told.operated or told.sessions
    return of_view or of_shells
