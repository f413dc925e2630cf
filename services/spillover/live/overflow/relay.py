"""Answers that pass through this node as they come: from a *source*, which writes one, to a *sink*,
which gets it. Each passed request that is under way has one relay, beside the machine.

The machine decides at the head and at the end; in between nothing is decided, and a piece costs a
call. A sink that cannot get rid of what it has pauses the source. An answer that is paused, or
silent, for too long is broken off; one sweep looks after all of them.

What an answer is made of, and how its bytes travel, is known to sources and sinks.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from spillover.core.overflow import events as ev
from spillover.live.engine.timers import Timers
from spillover.live.overflow.waiters import Told, Waiters
from spillover.model.passed import Fields, PassedHead
from spillover.model.request import Answer, Outcome
from spillover.model.topology import Cluster

UNSENT_MAX_BYTES = 2_048
"""A sink pauses its source while its connection has more than this unsent."""

UNSENT_RESUME_BYTES = 0
"""A sink lets its paused source go on once its connection has no more than this unsent.

Why: the system holds much more, so that the connection is not idle meanwhile. What is read at once
comes on top. With a higher mark a second part would come too, since a loop writes what is below the
mark only once it has read on.
"""

SWEEP_S = 1.0

WHOLE, TRUNCATED, CANCELLED = ENDS = ("whole", "truncated", "cancelled")
"""The ways in which an answer that has begun can end."""


class Flow(Protocol):
    """The control of a sink over an answer that comes to it."""

    def pause(self) -> None:
        """Have no more come than what is under way. A second call does nothing."""

    def resume(self) -> None:
        """Have the answer go on. The call does nothing if it was not paused."""

    @property
    def is_whole(self) -> bool:
        """Returns whether all of the answer is there, so that its end follows."""

    @property
    def size_bytes(self) -> int:
        """Returns the length of the body where all of it is there and is about to come."""


class Sink(Protocol):
    """The receiver of the answer to one passed request.

    It is called with `begin`, pieces, and `end` or `break_off`; or with `settle` alone, where
    nothing has begun. Nothing is called after one of the last three.
    """

    def hint(self, head: PassedHead) -> None:
        """Take an interim answer, which comes before the answer begins, if that ever does."""

    def begin(self, head: PassedHead, so_far: ev.SoFar, flow: Flow) -> None:
        """Take the head of the answer; `so_far` says where it comes from and what it took until
        now. The head may lack a length where all of the answer is there."""

    def piece(self, data: bytes) -> None:
        """Take the next piece of the body."""

    def end(self, trailers: Fields, answer: Answer) -> None:
        """Take the end of an answer that is whole, whatever its outcome."""

    def break_off(self, answer: Answer | None) -> None:
        """Break the answer off, so that its reader sees that it is not whole and never will be.
        `answer` is None if the node ends."""

    def settle(self, told: Told) -> None:
        """Take the outcome of a request that has no answer of a service to pass on."""


class AnswerSource(Protocol):
    """The writer of one answer: it calls `Relays.begin`, then `Relay.piece`, and `Relay.end` if the
    answer was whole. In any case it has the machine told of the end after that, as of any
    request's."""

    def pause(self) -> None:
        """Read no more for now. What has been read already may still be written."""

    def resume(self) -> None:
        """Read on."""

    def close(self, problem: str) -> None:
        """Give up: close what is read from, and have the answer end as failed for the reason
        `problem`."""


