"""The machine of one consumer: which producer it asks, and what becomes of the objects it is given.

Theory of operation. While somebody waits for objects there is one *take* under way for each hand
that is free, at a producer drawn by the access probabilities. An answer brings the object, or where
to fetch it, or nothing; then the next take begins. An object that is *held* is extended each third
of its visibility time until the handler is done with it, then acknowledged, again and again until
that is heard or the grant must have ended. A producer that cannot be reached is passed over for a
while.

With learned access the probabilities follow the objects that came (`policy.queue`).

Not here: HTTP, what a handler does, clocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from random import Random
from typing import Any

from spillover.core.agenda import Agenda
from spillover.core.queue import consumer_events as ev
from spillover.policy.backoff import backoff_s
from spillover.policy.queue import learned_access, pick_producer

PASSED_OVER_S = 1.0
"""A producer that could not be reached is not asked for so long, while there are others; twice as
long each time, up to PASSED_OVER_S_MAX."""

PASSED_OVER_S_MAX = 30.0

CHECK_S = 5.0
"""A producer that has not answered a take for so long is asked whether it is there, and again after
as long: one that hangs keeps its connections open."""

AGAIN_S = 0.2
"""An acknowledgement that was not heard is sent again after this time, then after twice as long,
and so on."""

EXTENSIONS = 3
"""So many within a visibility time: two may be lost."""

FORGET_OBJECTS = 200.0
"""The weight of earlier objects halves in so many objects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """The settings of one consumer."""

    name: str
    producers: tuple[str, ...]
    access: Mapping[str, float] | None
    """The probability with which each producer is asked first. None: uniform at first, and learned
    from then on if `learns`."""
    learns: bool
    max_hops: int
    avoid_visited: bool
    at_once: int
    """How many objects may be held at the same time."""
    take_s: float
    """How long a take waits at most."""


class _Held:
    """An object that the handler has, or that is to be acknowledged."""

    def __init__(self, producer: str, visibility_s: float, now_s: float) -> None:
        self.producer = producer
        self.visibility_s = visibility_s
        self.until_s = now_s + visibility_s
        """The grant ends then, by what was heard."""
        self.asked_s: float | None = None
        """When the first extension left that has not been heard: what is heard holds from there."""
        self.due_s = now_s + self.step_s
        """When the next one is to leave."""
        self.is_lost = False
        self.alarm = 0
        """The agenda's alarm that extends the grant, then sends its end again."""
        self.end: str | None = None
        """How it ended, once it has: `ack` or `nack`."""
        self.rest_s: float | None = None
        """How long it is to rest, if it was not handled; None: as its producer has it."""

    @property
    def step_s(self) -> float:
        """Returns how long to wait from one extension to the next."""
        return self.visibility_s / EXTENSIONS


class _Take:
    """A take under way."""

    def __init__(self, producer: str) -> None:
        self.producer = producer
        """The one that was asked last."""
        self.alarm = 0
        """The agenda's alarm that asks whether the take is there."""


