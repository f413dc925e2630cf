"""The machine of one link to a neighbor: which forwards are away over it, and how they end.

Theory of operation. A request that is handed over stands on a connection of its own until something
comes back on it. As long as it has not left, it surely is not there. Afterwards only an answer or a
refusal tells; if neither will come, the request is lost: it may have run (decision 0008). So each
forward ends in exactly one of four ways, whatever else happens to it.

- *answered*, or *refused*: the neighbor has said so, or it surely was not delivered; - *lost*: it
had left, and its connection broke or the neighbor fell silent for good; - *recalled*: its sender
does not wait for it any more, or took it back before it had left.

A cancel whose answer is awaited overtakes its forward or is lost now and then. Nothing relies on
it: it is sent a few times, and the forward alone says how it ended.

The neighbor's reports come on a stream. One on which nothing comes for `silence_s` is broken off
and opened anew. If nothing comes on the new one at all, all that the neighbor holds is given up. So
is all that is away to a neighbor that has left. Of a neighbor of several nodes one is called, and
the next one once a stream from it has not spoken at all: then what that node holds is given up.

Calls tell the machine what happens to every forward: `hand_over`, `left`, `answered`. For the rest,
shells give events in and obey commands in their order. They alone know what a connection, a delay
or a message is: a shell with sockets in `live.overflow`, one with channels in `sim.overflow`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from spillover.core.agenda import Agenda
from spillover.core.overflow import events as ev
from spillover.model.causes import Cause
from spillover.model.load import LoadNow
from spillover.policy.backoff import backoff_s

STREAM_SILENCE_S = 2.5
"""The time, in seconds, after which a silent stream is broken off and opened anew, beyond the
link's delay both ways.

The machine of the cluster has long made the neighbor unknown by then; this is about the requests
that the neighbor holds. If it is silent on the new stream too, they are given up, some 5 s after
its last sign of life. The time is long, since a neighbor that was only slow may still answer.
"""

RETRY_FIRST_S = 0.05
RETRY_LONGEST_S = 1.0
"""The longest pause, in seconds, before a stream is opened anew."""

CANCEL_ATTEMPTS_MAX = 5
CANCEL_AGAIN_S = 0.1
"""The pause, in seconds, before the second attempt to cancel; it doubles with each. A cancel may
overtake its forward, or be lost."""

NOT_LEFT = -1
NOT_CALLED = -1

ANSWERED, REFUSED, LOST, RECALLED = "answered", "refused", "lost", "recalled"


# --- events -----------------------------------------------------------------------------------


@dataclass(slots=True)
class Refused:
    """The neighbor surely has not accepted the forward: it says so, perhaps with its load, or was
    not reached."""

    ref: int
    load: LoadNow | None = None
    upstream_status: int | None = None


@dataclass(slots=True)
class Broken:
    """No answer will come, or no more of it. The link has lost the forward, its connection broke,
    or the neighbor says so, perhaps with the reason."""

    ref: int
    cause: Cause | None = None
    problem: str | None = None


@dataclass(slots=True)
class Recalled:
    """Nobody waits for the answer any more."""

    ref: int


@dataclass(slots=True)
class CancelAsked:
    """The forward is to be cancelled; its answer is waited for."""

    ref: int


@dataclass(slots=True)
class CancelFailed:
    """An attempt to cancel came to nothing: the forward was overtaken, has just ended, or the way
    is bad. The forward's own end says which of these it was."""

    ref: int


@dataclass(slots=True)
class StreamBegun:
    """A stream of reports was asked for."""


@dataclass(slots=True)
class StreamHeard:
    """Something has come on the stream."""


@dataclass(slots=True)
class StreamEnded:
    """The stream was ended, broke, fell silent or could not be opened.

    `is_there` says that the neighbor is there all the same: one of the two does not believe the
    other's certificate, or the neighbor wants another of its nodes to be called. That says nothing
    of what the neighbor holds, since older connections carry their answers.
    """

    is_there: bool = False


@dataclass(slots=True)
class Disconnected:
    """The neighbor has left: neither answers nor reports are waited for."""


# --- commands ---------------------------------------------------------------------------------


