"""How the nodes of one site write what they tell each other: a line of JSON for each message."""

from __future__ import annotations

from typing import Annotated

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


class GoesBy(msgspec.Struct, frozen=True):
    """The configuration that the node goes by. Said on each stream first, and when it changes."""

    stamp: Annotated[str, msgspec.Meta(max_length=200)]


TENANTS_MAX = 200
"""The most tenants of one line."""


class Uses(msgspec.Struct, frozen=True):
    """How much tenants use at the node."""

    tenants: Annotated[dict[str, Use], msgspec.Meta(max_length=TENANTS_MAX)]


class _Line(msgspec.Struct, omit_defaults=True):
    """One message, under its name."""

    configuration: GoesBy | None = None
    uses: Uses | None = None
    load: SiblingLoad | None = None
    prepare: Prepare | None = None
    frozen: Frozen | None = None
    installed: Installed | None = None
    give: Give | None = None


_NAMES: dict[type, str] = {
    GoesBy: "configuration",
    Uses: "uses",
    SiblingLoad: "load",
    Prepare: "prepare",
    Frozen: "frozen",
    Installed: "installed",
    Give: "give",
}

_decoder = msgspec.json.Decoder(_Line)


def encode(message: SiblingMessage | GoesBy | Uses) -> bytes:
    """Returns the line of a message."""
    return msgspec.json.encode({_NAMES[type(message)]: message}) + b"\n"


def decode(line: bytes) -> SiblingMessage | GoesBy | Uses | None:
    """Returns the message of a line; None for one of a kind that is not known here. Raises
    MalformedMessage."""
    try:
        told = _decoder.decode(line)
    except UNREADABLE as error:
        raise MalformedMessage(str(error)) from None
    of_view = told.load or told.prepare or told.frozen or told.installed or told.give
    return of_view or told.configuration or told.uses
