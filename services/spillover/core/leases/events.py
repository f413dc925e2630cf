"""What goes into the machine of a lease member (events) and what comes out (commands).

An ask is a command whose answer comes back as `Answered`, or as `AskFailed` where the store could
not be reached, refused, or did not answer in time. Its number tells it from others; `sent_s` is
when it was commanded, which is never later than when it leaves: leases are reckoned from there.
Answers may come late, twice, in any order or never. `epoch` 0 stands for a rule without epochs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spillover.core.leases.records import Renewed

CHALLENGED = "challenged"
GRABBED = "grabbed"
ACQUIRED = "acquired"
RELEASING = "releasing"
RELEASED = "released"
LOST = "lost"
FENCED = "fenced"
RENEWED_LATE = "renewed_late"
REDIS_DOWN = "redis_down"
REDIS_UP = "redis_up"


class Event:
    """Base of all events."""

    __slots__ = ()


class Command:
    """Base of all commands."""

    __slots__ = ()


# --- asks: commands to the store ---------------------------------------------------------------


@dataclass(slots=True)
class Ask(Command):
    """Base of all asks."""

    number: int
    sent_s: float


@dataclass(slots=True)
class AskJoin(Ask):
    """`join` with this process's incarnation; answered by `records.Joined`."""


@dataclass(slots=True)
class AskLeave(Ask):
    """`leave`; the answer says nothing."""


@dataclass(slots=True)
class AskSurvey(Ask):
    """`survey`; answered by `records.Survey`. Where loads count, it tells first what this
    member's are: (partition, epoch, load in thousandths)."""

    loads: Sequence[tuple[int, int, int]] = ()


@dataclass(slots=True)
class AskGrab(Ask):
    """`grab`; answered by whether it was granted."""

    partition: int
    free_for_ms: float


@dataclass(slots=True)
class AskActivate(Ask):
    """`activate`; answered by `records.Activation`."""

    partition: int


@dataclass(slots=True)
class AskWanted(Ask):
    """`is_wanted`; answered by whether another member has won what this one serves."""

    partition: int
    epoch: int


@dataclass(slots=True)
class AskDrain(Ask):
    """`drain`: the handler is being stopped; the answer says nothing new."""

    partition: int
    epoch: int


@dataclass(slots=True)
class AskRelease(Ask):
    """`release`: the handler has stopped; answered by whether the partition was still held."""

    partition: int
    epoch: int


# --- asks of the blog's rule: plain operations on the two hashes, compared with nothing ----------


@dataclass(slots=True)
class AskMarked(Ask):
    """HEXISTS grab: answered by whether somebody has won the partition."""

    partition: int


@dataclass(slots=True)
class AskMark(Ask):
    """HSETNX grab, then HGET: answered by the id of the node that stands there."""

    partition: int


@dataclass(slots=True)
class AskOwner(Ask):
    """HGET allocation: answered by the id of the node, or None."""

    partition: int


@dataclass(slots=True)
class AskAllocate(Ask):
    """HSET allocation to the own id."""

    partition: int


@dataclass(slots=True)
class AskClear(Ask):
    """HDEL of the partition's fields, whoever stands there."""

    partition: int
    allocation: bool
    grab: bool


ASKS: tuple[type[Ask], ...] = (
    *(AskJoin, AskLeave, AskSurvey, AskGrab),
    *(AskActivate, AskWanted, AskDrain, AskRelease),
    *(AskMarked, AskMark, AskOwner, AskAllocate, AskClear),
)
"""All kinds of them, of either rule."""


# --- other commands ---------------------------------------------------------------------------


@dataclass(slots=True)
class PublishChallenge(Command):
    """Publish one message for each of these partitions on the channel grab-lease, in one call."""

    partitions: Sequence[int]


@dataclass(slots=True)
class PublishAllocated(Command):
    """Publish on the channel allocated-lease that this partition has been granted."""

    partition: int


@dataclass(slots=True)
class MeasureWork(Command):
    """Tell with `WorkMeasured`, as an event of its own, what handlers have reported. This is asked
    only where loads count."""


@dataclass(slots=True)
class BeginRenewals(Command):
    """This process is a member: give a sign of life at once, then each period."""