class ConsumerMachine:
    """One consumer. `random` draws producers, and the names of takes."""

    def __init__(self, settings: ConsumerSettings, random: Random) -> None:
        self.settings = settings
        self._random = random
        self._objects = dict.fromkeys(settings.producers, 0.0)
        self._access = dict(settings.access or self._even())
        self._failed: dict[str, tuple[int, float]] = {}
        """Producers that could not be reached: how often in a row, and until when that counts."""
        self._takes: dict[str, _Take] = {}
        self._held: dict[str, _Held] = {}
        self._running = False
        self._is_over = False
        self._retry_s = math.inf
        """When it asks again, while all producers are passed over."""
        self._agenda = Agenda()
        self._out: list[ev.Command] = []
        self._handlers: dict[type, Callable[[Any, float], None]] = {
            ev.Started: self._started,
            ev.Paused: self._paused,
            ev.Given: self._given,
            ev.Pointed: self._pointed,
            ev.Nothing: self._nothing,
            ev.Unreachable: self._unreachable,
            ev.Silent: self._silent,
            ev.Handled: self._handled,
            ev.Heard: self._heard,
            ev.Stopped: self._stopped,
            ev.TimerFired: lambda _, now_s: self._agenda.run_due(now_s),
        }

    def handle(self, event: ev.Event, now_s: float) -> list[ev.Command]:
        self._handlers[type(event)](event, now_s)
        commands, self._out = self._out, []
        return commands

    def next_deadline(self) -> float:
        return self._agenda.first_s()

    @property
    def settled(self) -> bool:
        """Returns whether the handler is done with all that it was given."""
        return all(held.end is not None for held in self._held.values())

    @property
    def access(self) -> Mapping[str, float]:
        """Returns the probabilities that are drawn by now."""
        return self._access

    @property
    def idle(self) -> bool:
        """Returns whether nothing is asked for, held, or to be acknowledged."""
        return not (self._takes or self._held)

    # --- asking -------------------------------------------------------------------------------

    def _started(self, event: ev.Started, now_s: float) -> None:
        self._running = not self._is_over
        self._ask(now_s)

    def _paused(self, event: ev.Paused, now_s: float) -> None:
        self._running = False

    def _stopped(self, event: ev.Stopped, now_s: float) -> None:
        self._running, self._is_over = False, True
        for take in list(self._takes):
            self._out.append(ev.Abandon(take))
            self._end_take(take)

    def _ask(self, now_s: float) -> None:
        """Begin as many takes as there are hands free."""
        settings = self.settings
        handling = sum(held.end is None for held in self._held.values())
        while self._running and len(self._takes) + handling < settings.at_once:
            producer = self._draw(now_s)
            if producer is None:
                self._ask_later(now_s)
                return
            take = f"{settings.name}-{self._random.getrandbits(64):016x}"
            self._takes[take] = _Take(producer)
            self._check_later(take, now_s)
            self._out.append(ev.Take(take, producer, dict(self._access)))

    def _ask_later(self, now_s: float) -> None:
        """All are passed over: ask when that ends for the first of them."""
        ends_s = (self._failed[name][1] for name, share in self._access.items() if share > 0.0)
        next_s = min(ends_s)
        if not now_s < self._retry_s <= next_s:
            self._retry_s = next_s
            self._agenda.at(next_s, self._ask)

    def _draw(self, now_s: float) -> str | None:
        """A producer that can be asked; None while all are passed over."""
        names = [
            name
            for name, share in self._access.items()
            if share > 0.0 and not self._is_passed_over(name, now_s)
        ]
        if not names:
            return None
        reached = list(accumulate(self._access[name] for name in names))
        return names[pick_producer(reached, self._random.random())]

    def _is_passed_over(self, name: str, now_s: float) -> bool:
        failed = self._failed.get(name)
        return failed is not None and now_s < failed[1]

    def _pointed(self, event: ev.Pointed, now_s: float) -> None:
        if event.take in self._takes:
            self._takes[event.take].producer = event.producer
            self._out.append(ev.Fetch(event.take, event.producer, event.grant))

    def _given(self, event: ev.Given, now_s: float) -> None:
        if event.grant in self._held:  # no producer gives one twice
            self._unreachable(ev.Unreachable(event.take, event.producer), now_s)
            return
        if self._end_take(event.take) is None:
            self._out.append(ev.Tell(event.producer, event.grant, "nack", 0.0))
            return
        self._failed.pop(event.producer, None)
        self._learn(event.producer)
        held = _Held(event.producer, event.visibility_s, now_s)
        self._held[event.grant] = held
        held.alarm = self._agenda.at(held.due_s, self._extend, event.grant)
        self._out.append(ev.Handle(event.grant))
        self._ask(now_s)

    def _nothing(self, event: ev.Nothing, now_s: float) -> None:
        producer = self._end_take(event.take)
        if producer is not None:
            self._failed.pop(producer, None)
        self._ask(now_s)

    def _end_take(self, name: str) -> str | None:
        """The producer that was asked last; None if it has ended before."""
        take = self._takes.pop(name, None)
        if take is None:
            return None
        self._agenda.drop(take.alarm)
        return take.producer

    def _check_later(self, take: str, now_s: float) -> None:
        self._takes[take].alarm = self._agenda.at(now_s + CHECK_S, self._check_there, take)

    def _check_there(self, take: str, now_s: float) -> None:
        self._out.append(ev.Check(self._takes[take].producer))
        self._check_later(take, now_s)

    def _silent(self, event: ev.Silent, now_s: float) -> None:
        silent = [name for name, one in self._takes.items() if one.producer == event.producer]
        for take in silent:
            self._out.append(ev.Abandon(take))
            self._unreachable(ev.Unreachable(take, event.producer), now_s)

    def _unreachable(self, event: ev.Unreachable, now_s: float) -> None:
        """End the take; several that fail at the same time count as one failure of the producer."""
        self._end_take(event.take)
        if not self._is_passed_over(event.producer, now_s):
            row = self._failed.get(event.producer, (0, 0.0))[0] + 1
            draw = self._random.random()
            pause_s = backoff_s(row - 1, PASSED_OVER_S, PASSED_OVER_S_MAX, draw)
            self._failed[event.producer] = (row, now_s + pause_s)
        self._ask(now_s)

    # --- objects ------------------------------------------------------------------------------

    def _handled(self, event: ev.Handled, now_s: float) -> None:
        held = self._held[event.grant]
        held.end = "ack" if event.well else "nack"
        held.rest_s = event.rest_s
        self._agenda.drop(held.alarm)
        if held.is_lost:
            self._settle(event.grant, known=False)
        else:
            self._tell_end(event.grant, AGAIN_S, now_s)
        self._ask(now_s)

    def _settle(self, grant: str, *, known: bool | None) -> None:
        self._agenda.drop(self._held.pop(grant).alarm)
        self._out.append(ev.Settled(grant, known))

    def _tell_end(self, grant: str, pause_s: float, now_s: float) -> None:
        """Tell how it ended until that is heard, or the grant must have ended anyway."""
        held = self._held[grant]
        if now_s >= held.until_s:
            self._settle(grant, known=None)
            return
        assert held.end is not None
        self._out.append(ev.Tell(held.producer, grant, held.end, held.rest_s))
        again_s = min(now_s + pause_s, held.until_s)
        held.alarm = self._agenda.at(again_s, self._tell_end, grant, 2.0 * pause_s)

    def _extend(self, grant: str, now_s: float) -> None:
        held = self._held[grant]
        if now_s >= held.until_s:
            late_s = now_s - held.due_s
            self._lose(held, grant, late_s if late_s > 0.5 * held.step_s else 0.0)
            return
        if held.asked_s is None:
            held.asked_s = now_s
        self._out.append(ev.Tell(held.producer, grant, "extend"))
        held.due_s = min(now_s + held.step_s, held.until_s)
        held.alarm = self._agenda.at(held.due_s, self._extend, grant)

    def _heard(self, event: ev.Heard, now_s: float) -> None:
        held = self._held.get(event.grant)
        if held is None or held.is_lost:
            return
        if held.end is not None:
            if event.what == held.end:
                self._settle(event.grant, known=event.known)
        elif not event.known:
            self._lose(held, event.grant)
        elif held.asked_s is not None:
            held.until_s, held.asked_s = held.asked_s + held.visibility_s, None

    def _lose(self, held: _Held, grant: str, late_s: float = 0.0) -> None:
        """Its handler may go on: its hand is free when it has ended."""
        held.is_lost = True
        self._agenda.drop(held.alarm)
        self._out.append(ev.Lost(grant, late_s))

    # --- where objects come from --------------------------------------------------------------

    def _even(self) -> dict[str, float]:
        return dict.fromkeys(self.settings.producers, 1.0 / len(self.settings.producers))

    def _learn(self, producer: str) -> None:
        if not self.settings.learns or producer not in self._objects:
            return
        for name in self._objects:
            self._objects[name] *= 0.5 ** (1.0 / FORGET_OBJECTS)
        self._objects[producer] += 1.0
        shares = list(self._access.values())
        learned_access(list(self._objects.values()), shares)
        self._access = dict(zip(self._objects, shares, strict=True))

    def check(self) -> None:
        """Raise AssertionError if the state contradicts itself."""
        handling = sum(held.end is None for held in self._held.values())
        assert len(self._takes) + handling <= self.settings.at_once, "more hands than there are"
        assert not (self._is_over and self._takes), "asks although it was stopped"
        assert abs(sum(self._access.values()) - 1.0) < 1e-6, "access"
