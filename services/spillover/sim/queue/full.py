"""`spillover sim probing --engine full`: the machines of the service under the conditions of
Johnson's document, with nothing that goes wrong. What is measured is as in `compiled`.

A producing client asks for a place before it makes an object, as the document's producer does.
Messages that the document does not have (an offer to the producer that holds the call, the address
of an object, its fetching) take no time unless `legs` say so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from spillover.core.queue import events as ev
from spillover.core.queue.consumer import ConsumerSettings
from spillover.core.queue.producer import PARKED
from spillover.core.queue.settings import ProducerSettings
from spillover.sim.engine.clock import Clock
from spillover.sim.engine.world import World, rare_collections, stream
from spillover.sim.queue import measuring
from spillover.sim.queue.consumer import SimConsumer
from spillover.sim.queue.producer import SimProducer
from spillover.sim.queue.system import ProbingSystem
from spillover.sim.queue.wires import IN_PAPER, Wires

LIMIT = 1_000_000
"""The largest value of all that a producer of the service bounds and one of the document does
not."""

PROGRESS_EVERY = 1000


@dataclass(slots=True)
class _Counts:
    """The counts since the beginning."""

    objects: int = 0
    waits: float = 0.0
    hops: int = 0
    producing: float = 0.0
    consumed: float = 0.0
    rate: float = 0.0
    """The rate of all producers that make an object now."""
    consuming: int = 0
    since_s: float = 0.0
    """Up to when `producing` and `consumed` are summed up."""


class ProbingQueue:
    """All producers and consumers, in one world."""

    def __init__(
        self,
        system: ProbingSystem,
        seed: int,
        *,
        avoid_visited: bool,
        probe_expiry_s: float,
        legs: Mapping[str, float],
    ) -> None:
        self.world = World()
        self._clock = Clock(self.world)
        self._random = stream(seed, "probing/full")
        self._wires = Wires(self.world, self._random, self._way_s, reliable=True)
        self._system = system
        self._legs = legs
        self.counts = _Counts()
        self._begun: dict[str, float] = {}
        """Takes under way, and when they began."""
        self.producers: dict[str, SimProducer] = {}
        rates = [kind.rate for kind in system.kinds for _ in range(kind.count)]
        self._rates = {f"p{j}": rate for j, rate in enumerate(rates)}
        for name in self._rates:
            told = ProducerSettings(
                id=name,
                buffers=system.buffers,
                visibility_s=math.inf,
                probe_expiry_s=probe_expiry_s,
                unacked_limit=LIMIT,
                waiting_limit=LIMIT,
            )
            self.producers[name] = SimProducer(told, self.producers, self._wires, self._clock, seed)
        rows = measuring.access_rows(system, stream(seed, "probing/access"))
        self.consumers = [
            self._consumer(i, rows[i % len(rows)], seed, avoid_visited=avoid_visited)
            for i in range(system.consumers)
        ]

    def _consumer(
        self, number: int, row: list[tuple[int, float]], seed: int, *, avoid_visited: bool
    ) -> SimConsumer:
        settings = ConsumerSettings(
            name=f"c{number}",
            producers=tuple(f"p{j}" for j, _ in row),
            access={f"p{j}": share for j, share in row},
            learns=False,
            max_hops=self._system.max_hops,
            avoid_visited=avoid_visited,
            at_once=1,
            take_s=math.inf,
        )
        consumer = SimConsumer(
            *(settings, self.producers, self._wires, self._clock, seed),
            work=self._work,
        )
        consumer.begun, consumer.came, consumer.done = self._take_begun, self._came, self._done
        return consumer

    def start(self) -> None:
        for producer in self.producers.values():
            producer.boot()
        for producer in self.producers.values():
            self._offer(producer)
        for consumer in self.consumers:
            consumer.boot()

    def until(self, objects: int) -> None:
        """Let time go by until so many have come."""
        counts = self.counts
        self.world.run(lambda: counts.objects >= objects)

    # --- draws --------------------------------------------------------------------------------

    def _way_s(self, kind: str) -> float:
        mean_s = self._legs.get(kind, 0.0)
        return self._random.expovariate(1.0) * mean_s if mean_s else 0.0

    def _work(self) -> tuple[float, bool]:
        self._pass()
        self.counts.consuming += 1
        return self._random.expovariate(self._system.consumption_rate), True

    # --- making objects -----------------------------------------------------------------------

    def _offer(self, producer: SimProducer) -> None:
        def admitted(command: ev.Command | None) -> None:
            assert isinstance(command, ev.Admit)  # noqa: S101 - nothing is refused here
            self._pass()
            rate = self._rates[producer.name]
            self.counts.rate += rate
            made_s = self.world.now_s + self._random.expovariate(rate)
            self.world.at(made_s, self._made, producer, command.ref)

        producer.ask(lambda ref: ev.Offered(ref, math.inf), admitted)

    def _made(self, producer: SimProducer, ref: int) -> None:
        self._pass()
        self.counts.rate -= self._rates[producer.name]
        producer.read(ref, lambda _: self._offer(producer))

    # --- measuring ----------------------------------------------------------------------------

    def _pass(self) -> None:
        """Sum up the time since the last change."""
        counts, now_s = self.counts, self.world.now_s
        counts.producing += (now_s - counts.since_s) * counts.rate
        counts.consumed += (now_s - counts.since_s) * counts.consuming
        counts.since_s = now_s

    def _take_begun(self, take: str) -> None:
        self._begun[take] = self.world.now_s

    def _came(self, take: str, probes: int) -> None:
        counts = self.counts
        counts.objects += 1
        counts.hops += probes
        counts.waits += self.world.now_s - self._begun.pop(take)

    def _done(self) -> None:
        self._pass()
        self.counts.consuming -= 1

    def sums(self) -> measuring.Sums:
        """Returns what has happened up to now. A probe of a request found nothing unless it is its
        last one and did not park."""
        self._pass()
        counts = self.counts
        parked = sum(producer.machine.probes[PARKED] for producer in self.producers.values())
        return measuring.Sums(
            waits=counts.waits,
            hops=counts.hops,
            probes=counts.hops,
            empty=counts.hops - counts.objects + parked,
            time=self.world.now_s,
            producing=counts.producing,
            consumed=counts.consumed,
        )


def simulate(
    system: ProbingSystem,
    objects: int,
    seed: int,
    on_progress: Callable[[int], None] | None = None,
    *,
    avoid_visited: bool = False,
    probe_expiry_s: float = math.inf,
    legs: Mapping[str, float] | None = None,
) -> measuring.ProbingRun:
    """Simulate as `compiled.simulate` does. With `probe_expiry_s` consumers that wait are looked
    after as live; the document has them wait where they are. `legs` are what messages of each kind
    take in the mean, those that are left out no time; None: the document's, each the system's
    message time."""
    measuring.check_objects(objects)
    if legs is None:
        legs = dict.fromkeys(IN_PAPER, system.message_time)
    queue = ProbingQueue(
        system, seed, avoid_visited=avoid_visited, probe_expiry_s=probe_expiry_s, legs=legs
    )
    counts = queue.counts
    with rare_collections():
        queue.start()
        warm = measuring.warm_up(system, objects)
        queue.until(warm)
        batches, before, done = [], queue.sums(), 0
        for batch in range(measuring.BATCHES):
            until = objects * (batch + 1) // measuring.BATCHES
            while counts.objects < warm + until:
                queue.until(min(warm + until, counts.objects + PROGRESS_EVERY))
                if on_progress is not None:
                    on_progress(counts.objects - warm)
            now = queue.sums()
            batches.append(
                (until - done, measuring.Sums(*(b - a for a, b in zip(before, now, strict=True))))
            )
            before, done = now, until
    return measuring.sum_up(system, objects, batches)
