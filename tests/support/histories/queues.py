"""Random histories of the distributed queue with faults: all drawn from one seed, checked after
each event, and at last mended, so that everything must come to its end.

Who may die, stand still or be cut off: producers, with and without a disk, and consumers. Besides,
disks that are full for a while, messages that are lost or slow, clocks that differ, producers that
drain, handlers that fail, clients that go away.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random

from spillover.core.queue import events as ev
from spillover.core.queue.consumer import ConsumerSettings
from spillover.core.queue.settings import ProducerSettings
from spillover.sim.engine.clock import Clock
from spillover.sim.engine.world import World, stream
from spillover.sim.queue.consumer import SimConsumer
from spillover.sim.queue.producer import Disk, SimProducer
from spillover.sim.queue.wires import Wires
from support.histories.queue_checker import Checker

WAY_S = 0.01
WAY_S_MAX = 1.5 * WAY_S
SLOW_MAX = 20.0
"""How many times as long messages may take for a while."""

EXPIRY_S = 1.0
VISIBILITY_S = 3.0
TAKE_S = 4.0

BUSY_S = 5.0
"""Objects are brought, and troubles begin, within so long."""

TROUBLES_MAX = 5
LASTS_S_MAX = 5.0
"""Longer than a visibility time, so that it passes behind some backs."""

LOOK_S = 0.2
SETTLE_S_MAX = 120.0
"""So long after the last trouble nothing may be left. It is many visibility times: objects come
back as often as handlers fail, and acknowledgements as often as consumers die."""

HANDLER_FAILS = 0.1
CLIENT_GOES = 0.1


@dataclass(slots=True)
class Told:
    """What one history was like."""

    offered: int = 0
    accepted: int = 0
    handled: int = 0
    simulated_s: float = 0.0
    troubles: Counter[str] = field(default_factory=Counter)
    seen: Counter[str] = field(default_factory=Counter)
    """Events and commands of producers, by kind."""


class History:
    """The history of this seed. `play` it; raises `Broken` where anything does not hold."""

    def __init__(self, seed: int) -> None:
        self.told = Told()
        self.world = World()
        self._random = random = stream(seed, "queue history")
        self.checker = Checker(f"history {seed}")
        self.wires = Wires(self.world, random, self._way_s, reliable=False)
        self._troubles = 0
        """How many there are now."""
        self._calm_s = 0.0
        self.producers: dict[str, SimProducer] = {}
        for k in range(random.choice((1, 2, 3, 3, 4, 5))):
            self._add_producer(f"p{k}", seed)
        self.consumers = [
            self._consumer(f"c{k}", seed) for k in range(random.choice((1, 2, 3, 3, 4)))
        ]

    def _way_s(self, _: str) -> float:
        return WAY_S * (0.5 + self._random.random())

    def _clock(self) -> Clock:
        """Most are right; all have begun at different times."""
        clock = Clock(self.world, self._random.random() * 1e4)
        if self._random.random() < 0.3:
            clock.set(self._random.uniform(0.9, 1.1), 0.0)
        return clock

    def _add_producer(self, name: str, seed: int) -> None:
        random = self._random
        settings = ProducerSettings(
            id=name,
            buffers=random.choice((1, 2, 3, 5)),
            visibility_s=VISIBILITY_S,
            probe_expiry_s=EXPIRY_S,
            deliveries_max=random.choice((2, 3, 1000)),
            dead_limit=random.choice((1, 1000)),
            unacked_limit=random.choice((1, 2, 1000, 1000)),
            waiting_limit=random.choice((1, 3, 1000, 1000)),
        )
        self.producers[name] = SimProducer(
            settings,
            self.producers,
            self.wires,
            self._clock(),
            seed,
            disk=Disk(random.choice((0.0, 0.005, 0.05))) if random.random() < 0.5 else None,
            watch=self.checker,
        )

    def _consumer(self, name: str, seed: int) -> SimConsumer:
        random = self._random
        producers = tuple(self.producers)
        access = None
        if name != "c0" and random.random() < 0.4:  # the first one reaches all
            weights = [random.choice((0.0, 1.0, 2.0)) for _ in producers]
            total = sum(weights)
            if total:
                access = {one: w / total for one, w in zip(producers, weights, strict=True)}
        settings = ConsumerSettings(
            name=name,
            producers=producers,
            access=access,
            learns=access is None and random.random() < 0.5,
            max_hops=random.choice((1, 2, 3)),
            avoid_visited=random.random() < 0.5,
            at_once=random.choice((1, 1, 2)),
            take_s=TAKE_S,
        )
        return SimConsumer(
            settings,
            self.producers,
            self.wires,
            self._clock(),
            seed,
            work=self._work,
            watch=self.checker.consumer_handled,
        )

    def _work(self) -> tuple[float, bool]:
        random = self._random
        takes_s = VISIBILITY_S * 1.5 if random.random() < 0.03 else random.expovariate(10.0)
        return takes_s, random.random() >= HANDLER_FAILS

    # --- what happens -------------------------------------------------------------------------

    def play(self) -> Told:
        """Let it all happen."""
        random, world = self._random, self.world
        for process in (*self.producers.values(), *self.consumers):
            process.boot()
        for _ in range(random.randint(5, 40)):
            world.at(random.random() * BUSY_S, self._offer)
        for _ in range(random.randint(0, TROUBLES_MAX)):
            world.at(random.random() * BUSY_S, self._trouble)
        world.at(LOOK_S, self._look)
        world.run(lambda: self._is_settled() or self._is_late())
        for producer in self.producers.values():
            if self.checker.left(producer):
                self.checker.unsettled(producer)
        told = self.told
        told.simulated_s = world.now_s
        told.handled = sum(consumer.handled for consumer in self.consumers)
        told.seen = self.checker.events
        return told

    def _is_late(self) -> bool:
        calm = not self._troubles and self.world.now_s > BUSY_S
        return calm and self.world.now_s > max(self._calm_s, BUSY_S) + SETTLE_S_MAX

    def _is_settled(self) -> bool:
        """Whether it can end: all is mended and done, and takes have been looked after."""
        if self._troubles or self.world.now_s < max(self._calm_s, BUSY_S) + 2.0 * EXPIRY_S:
            return False
        return not any(
            self.checker.left(one) or one.machine.waiting for one in self.producers.values()
        )

    def _look(self) -> None:
        if not self._troubles:
            self.checker.look(self.producers, self._calm_s, WAY_S_MAX)
        self.world.at(self.world.now_s + LOOK_S, self._look)

    def _offer(self) -> None:
        """A client brings an object, and may go away while it does."""
        random, told = self._random, self.told
        producer = random.choice(list(self.producers.values()))
        if not producer.runs:
            return
        told.offered += 1
        until_s = producer.clock.now_s() + random.choice((0.0, 0.5, 2.0))

        def kept(command: ev.Command | None) -> None:
            told.accepted += isinstance(command, ev.Accept)

        def admitted(command: ev.Command | None) -> None:
            if not isinstance(command, ev.Admit):
                return
            ref = command.ref
            if random.random() < CLIENT_GOES:
                producer.later(WAY_S, producer.feed, ev.OfferGone(ref))
            else:
                producer.later(WAY_S * random.random(), producer.read, ref, kept)

        ref = producer.ask(lambda ref: ev.Offered(ref, until_s), admitted)
        if random.random() < CLIENT_GOES:
            producer.later(random.random(), producer.hang_up, ref, ev.OfferGone(ref))

    # --- troubles -----------------------------------------------------------------------------

    def _trouble(self) -> None:
        """One that is possible now begins, and is mended some time later."""
        random = self._random
        kind = random.choice(tuple(_TROUBLES))
        mend = _TROUBLES[kind](self, random)
        if mend is None:
            return
        self.told.troubles[kind] += 1
        self._troubles += 1
        self.world.at(self.world.now_s + random.random() * LASTS_S_MAX, self._mend, mend)

    def _mend(self, mend: Callable[[], None]) -> None:
        mend()
        self._troubles -= 1
        self._calm_s = self.world.now_s

    def running(self) -> list[SimProducer]:
        """Returns the producers that nothing has happened to."""
        return [one for one in self.producers.values() if one.runs]


def _kill(history: History, random: Random) -> Callable[[], None] | None:
    if not (running := history.running()):
        return None
    victim = random.choice(running)
    victim.halt()
    return victim.boot


def _stand_still(history: History, random: Random) -> Callable[[], None] | None:
    processes = [one for one in (*history.producers.values(), *history.consumers) if one.runs]
    if not processes:
        return None
    victim = random.choice(processes)
    life = victim.life
    victim.pause()

    def go_on() -> None:
        if victim.life == life and victim.paused:
            victim.resume()

    return go_on


def _vanish(history: History, random: Random) -> Callable[[], None] | None:
    living = [one for one in history.consumers if one.runs]
    if not living:
        return None
    victim = random.choice(living)
    victim.halt()
    return victim.boot


def _cut_off(history: History, random: Random) -> Callable[[], None] | None:
    """One way or the other, or both."""
    wires = history.wires
    names = [one.name for one in (*history.producers.values(), *history.consumers)]
    free = [one for one in names if one not in wires.mute and one not in wires.deaf]
    if not free:
        return None
    victim = random.choice(free)
    way = random.choice(("mute", "deaf", "both"))
    if way != "deaf":
        wires.mute.add(victim)
    if way != "mute":
        wires.deaf.add(victim)

    def join() -> None:
        wires.mute.discard(victim)
        wires.deaf.discard(victim)

    return join


def _lose(history: History, random: Random) -> Callable[[], None] | None:
    wires = history.wires
    if wires.loss:
        return None
    wires.loss = random.uniform(0.05, 0.4)
    return partial(setattr, wires, "loss", 0.0)


def _delay(history: History, random: Random) -> Callable[[], None] | None:
    wires = history.wires
    if wires.slowness != 1.0:
        return None
    wires.slowness = random.uniform(2.0, SLOW_MAX)
    return partial(setattr, wires, "slowness", 1.0)


def _fill(history: History, random: Random) -> Callable[[], None] | None:
    disks = [one.disk for one in history.producers.values() if one.disk and not one.disk.full]
    if not disks:
        return None
    disk = random.choice(disks)
    disk.full = True
    return partial(setattr, disk, "full", False)


def _turn_clock(history: History, random: Random) -> Callable[[], None] | None:
    processes = [*history.producers.values(), *history.consumers]
    victim = random.choice(processes)
    if victim.clock.rate != 1.0:
        return None
    victim.set_clock(random.uniform(0.7, 1.5))
    return partial(victim.set_clock, 1.0)


def _drain(history: History, random: Random) -> Callable[[], None] | None:
    running = [one for one in history.running() if not one.machine.draining]
    if not running:
        return None
    victim = random.choice(running)
    victim.feed(ev.Drain())
    return partial(victim.deliver, victim.feed, ev.Resume())


def _put_back(history: History, _: Random) -> Callable[[], None] | None:
    """No trouble: an operator puts the dead objects back, or, one of four, discards them."""
    for producer in history.running():
        for number in list(producer.machine.objects.dead):
            make = ev.PutBack if number % 4 else ev.Discard
            producer.ask(partial(make, number=number), lambda _: None)
    return None


_TROUBLES: dict[str, Callable[[History, Random], Callable[[], None] | None]] = {
    "killed": _kill,
    "stands still": _stand_still,
    "vanishes": _vanish,
    "cut off": _cut_off,
    "loss": _lose,
    "delay": _delay,
    "disk full": _fill,
    "clock": _turn_clock,
    "drains": _drain,
    "put back": _put_back,
}