class Relay:
    """The relay of one passed request. Sources call `piece` and `end`; sinks get it as their
    Flow."""

    __slots__ = ("_held", "began_s", "has_begun", "head", "heard", "is_whole", "since_s", "sink",
                 "source", "taken_s", "trailers", "waits_s")  # fmt: skip

    def __init__(self, sink: Sink, taken_s: float) -> None:
        self.sink = sink
        self.taken_s = taken_s
        self.source: AnswerSource | None = None
        """The source of the answer; None before the answer begins."""
        self.head: PassedHead | None = None
        self._held: list[bytes] = []
        """Pieces that came before the machine had said that the answer begins. The machine says so
        at once, unless it is busy with the event that made the source begin."""
        self.has_begun = False
        """Whether the sink was given the head."""
        self.trailers: Fields = ()
        self.is_whole = False
        self.heard = True
        """Whether anything has come since the last sweep."""
        self.since_s: float | None = None
        """The time since which the source is paused; None while it is not."""
        self.began_s = self.waits_s = taken_s
        """The time when the answer began, and the time since which nothing has come, as far as
        sweeps have seen."""

    @property
    def size_bytes(self) -> int:
        """Returns the size of the body that is held (`Flow`)."""
        return sum(map(len, self._held))

    def piece(self, data: bytes) -> None:
        """Pass on, or hold, a piece of the body that has come."""
        self.heard = True
        if self.has_begun:
            self.sink.piece(data)
        else:
            self._held.append(data)

    def hold(self, head: PassedHead, body: list[bytes], trailers: Fields) -> None:
        """Hold a whole answer until the machine says that it begins."""
        self.head, self._held, self.trailers, self.is_whole = head, body, trailers, True

    def let_go(self) -> None:
        """Drop the answer that was held back: another one takes its place."""
        if self.is_whole:
            self._held, self.trailers, self.is_whole = [], (), False

    def end(self, trailers: Fields = ()) -> None:
        """Note that all of the answer has come. The sink gets its end with the request's end."""
        self.is_whole, self.trailers = True, trailers

    def pause(self) -> None:
        if self.since_s is None and self.source is not None and not self.is_whole:
            self.since_s = time.monotonic()
            self.source.pause()

    def resume(self) -> None:
        if self.since_s is not None and self.source is not None:
            self.since_s, self.heard = None, True
            self.source.resume()

    def begin(self, so_far: ev.SoFar) -> None:
        """Pass pieces on from now on, as the machine has said that the answer begins."""
        if self.head is None or self.has_begun:
            return
        self.sink.begin(self.head, so_far, self)
        self.has_begun = True
        held, self._held = self._held, []
        for data in held:
            self.sink.piece(data)