@dataclass(slots=True)
class LetGo:
    """Take the forward back if it has not left. If it has, close its connection, which is how the
    neighbor learns of it."""

    ref: int


@dataclass(slots=True)
class Ended:
    """The forward has ended in one of four ways; the cluster gets `event`, if there is one."""

    ref: int
    how: str
    event: Any = None


@dataclass(slots=True)
class SendCancel:
    """Send one attempt to cancel the forward; `CancelFailed` is to follow if it comes to
    nothing."""

    ref: int


@dataclass(slots=True)
class Tell:
    """Give this event to the cluster."""

    event: Any


@dataclass(slots=True)
class CallNext:
    """Call the next node of the neighbor from now on. Forwards that have left stay where they
    are."""


@dataclass(slots=True)
class OpenStream:
    """Open a stream of reports anew: the pause after the last one is over."""


class LinkMachine:
    """The link to the neighbor with this handle, which has so many nodes. The pauses of the stream
    are drawn from `random`."""

    def __init__(self, neighbor: int, random: Random, nodes: int = 1) -> None:
        self.neighbor = neighbor
        self._nodes = nodes
        self._called = 0
        """The index of the node that is called."""
        self._behind: dict[int, int] = {}
        """The indices of the nodes to which forwards left before another node was called."""
        self._random = random
        self._away: dict[int, int] = {}
        """The number of times that the cancel of each forward was sent, or NOT_LEFT, by ref."""
        self.has_heard = False
        """Whether anything has come on the present stream."""
        self._attempt = 0
        self._agenda = Agenda()
        """The cancels that are sent again, and the stream that is opened anew."""
        self._out: list[Any] = []
        self._handlers: dict[type, Callable[[Any, float], None]] = {
            Refused: self._refused,
            Broken: self._broken,
            Recalled: self._recalled,
            CancelAsked: self._cancel_asked,
            CancelFailed: self._cancel_failed,
            StreamBegun: self._stream_begun,
            StreamHeard: self._stream_heard,
            StreamEnded: self._stream_ended,
            Disconnected: self._disconnected,
            ev.TimerFired: lambda _, now_s: self._agenda.run_due(now_s),
        }

    def __len__(self) -> int:
        """Returns how many forwards are away."""
        return len(self._away)

    def awaits(self, ref: int) -> bool:
        return ref in self._away

    @staticmethod
    def silence_s(delay_s: float) -> float:
        """Returns the time, in seconds, for which a stream over a link of this delay may be
        silent."""
        return STREAM_SILENCE_S + 2 * delay_s

    def next_deadline(self) -> float:
        """Returns the time when a cancel is to be sent again, or the stream opened anew."""
        return self._agenda.first_s()

    def handle(self, event: Any, now_s: float) -> list[Any]:
        """Returns the commands that the event leads to, in order; none if it is about a forward or
        a stream that has ended."""
        self._handlers[type(event)](event, now_s)
        commands, self._out = self._out, []
        return commands

    def check(self) -> None:
        """Raise AssertionError if the state contradicts itself."""
        for cancels in self._away.values():
            assert NOT_LEFT <= cancels <= CANCEL_ATTEMPTS_MAX

    # --- forwards -----------------------------------------------------------------------------

    def hand_over(self, ref: int, *, has_left: bool = False) -> None:
        """Takes a request for the neighbor. The shell has it leave at once, or calls `left` when it
        has: from then on the neighbor may have it."""
        self._away[ref] = 0 if has_left else NOT_LEFT

    def left(self, ref: int) -> None:
        """Notes that the forward has left for the node that is called."""
        if self._away.get(ref) == NOT_LEFT:
            self._away[ref] = 0
        if self._behind:
            self._behind.pop(ref, None)

    def answered(self, ref: int) -> bool:
        """Ends the forward, since its answer is there. Returns whether it was still away."""
        return self._away.pop(ref, None) is not None

    def _refused(self, event: Refused, _: float) -> None:
        refused = ev.ForwardRefused(event.ref, event.load, event.upstream_status)
        self._end(event.ref, REFUSED, refused)

    def _broken(self, event: Broken, _: float) -> None:
        self._end(event.ref, LOST, ev.ForwardLost(event.ref, event.cause, event.problem))

    def _end(self, ref: int, how: str, event: Any) -> None:
        if self._away.pop(ref, None) is not None:
            self._out.append(Ended(ref, how, event))

    def _recalled(self, event: Recalled, _: float) -> None:
        if self._away.pop(event.ref, None) is not None:
            self._out.append(LetGo(event.ref))
            self._out.append(Ended(event.ref, RECALLED))

    def _give_up(self, refs: list[int]) -> None:
        """Ends these forwards, since the neighbor is frozen, cut off, or gone without a word. Those
        that it holds are lost; those that have not left surely are not there, and never leave. All
        are let go of before any end is told, since a listener may hand the next request over."""
        self._out += map(LetGo, refs)
        for ref, cancels in [(ref, self._away.pop(ref)) for ref in refs]:
            if cancels == NOT_LEFT:
                self._out.append(Ended(ref, REFUSED, ev.ForwardRefused(ref)))
            else:
                self._out.append(Ended(ref, LOST, ev.ForwardLost(ref)))

    # --- cancels ------------------------------------------------------------------------------

    def _cancel_asked(self, event: CancelAsked, _: float) -> None:
        """Cancels a forward. If it has not left, it never does and comes back as refused; else the
        neighbor is asked to cancel it, and its answer says how it ended."""
        ref = event.ref
        cancels = self._away.get(ref)
        if cancels == 0:
            self._away[ref] = 1
            self._out.append(SendCancel(ref))
        elif cancels == NOT_LEFT:
            del self._away[ref]
            self._out.append(LetGo(ref))
            self._out.append(Ended(ref, RECALLED, ev.ForwardRefused(ref)))

    def _cancel_failed(self, event: CancelFailed, now_s: float) -> None:
        cancels = self._away.get(event.ref)
        if cancels is not None and cancels < CANCEL_ATTEMPTS_MAX:
            again_s = now_s + CANCEL_AGAIN_S * 2.0 ** (cancels - 1)
            self._agenda.at(again_s, self._cancel_again, event.ref)

    def _cancel_again(self, ref: int, _: float) -> None:
        if self._away.get(ref, NOT_LEFT) > 0:  # else it has ended, and may be away anew
            self._away[ref] += 1
            self._out.append(SendCancel(ref))

    # --- the stream of reports ----------------------------------------------------------------

    def _stream_begun(self, _: StreamBegun, __: float) -> None:
        self.has_heard = False

    def _stream_heard(self, _: StreamHeard, __: float) -> None:
        self.has_heard = True

    def _stream_ended(self, event: StreamEnded, now_s: float) -> None:
        """Ends a stream. One that never spoke shows that the neighbor is silent, or the node of it
        that is called."""
        if self.has_heard:
            self._attempt = 0
            self._out.append(Tell(ev.LinkDown(self.neighbor)))
        else:
            called, behind = self._called, self._behind
            here = [ref for ref in self._away if behind.get(ref, called) == called]
            if self._nodes > 1:  # before any end is told, as whoever hears of one may hand it over
                self._call_next()
            if not event.is_there:
                self._give_up(here)
        draw = self._random.random()
        pause_s = backoff_s(self._attempt, RETRY_FIRST_S, RETRY_LONGEST_S, draw)
        self._agenda.at(now_s + pause_s, lambda _: self._out.append(OpenStream()))
        self._attempt += 1

    def _disconnected(self, _: Disconnected, __: float) -> None:
        self._agenda.clear()
        self._give_up(list(self._away))

    def use_nodes(self, nodes: int) -> None:
        """Uses so many nodes of the neighbor from now on, of which the called one is the first.
        Forwards that are away at another node end only by their connections from now on."""
        behind, self._behind = self._behind, {}
        for ref, node in behind.items():
            if node != self._called:
                self._behind[ref] = NOT_CALLED
        self._called, self._nodes = 0, nodes

    def _call_next(self) -> None:
        self._behind = {
            ref: self._behind.get(ref, self._called)
            for ref, cancels in self._away.items()
            if cancels != NOT_LEFT
        }
        self._called = (self._called + 1) % self._nodes
        self._out.append(CallNext())
