"""Events go into a producer's machine, and commands come out. `ref` names one call that the shell
holds open, an offer of an object or a consumer's take; the shell makes it, never twice. Bodies of
objects are the shell's: here they have numbers. Producers are named by their ids, as their peers
know them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum


class Event:
    """Base of all events."""

    __slots__ = ()


class Command:
    """Base of all commands."""

    __slots__ = ()


class Reason(StrEnum):
    """Why a call is refused: nothing has been done for it."""

    QUEUE_FULL = "queue_full"
    STORE_FULL = "store_full"
    DRAINING = "draining"


@dataclass(frozen=True, slots=True)
class Probe:
    """A consumer's request on its way from producer to producer.

    `id` is the take's, `first` the producer that holds it, and `hop` counts from 1 there. `visited`
    names the producers where it has been, this hop not among them. What is left until it expires
    travels as `left_s`, since producers' clocks differ.
    """

    id: str
    first: str
    consumer: str
    hop: int
    max_hops: int
    access: Mapping[str, float]
    avoid_visited: bool
    visited: tuple[str, ...]
    left_s: float

    def onward(self, producer: str, hops: int) -> Probe:
        """Returns the probe as that producer sends it on, or parks it, after so many hops, all but
        the last to itself."""
        return replace(self, hop=self.hop + hops, visited=self.visited + (producer,) * hops)


@dataclass(frozen=True, slots=True)
class Offer:
    """An object for a probe, from the producer that has it to the one that holds the take."""

    probe_id: str
    producer: str
    grant: str
    probes: int
    """How many producers have been asked for it."""


# --- events -----------------------------------------------------------------------------------


@dataclass(slots=True)
class Offered(Event):
    """Somebody has an object for the queue, and waits for a place until the deadline. It takes up
    to `size_bytes` of memory."""

    ref: int
    deadline_s: float
    size_bytes: int = 0


@dataclass(slots=True)
class Read(Event):
    """The object of an offer that was admitted is here whole: it has this number from now on, which
    is larger than all before. It takes `held_bytes` of memory once it is stored."""

    ref: int
    number: int
    held_bytes: int = 0


@dataclass(slots=True)
class OfferGone(Event):
    """Nobody waits for the answer to an offer any more, before its object was there whole."""

    ref: int


@dataclass(slots=True)
class Stored(Event):
    """A `Store` is carried out: the object will not be lost."""

    number: int


@dataclass(slots=True)
class NotStored(Event):
    """It cannot be done: the object is not taken."""

    number: int


@dataclass(slots=True)
class Recovered(Event):
    """An object that was stored before this start, and how often it has been granted. In the order
    of their numbers, before all else."""

    number: int
    deliveries: int
    dead: bool
    held_bytes: int = 0
    rest_s: float = 0.0
    """How much longer it is not to be granted."""


@dataclass(slots=True)
class Taken(Event):
    """A consumer asks here. `probe_id` is its own, and differs from those of all open calls."""

    ref: int
    probe_id: str
    consumer: str
    max_hops: int
    access: Mapping[str, float]
    avoid_visited: bool
    deadline_s: float


@dataclass(slots=True)
class TakeGone(Event):
    """Nobody waits for the answer to a take any more."""

    ref: int


@dataclass(slots=True)
class ProbeCame(Event):
    """A peer has sent a probe on."""

    probe: Probe


@dataclass(slots=True)
class ProbeNotSent(Event):
    """A probe surely did not reach that peer."""

    probe: Probe
    peer: str


@dataclass(slots=True)
class OfferCame(Event):
    """A peer has an object for a probe of a take that is, or was, held here. `ref` is the peer's
    call."""

    ref: int
    offer: Offer


@dataclass(slots=True)
class OfferAnswered(Event):
    """The producer that holds the take has taken an offer, or declined it; a call that came to
    nothing counts as declined."""

    grant: str
    taken: bool


@dataclass(slots=True)
class Fetched(Event):
    """The consumer that an offer was for has come for its object; `ref` is its call."""

    ref: int
    grant: str


@dataclass(slots=True)
class Sent(Event):
    """The object of a grant has been sent whole to its consumer, or its sending was broken off."""

    grant: str
    whole: bool


@dataclass(slots=True)
class ThrownAway(Event):
    """The object of a grant was sent whole, and its consumer has gone without reading all of it."""

    grant: str


@dataclass(slots=True)
class Acked(Event):
    """The consumer is done with a grant's object; `ref` is its call."""

    ref: int
    grant: str