class Relays:
    """All relays of a node, by ref. `feed` hands events to the machine.

    An answer may be paused for `stall_s`, say nothing for `idle_s`, and take `total_s` in all.
    """

    def __init__(
        self,
        feed: Callable[[Any], None],
        waiters: Waiters,
        timers: Timers,
    ) -> None:
        self._feed = feed
        self._waiters = waiters
        self._timers = timers
        self.stall_s, self.idle_s, self.total_s = 60.0, 300.0, math.inf
        self.on_head: Callable[[float], None] = _nothing
        """Called with the seconds from a client's request to the head of its answer."""
        self._open: dict[int, Relay] = {}
        self._begun: dict[int, Relay] = {}
        """The relays whose answer has begun: these are what the sweep looks at."""
        self._sweeps = False
        self.ends: Counter[str] = Counter(dict.fromkeys(ENDS, 0))
        """The number of answers that had begun, by how they ended."""

    def go_by(self, cluster: Cluster) -> None:
        """Keep to the limits of this cluster from now on."""
        self.stall_s, self.idle_s = cluster.passed_stall_ms / 1e3, cluster.passed_idle_ms / 1e3
        total_ms = cluster.passed_total_ms
        self.total_s = math.inf if total_ms is None else total_ms / 1e3

    def __len__(self) -> int:
        """Returns how many passed requests are under way."""
        return len(self._open)

    @property
    def begun(self) -> int:
        """Returns how many answers pass now."""
        return len(self._begun)

    def head_of(self, ref: int) -> PassedHead | None:
        """Returns the head of an answer that begins or passes now."""
        relay = self._open.get(ref)
        return None if relay is None else relay.head

    def open(self, ref: int, sink: Sink) -> None:
        """Open the relay of a passed request that is about to be taken; its sink gets the
        outcome."""
        self._open[ref] = Relay(sink, time.monotonic())
        self._waiters.wait(ref, partial(self._told, ref))

    def hint(self, ref: int, head: PassedHead) -> None:
        """Pass on an interim answer, of which the machine need not know."""
        relay = self._open.get(ref)
        if relay is not None and not relay.has_begun:
            relay.sink.hint(head)

    def hold(self, ref: int, head: PassedHead, body: bytes, trailers: Fields) -> None:
        """Hold a whole answer, which begins only if the machine says so: where the request runs, it
        is decided again. Another answer takes its place, if one begins or is held."""
        relay = self._open.get(ref)
        if relay is not None:
            relay.hold(head, [body] if body else [], trailers)

    def begin(self, event: ev.ResponseBegan, source: AnswerSource, head: PassedHead) -> Relay:
        """Begin an answer whose pieces follow. If the request has ended since, the pieces come to
        nothing, and the machine tells the source to stop."""
        relay = self._open.get(event.ref)
        if relay is None:
            return Relay(_Nowhere(), 0.0)
        relay.let_go()
        relay.source, relay.head = source, head
        self._feed(event)
        return relay

    def whole(
        self, event: ev.ResponseBegan, head: PassedHead, body: bytes, trailers: Fields
    ) -> None:
        """Take an answer that is there whole at once. The call with its end comes next."""
        relay = self._open.get(event.ref)
        if relay is not None:
            relay.hold(head, [body] if body else [], trailers)
            self._feed(event)

    def began(self, command: ev.Began) -> None:
        """Carry the machine's command out: an answer has begun."""
        relay = self._open[command.ref]
        now_s = time.monotonic()
        relay.began_s = relay.waits_s = now_s
        if command.origin == ev.HOME:
            self.on_head(now_s - relay.taken_s)
        if not relay.is_whole:
            self._begun[command.ref] = relay
        relay.begin(command.so_far)
        if self._begun and not self._sweeps:
            self._sweeps = True
            self._timers.at(now_s + SWEEP_S, self._sweep)

    def _told(self, ref: int, told: Told) -> None:
        """Give the sink the end of its request, or of the node."""
        relay = self._open.pop(ref)
        self._begun.pop(ref, None)
        # What the source still writes comes to nothing: it may not know yet.
        sink, relay.sink = relay.sink, _Nowhere()
        relay.source = None  # which holds the relay: neither must wait for a garbage collection
        if not relay.has_begun:
            sink.settle(told)
            return
        answer = told if isinstance(told, Answer) else None
        if answer is not None and relay.is_whole:
            self.ends[WHOLE] += 1
            sink.end(relay.trailers, answer)
            return
        was_cancelled = answer is not None and answer.outcome is Outcome.CANCELLED
        self.ends[CANCELLED if was_cancelled else TRUNCATED] += 1
        sink.break_off(answer)

    def _sweep(self, _: float) -> None:
        """Break off the answers that have stood still for too long. A blocked write is looked at
        all the while, since nothing of it waits here."""
        now_s = time.monotonic()
        for ref, relay in list(self._begun.items()):
            if relay.heard:
                relay.heard, relay.waits_s = False, now_s
            if relay.source is None or relay.is_whole:
                continue
            is_over = now_s - relay.began_s >= self.total_s
            if is_over or (relay.since_s is not None and now_s - relay.since_s >= self.stall_s):
                # As a client's that has left: it is no fault of the service.
                self._feed(ev.Cancelled(ref))
            elif relay.since_s is None and now_s - relay.waits_s >= self.idle_s:
                relay.source.close(f"nothing more of the answer came for {self.idle_s:g} s")
        self._sweeps = bool(self._begun)
        if self._sweeps:
            self._timers.at(now_s + SWEEP_S, self._sweep)


def _nothing(_: float) -> None:
    """Do nothing: nobody wants to know."""


class _Nowhere:
    """The sink of an answer that nobody waits for any more."""

    def hint(self, head: PassedHead) -> None: ...
    def begin(self, head: PassedHead, so_far: ev.SoFar, flow: Flow) -> None: ...
    def piece(self, data: bytes) -> None: ...
    def end(self, trailers: Fields, answer: Answer) -> None: ...
    def break_off(self, answer: Answer | None) -> None: ...
    def settle(self, told: Told) -> None: ...
