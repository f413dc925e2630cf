"""Events go into a consumer's machine, and commands come out. A take is named by its machine, a
grant by the producer that gave it. Bodies of objects are the shell's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


class Event:
    """Base of all events."""

    __slots__ = ()


class Command:
    """Base of all commands."""

    __slots__ = ()


@dataclass(slots=True)
class Started(Event):
    """Somebody waits for objects: ask for as many as there are hands free."""


@dataclass(slots=True)
class Paused(Event):
    """Nobody waits: begin no take. What is under way goes on."""


@dataclass(slots=True)
class Given(Event):
    """A take, or a fetch, has brought an object from this producer, whose grants last so long."""

    take: str
    producer: str
    grant: str
    visibility_s: float


@dataclass(slots=True)
class Pointed(Event):
    """A take has brought the address of an object at this producer."""

    take: str
    producer: str
    grant: str


@dataclass(slots=True)
class Nothing(Event):
    """A take has brought nothing: its time is over, or the grant it led to is gone."""

    take: str


@dataclass(slots=True)
class Unreachable(Event):
    """The producer of a take or a fetch could not be reached, broke off, or takes no calls."""

    take: str
    producer: str


@dataclass(slots=True)
class Silent(Event):
    """A producer that was checked gave no answer."""

    producer: str


@dataclass(slots=True)
class Handled(Event):
    """The handler is done with an object: well, or not; then it is to be given again after
    `rest_s`, None: as its producer has it."""

    grant: str
    well: bool
    rest_s: float | None = None


@dataclass(slots=True)
class Heard(Event):
    """The answer to what was told of a grant: whether it was known."""

    grant: str
    what: str
    known: bool


@dataclass(slots=True)
class Stopped(Event):
    """Ask for nothing more; what is held is finished."""


@dataclass(slots=True)
class TimerFired(Event):
    """The time given by next_deadline() has come."""


@dataclass(slots=True)
class Take(Command):
    """Ask this producer for an object."""

    take: str
    producer: str
    access: Mapping[str, float]


@dataclass(slots=True)
class Fetch(Command):
    """Fetch the object of a grant at this producer."""

    take: str
    producer: str
    grant: str


@dataclass(slots=True)
class Handle(Command):
    """Have the object handled; `Handled` tells the end."""

    grant: str


@dataclass(slots=True)
class Lost(Command):
    """The grant of an object that is being handled has ended: somebody else may be given it.
    `late_s`: so much too late this consumer came to extend it; 0 where it was in time."""

    grant: str
    late_s: float = 0.0


@dataclass(slots=True)
class Settled(Command):
    """Nothing more is told of an object that the handler is done with. `known`: whether its grant
    was open when its producer heard of that; None if no answer came until it must have ended."""

    grant: str
    known: bool | None


@dataclass(slots=True)
class Check(Command):
    """Ask this producer whether it is there; `Silent` if no answer comes."""

    producer: str


@dataclass(slots=True)
class Abandon(Command):
    """Break a take, or the fetch that it led to, off: what it brings is wanted no more."""

    take: str


@dataclass(slots=True)
class Tell(Command):
    """Send `ack`, `nack` or `extend` for a grant; `Heard` with the answer, if one comes."""

    producer: str
    grant: str
    what: str
    rest_s: float | None = None
    """The seconds that an object of a `nack` rests; None for its producer's own."""