@dataclass(slots=True)
class Nacked(Event):
    """The consumer gives it back, to be granted again after `rest_s`; None: as long as the producer
    has it rest that was not handled."""

    ref: int
    grant: str
    rest_s: float | None = None


@dataclass(slots=True)
class Extended(Event):
    """The consumer needs more time: the grant ends `visibility_s` from now, None: the usual."""

    ref: int
    grant: str
    visibility_s: float | None = None


@dataclass(slots=True)
class PutBack(Event):
    """An operator puts a dead object back into its buffer."""

    ref: int
    number: int


@dataclass(slots=True)
class Discard(Event):
    """An operator wants a dead object no more."""

    ref: int
    number: int


@dataclass(slots=True)
class Drain(Event):
    """Take no object any more; give away those that are here."""


@dataclass(slots=True)
class Resume(Event):
    """Take objects again."""


@dataclass(slots=True)
class TimerFired(Event):
    """The time given by next_deadline() has come."""


# --- commands ---------------------------------------------------------------------------------


@dataclass(slots=True)
class Admit(Command):
    """There is a place for the object of this offer: read it, then `Read`."""

    ref: int


@dataclass(slots=True)
class RefuseOffer(Command):
    """The object is not taken."""

    ref: int
    reason: Reason


@dataclass(slots=True)
class Store(Command):
    """Keep the object safe: `Stored` or `NotStored`, at once or later."""

    number: int


@dataclass(slots=True)
class Accept(Command):
    """The object of this offer is the queue's from here on: 201."""

    ref: int
    number: int


@dataclass(slots=True)
class Forget(Command):
    """The object is gone for good: acknowledged, or discarded."""

    number: int


@dataclass(slots=True)
class Bury(Command):
    """The object is dead, or (`dead` False) it is not any more: keep that as safe as the object."""

    number: int
    dead: bool


@dataclass(slots=True)
class Rest(Command):
    """An object is not to be granted again before `rest_s` have passed: keep that as safe as how
    often it was granted."""

    number: int
    rest_s: float


@dataclass(slots=True)
class SendProbe(Command):
    """Send the probe to this peer; `ProbeNotSent` if it surely does not get there."""

    peer: str
    probe: Probe


@dataclass(slots=True)
class SendOffer(Command):
    """Offer an object to the peer that holds the take; `OfferAnswered` in any case, in time."""

    peer: str
    offer: Offer


@dataclass(slots=True)
class AnswerOffer(Command):
    """Tell the peer whose offer came whether it is taken."""

    ref: int
    taken: bool


@dataclass(slots=True)
class Give(Command):
    """Answer a take, or the fetching of a grant, with an object that is here; `Sent` tells what
    came of it."""

    ref: int
    grant: str
    number: int
    probes: int


@dataclass(slots=True)
class Direct(Command):
    """Answer a take with the address of an object elsewhere."""

    ref: int
    offer: Offer


@dataclass(slots=True)
class NoObject(Command):
    """Answer a take: nothing came before its deadline."""

    ref: int
    probes: int


@dataclass(slots=True)
class RefuseTake(Command):
    """The take is not begun, for want of room or because of a drain."""

    ref: int
    reason: Reason


@dataclass(slots=True)
class Told(Command):
    """Answer an acknowledgement, a nack, an extension, or what an operator asked: whether there was
    such a thing. What goes for good is answered once `Forget` is done."""

    ref: int
    known: bool
