"""How the nodes of one site write what they tell each other: a line of JSON for each message."""

from __future__ import annotations

import msgspec

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


class _Line(msgspec.Struct, omit_defaults=True):
    """One message, under its name."""

    load: SiblingLoad | None = None
    prepare: Prepare | None = None
    frozen: Frozen | None = None
    installed: Installed | None = None
    give: Give | None = None


_NAMES: dict[type, str] = {
    SiblingLoad: "load",
    Prepare: "prepare",
    Frozen: "frozen",
    Installed: "installed",
    Give: "give",
}

_decoder = msgspec.json.Decoder(_Line)


def encode(message: SiblingMessage) -> bytes:
    """Returns the line of a message."""
    return msgspec.json.encode({_NAMES[type(message)]: message}) + b"\n"


def decode(line: bytes) -> SiblingMessage | None:
    """Returns the message of a line; None for one of a kind that is not known here. Raises
    MalformedMessage."""
    try:
        told = _decoder.decode(line)
    except UNREADABLE as error:
        raise MalformedMessage(str(error)) from None
    return told.load or told.prepare or told.frozen or told.installed or told.give
