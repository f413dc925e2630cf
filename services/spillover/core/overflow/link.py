"""The machine of one link to a neighbor: what is away over it, and what becomes of that.

Theory of operation. A request that is handed over stands on a connection of its own until something
comes back on it. As long as it has not left, it surely is not there; afterwards only an answer or a
refusal tells, and where neither will come it is lost: it may have run (decision 0008). So each
forward ends in exactly one of four ways, whatever else happens to it.

- *answered*, or *refused*: the neighbor has said so, or it surely was not delivered;
- *lost*: it had left, and its connection broke or the neighbor fell silent for good;
- *recalled*: its sender does not wait for it any more, or took it back before it had left.

A cancel that somebody waits for overtakes its forward or is lost now and then. Nothing relies on
it: it is sent a few times, and what became of the forward is told by the forward alone.

The neighbor's reports come on a stream. One on which nothing comes for `silence_s` is broken off
and opened anew; one on which nothing comes at all means that what the neighbor holds is given up.
So is what is away to a neighbor that is none any more. Of a neighbor of several nodes one is
called, and the next one once a stream from it has not spoken at all: what is given up is what that
node holds.

What happens to every forward is told by calls: `hand_over`, `left`, `answered`. For the rest shells
give events in and obey commands in their order. What a connection, a delay or a message is
they alone know: one with sockets in `live.overflow`, one with channels in `sim.overflow`.
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
"""A stream on which nothing arrives for this long, beyond the link's delay both ways, is broken off
and opened anew. The machine of the cluster has long made the neighbor unknown; this is about what
it holds: if it says nothing on the new stream either, that is given up, some 5 s after its last
sign of life. Long, since a neighbor that was only slow may still answer.
"""

RETRY_FIRST_S = 0.05
RETRY_LONGEST_S = 1.0
"""Pauses before a stream is opened anew."""

CANCEL_ATTEMPTS_MAX = 5
CANCEL_AGAIN_S = 0.1
"""The pause before the second attempt; it doubles with each. A cancel may overtake its forward, or
be lost."""

NOT_LEFT = -1
NOT_CALLED = -1

ANSWERED, REFUSED, LOST, RECALLED = "answered", "refused", "lost", "recalled"


# --- events -----------------------------------------------------------------------------------


@dataclass(slots=True)
class Refused:
    """The neighbor surely has not accepted it: it says so, perhaps with its load, or was not
    reached."""

    ref: int
    load: LoadNow | None = None
    upstream_status: int | None = None


@dataclass(slots=True)
class Broken:
    """The link has lost the forward, its connection broke, or the neighbor says so, perhaps with
    the reason: no answer will come, or no more of it."""

    ref: int
    cause: Cause | None = None
    problem: str | None = None


@dataclass(slots=True)
class Recalled:
    """Nobody waits for the answer any more."""

    ref: int


@dataclass(slots=True)
class CancelAsked:
    """Cancel the forward; the answer is waited for."""

    ref: int


@dataclass(slots=True)
class CancelFailed:
    """An attempt came to nothing: the forward was overtaken, has just ended, or the way is bad.
    Which of these, the forward's own end tells."""

    ref: int


@dataclass(slots=True)
class StreamBegun:
    """A stream of reports is asked for."""


@dataclass(slots=True)
class StreamHeard:
    """Something has come on the stream."""


@dataclass(slots=True)
class StreamEnded:
    """The stream was ended, broke, fell silent or could not be opened. `is_there`: what is at the
    neighbor's address is there, and one of the two does not believe the other's certificate, or it
    wants another node of its cluster to be called. That tells nothing of what the neighbor holds:
    connections from before carry their answers."""

    is_there: bool = False


@dataclass(slots=True)
class Disconnected:
    """The neighbor is none any more: neither answers nor reports are waited for."""


# --- commands ---------------------------------------------------------------------------------


@dataclass(slots=True)
class LetGo:
    """Take the forward back if it has not left, else close its connection, which is how the
    neighbor learns of it."""

    ref: int


@dataclass(slots=True)
class Ended:
    """The forward has ended in one of four ways; the cluster hears `event`, if there is one."""

    ref: int
    how: str
    event: Any = None


@dataclass(slots=True)
class SendCancel:
    """Send one attempt to cancel the forward; tell `CancelFailed` if it comes to nothing."""

    ref: int


@dataclass(slots=True)
class Tell:
    """The cluster hears of this event."""

    event: Any


@dataclass(slots=True)
class CallNext:
    """Call the next node of the neighbor from now on. What has left stays where it is."""


@dataclass(slots=True)
class OpenStream:
    """Ask for a stream of reports anew: the pause after the last one is over."""


class LinkMachine:
    """The link to the neighbor with this handle, which has so many nodes. `random` draws the pauses
    of the stream."""

    def __init__(self, neighbor: int, random: Random, nodes: int = 1) -> None:
        self.neighbor = neighbor
        self._nodes = nodes
        self._called = 0
        """The node that is called, counted from 0."""
        self._behind: dict[int, int] = {}
        """The nodes of forwards that left before another one was called."""
        self._random = random
        self._away: dict[int, int] = {}
        """How often the cancel of each forward was sent, or NOT_LEFT."""
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
        """How many forwards are away."""
        return len(self._away)

    def awaits(self, ref: int) -> bool:
        """Returns whether this forward is still away."""
        return ref in self._away

    @staticmethod
    def silence_s(delay_s: float) -> float:
        """Returns how long nothing may come on a stream over a link of this delay."""
        return STREAM_SILENCE_S + 2 * delay_s

    def next_deadline(self) -> float:
        """Returns when a cancel is to be sent again, or the stream to be opened anew."""
        return self._agenda.first_s()

    def handle(self, event: Any, now_s: float) -> list[Any]:
        """Returns what is to be done about the event, in this order: nothing if it is about what
        has ended.
        """
        self._handlers[type(event)](event, now_s)
        commands, self._out = self._out, []
        return commands

    def check(self) -> None:
        """Raise AssertionError if the state contradicts itself."""
        for cancels in self._away.values():
            assert NOT_LEFT <= cancels <= CANCEL_ATTEMPTS_MAX

    # --- forwards -----------------------------------------------------------------------------

    def hand_over(self, ref: int, *, has_left: bool = False) -> None:
        """Takes a request for the neighbor. The shell has it leave at once, or says `left` when it
        does: the neighbor may have it then."""
        self._away[ref] = 0 if has_left else NOT_LEFT

    def left(self, ref: int) -> None:
        """Notes that the forward is out of our hands, on its way to the node that is called."""
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
        """Ends these: the neighbor is frozen, cut off, or gone without a word. What it holds is
        lost; what has not left surely is not there, and never leaves: all is let go of before any
        end is told, since whoever hears of one may do what was due."""
        self._out += map(LetGo, refs)
        for ref, cancels in [(ref, self._away.pop(ref)) for ref in refs]:
            if cancels == NOT_LEFT:
                self._out.append(Ended(ref, REFUSED, ev.ForwardRefused(ref)))
            else:
                self._out.append(Ended(ref, LOST, ev.ForwardLost(ref)))

    # --- cancels ------------------------------------------------------------------------------

    def _cancel_asked(self, event: CancelAsked, _: float) -> None:
        """Unsent it never leaves and comes back as refused, else the neighbor is asked to cancel
        it, and its answer is what it comes to."""
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
        """A stream that never spoke tells that the neighbor is silent, or the node of it that is
        called."""
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
        """The neighbor has so many nodes from now on, the one that is called among them. Of what is
        away at another one, only its connection tells from now on."""
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