@dataclass(slots=True)
class EndRenewals(Command):
    """Renew nothing more. `RenewalsEnded` says that none is on its way."""


@dataclass(slots=True)
class StartRenewing(Command):
    """Renew this too, from the next renewal on."""

    partition: int
    epoch: int


@dataclass(slots=True)
class StopRenewing(Command):
    """Renew this no more."""

    partition: int
    epoch: int


@dataclass(slots=True)
class RunHandler(Command):
    """Start the handler. It may act up to `fence_s`, unless `LeasesExtended` says more."""

    partition: int
    epoch: int
    fence_s: float


@dataclass(slots=True)
class StopHandler(Command):
    """Ask the handler to stop; it may act up to `by_s`. `HandlerEnded` tells when it has."""

    partition: int
    epoch: int
    by_s: float


@dataclass(slots=True)
class FenceHandler(Command):
    """Let the handler act no more, and ask it to stop if it was not. `HandlerEnded` still tells
    when it has."""

    partition: int
    epoch: int


@dataclass(slots=True)
class LeasesExtended(Command):
    """Let handlers act until these instants: (partition, epoch, instant in s)."""

    leases: list[tuple[int, int, float]]


@dataclass(slots=True)
class Tell(Command):
    """Write a line of the event log (docs/lease-handlers.md)."""

    event: str
    partition: int | None = None
    epoch: int | None = None


@dataclass(slots=True)
class Finished(Command):
    """The member has left: `problem` None after a drain, else why it gave up (exit status 2).
    Nothing is commanded after it."""

    problem: str | None = None


# --- events -----------------------------------------------------------------------------------


@dataclass(slots=True)
class Started(Event):
    """The member begins: it asks to join."""


@dataclass(slots=True)
class Answered(Event):
    """The store's answer to an ask."""

    ask: Ask
    answer: Any = None


@dataclass(slots=True)
class AskFailed(Event):
    """An ask got no answer: it may have been carried out or not."""

    ask: Ask
    problem: str


@dataclass(slots=True)
class RenewalAnswered(Event):
    """A renewal that was sent at `sent_s` with these (partition, epoch) pairs has come back."""

    sent_s: float
    pairs: Sequence[tuple[int, int]]
    answer: Renewed


@dataclass(slots=True)
class LeasesSeen(Event):
    """The instants to which renewals have kept leases, read where they are written down:
    (partition, epoch, instant in s). A shell that wakes late hands this in before anything else:
    then the answers of renewals may still be on their way to it."""

    leases: Sequence[tuple[int, int, float]]


@dataclass(slots=True)
class RenewalFailed(Event):
    """A renewal found no store; the next one follows by itself. `sent_s` is when it was sent, if
    that is known: the store may have answered since."""

    problem: str
    sent_s: float = math.inf


@dataclass(slots=True)
class RenewalsEnded(Event):
    """Answers EndRenewals: no renewal is on its way any more."""


@dataclass(slots=True)
class Challenged(Event):
    """A message on grab-lease; a hint."""

    partition: int


@dataclass(slots=True)
class Allocated(Event):
    """A message on allocated-lease; a hint."""

    partition: int


@dataclass(slots=True)
class Resubscribed(Event):
    """Messages may have been missed."""


@dataclass(slots=True)
class HandlerEnded(Event):
    """The handler has stopped, by itself or because it was told to; `problem` if it raised.
    `stopped`: told to by what watches over its lease, because that was about to end."""

    partition: int
    epoch: int
    problem: str | None = None
    stopped: bool = False


@dataclass(slots=True)
class HandlerHung(Event):
    """The renewal process sees no progress of the handler, and has stopped renewing its lease."""

    partition: int
    epoch: int


@dataclass(slots=True)
class WorkMeasured(Event):
    """Answers MeasureWork: (partition, epoch, all work that its handler has reported since it
    began), None instead of work for one that never did."""

    work: Sequence[tuple[int, int, float | None]]


@dataclass(slots=True)
class Drain(Event):
    """Hand everything over, then leave."""


@dataclass(slots=True)
class TimerFired(Event):
    """The time given by next_deadline() has come."""
