"""Answers that pass through this node as they come: from a *source*, which writes one, to a *sink*,
which gets it. One relay for each passed request that is under way, beside the machine.

The machine decides at the head and at the end; in between nothing is decided, and a piece costs a
call. A sink that cannot get rid of what it has pauses the source. Whoever is paused, or says
nothing, for too long is broken off, which one sweep looks after for all of them.

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
comes on top; with a higher mark a second part would, since a loop writes what is below the mark
only once it has read on."""

SWEEP_S = 1.0

WHOLE, TRUNCATED, CANCELLED = ENDS = ("whole", "truncated", "cancelled")
"""What comes of an answer that has begun."""


class Flow(Protocol):
    """What a sink may do about an answer that comes to it."""

    def pause(self) -> None:
        """Have no more come than what is under way. Does nothing the second time."""

    def resume(self) -> None:
        """Have it go on. Does nothing where it was not paused."""

    @property
    def is_whole(self) -> bool:
        """Returns whether all of it is there: the end follows."""

    @property
    def size_bytes(self) -> int:
        """Returns how long its body is, where all of it is there and is about to come."""


class Sink(Protocol):
    """Gets the answer to one passed request: `begin`, pieces, and `end` or `break_off`; or `settle`
    alone, where nothing has begun. Nothing is called after one of the last three."""

    def hint(self, head: PassedHead) -> None:
        """An interim answer, before the answer begins, if one ever does."""

    def begin(self, head: PassedHead, so_far: ev.SoFar, flow: Flow) -> None:
        """The answer begins; `so_far` is where it comes from and what it took until now. The length
        that the head tells may be empty where all of it is there."""

    def piece(self, data: bytes) -> None:
        """Some of its body, in order."""

    def end(self, trailers: Fields, answer: Answer) -> None:
        """It is whole, whatever its outcome."""

    def break_off(self, answer: Answer | None) -> None:
        """It is not, and never will be: whoever reads it must see that. None: the node ends."""

    def settle(self, told: Told) -> None:
        """The request has come to its end, and there is no answer of a service to pass on."""


class AnswerSource(Protocol):
    """Writes one answer: `Relays.begin`, then `Relay.piece` and `Relay.end` if it was whole. In any
    case it has the machine told of the end after that, as of any request's."""

    def pause(self) -> None:
        """Read no more for now. What has been read already may still be written."""

    def resume(self) -> None:
        """Read on."""

    def close(self, problem: str) -> None:
        """Give up: close what is read from, and have the end told as a failure for this reason."""


class Relay:
    """One passed request's. Sources call `piece` and `end`; sinks are given it as their Flow."""

    __slots__ = ("_held", "began_s", "head", "heard", "is_whole", "since_s", "sink", "source",
                 "taken_s", "trailers", "waits_s")  # fmt: skip

    def __init__(self, sink: Sink, taken_s: float) -> None:
        self.sink = sink
        self.taken_s = taken_s
        self.source: AnswerSource | None = None
        """None before the answer begins."""
        self.head: PassedHead | None = None
        self._held: list[bytes] | None = []
        """Pieces that came before the machine had said that the answer begins; None from then on.
        It says so at once, unless it is busy with what made the source begin."""
        self.trailers: Fields = ()
        self.is_whole = False
        self.heard = True
        """Whether anything has come since the last sweep."""
        self.since_s: float | None = None
        """The instant since which the source is paused."""
        self.began_s = self.waits_s = taken_s
        """When the answer began, and since when, as far as sweeps have seen, nothing has come."""

    @property
    def has_begun(self) -> bool:
        """Returns whether the sink was given the head."""
        return self._held is None

    @property
    def size_bytes(self) -> int:
        """Returns the size of the body that is held (`Flow`)."""
        return sum(map(len, self._held or ()))

    def piece(self, data: bytes) -> None:
        """Some of the body has come."""
        self.heard = True
        if self._held is None:
            self.sink.piece(data)
        else:
            self._held.append(data)

    def hold(self, head: PassedHead, body: list[bytes], trailers: Fields) -> None:
        """Hold a whole answer until the machine says that it begins."""
        self.head, self._held, self.trailers, self.is_whole = head, body, trailers, True

    def let_go(self) -> None:
        """What was held back is not the answer."""
        if self.is_whole:
            self._held, self.trailers, self.is_whole = [], (), False

    def end(self, trailers: Fields = ()) -> None:
        """All of it has come. The sink hears of it with the request's end."""
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
        """The machine says so: from now on pieces pass."""
        if self.head is None or self._held is None:
            return
        self.sink.begin(self.head, so_far, self)
        held, self._held = self._held, None
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
        """Is called with the seconds from a client's request to the head of its answer."""
        self._open: dict[int, Relay] = {}
        self._begun: dict[int, Relay] = {}
        """Those of them whose answer has begun: what the sweep looks at."""
        self._sweeps = False
        self.ends: Counter[str] = Counter(dict.fromkeys(ENDS, 0))
        """What has come of answers that had begun."""

    def go_by(self, cluster: Cluster) -> None:
        """Keep to the limits of this cluster from now on."""
        self.stall_s, self.idle_s = cluster.passed_stall_ms / 1e3, cluster.passed_idle_ms / 1e3
        total_ms = cluster.passed_total_ms
        self.total_s = math.inf if total_ms is None else total_ms / 1e3

    def __len__(self) -> int:
        """How many passed requests are under way."""
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
        """A passed request is about to be taken; its sink hears what it comes to."""
        self._open[ref] = Relay(sink, time.monotonic())
        self._waiters.wait(ref, partial(self._told, ref))

    def hint(self, ref: int, head: PassedHead) -> None:
        """An interim answer has come, which the machine need not know of."""
        relay = self._open.get(ref)
        if relay is not None and not relay.has_begun:
            relay.sink.hint(head)

    def hold(self, ref: int, head: PassedHead, body: bytes, trailers: Fields) -> None:
        """A whole answer is there, which begins only if the machine says so: it is decided again
        where the request runs. Another one takes its place, if one begins or is held."""
        relay = self._open.get(ref)
        if relay is not None:
            relay.hold(head, [body] if body else [], trailers)

    def begin(self, event: ev.ResponseBegan, source: AnswerSource, head: PassedHead) -> Relay:
        """An answer begins, and its pieces follow. Where the request has ended since, they come to
        nothing, and the source hears from the machine that it is stopped."""
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
        """All of an answer is there at once. Its end is told next."""
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
        """The request has come to its end, or the node does."""
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
        """Break off what has stood still for too long. Looked at all the while a write is blocked,
        since nothing of it waits here."""
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
    """Nobody wants to know."""


class _Nowhere:
    """The sink of what nobody waits for any more."""

    def hint(self, head: PassedHead) -> None: ...
    def begin(self, head: PassedHead, so_far: ev.SoFar, flow: Flow) -> None: ...
    def piece(self, data: bytes) -> None: ...
    def end(self, trailers: Fields, answer: Answer) -> None: ...
    def break_off(self, answer: Answer | None) -> None: ...
    def settle(self, told: Told) -> None: ...
