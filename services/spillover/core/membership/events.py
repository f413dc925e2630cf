"""What goes into the machine of a node's configuration (events) and what comes out (commands).

Neighbors are named by their clusters' ids: one that is asked may be none any more. `ref` names one
proposal; the shell makes it, never twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from spillover.model.configuration import Configuration, Stamp
from spillover.model.topology import Topology


class Event:
    """Base of all events."""

    __slots__ = ()


class Command:
    """Base of all commands."""

    __slots__ = ()


class Reason(Enum):
    """Why a configuration is not taken."""

    INVALID = "invalid"
    VERSION_CONFLICT = "version_conflict"
    STORE_UNREACHABLE = "store_unreachable"


# --- events -----------------------------------------------------------------------------------


@dataclass(slots=True)
class Proposed(Event):
    """An operator wants this to be the configuration, instead of the one of this version. `text` is
    the topology as it is to travel."""

    ref: int
    if_version: int
    topology: Topology
    text: str = ""


@dataclass(slots=True)
class StampHeard(Event):
    """A neighbor says that it goes by this. It says so again and again."""

    neighbor: str
    stamp: Stamp


@dataclass(slots=True)
class Received(Event):
    """A configuration has come: as the answer to an `Ask` where `neighbor` is who was asked, and
    else from the store. A processor was busy reading it for `cost_s`."""

    configuration: Configuration
    neighbor: str | None = None
    cost_s: float = 0.0


@dataclass(slots=True)
class NotReceived(Event):
    """Nothing that can be read has come of an `Ask`. Told sooner or later where nothing has. A
    processor was busy for `cost_s` finding that out."""

    neighbor: str
    cost_s: float = 0.0


@dataclass(slots=True)
class Stored(Event):
    """The store has taken it."""

    ref: int


@dataclass(slots=True)
class StoreRefused(Event):
    """The store has not taken it: for it goes by another one (`Received` tells which), or nobody
    can say. Told sooner or later where no answer has come."""

    ref: int
    reason: Reason


@dataclass(slots=True)
class TimerFired(Event):
    """The time given by next_deadline() has come."""


# --- commands ---------------------------------------------------------------------------------


@dataclass(slots=True)
class Adopt(Command):
    """Go by this from now on, and tell neighbors so."""

    configuration: Configuration


@dataclass(slots=True)
class Ask(Command):
    """Ask this neighbor for its configuration: `Received` or `NotReceived`."""

    neighbor: str


@dataclass(slots=True)
class Store(Command):
    """Have the store take this, if what it has is not above `expected`: `Stored`, or
    `StoreRefused`."""

    ref: int
    configuration: Configuration
    expected: Stamp


@dataclass(slots=True)
class Taken(Command):
    """A proposal is the configuration, with this stamp."""

    ref: int
    stamp: Stamp


@dataclass(slots=True)
class Refused(Command):
    """A proposal is not taken; `detail` says why in words, `field` what is at fault if INVALID.
    `current` is what counts."""

    ref: int
    reason: Reason
    detail: str
    current: Stamp
    field: str = ""


@dataclass(slots=True)
class Superseded(Command):
    """What was taken here last counts no more, and was not built on: another one won."""

    lost: Configuration
    by: Stamp
