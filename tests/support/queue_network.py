"""Producers and consumers joined by messages that take time and may be lost, for the tests of their
machines. It knows what was promised to whom, and nothing of what machines hold inside.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from spillover.core.queue import consumer_events as cn
from spillover.core.queue import events as ev
from spillover.core.queue.consumer import ConsumerMachine, ConsumerSettings
from spillover.core.queue.producer import ProducerMachine
from spillover.core.queue.settings import ProducerSettings

WAY_S = 0.01
EXPIRY_S = 1.0
VISIBILITY_S = 3.0
TAKE_S = 4.0


class Network:
    """`loss` is the share of messages between processes that get lost; the one who sent it hears of
    that as a failed call. `handle_s` is how long a consumer takes for an object."""

    def __init__(
        self, random: Random, producers: int, consumers: int, *, buffers: int = 3, loss: float = 0.0
    ) -> None:
        self.random, self.loss, self.now_s = random, loss, 0.0
        self._calls: list[tuple[float, int, Callable[[], None]]] = []
        self._made = 0
        self._refs = 0
        ids = tuple(f"p{k}" for k in range(producers))
        self.producers: dict[str, ProducerMachine | None] = {}
        self.settings = {
            one: ProducerSettings(
                id=one,
                buffers=buffers,
                visibility_s=VISIBILITY_S,
                probe_expiry_s=EXPIRY_S,
                deliveries_max=1000,
            )
            for one in ids
        }
        for one in ids:
            peers = tuple(other for other in ids if other != one)
            self.producers[one] = ProducerMachine(self.settings[one], peers, random)
        self.numbers: Counter[str] = Counter()
        self.accepted: dict[str, set[int]] = {one: set() for one in ids}
        self.acked: dict[str, set[int]] = {one: set() for one in ids}
        self.holders: dict[tuple[str, str], int] = {}
        """Objects by producer and grant, as they were given out."""
        self.replies: dict[tuple[str, int], Callable[[ev.Command | None], None]] = {}
        """Calls that are open, by producer and ref. None: their connection has broken."""
        self.handled = 0
        self.consumers = {
            name: ConsumerMachine(
                ConsumerSettings(
                    name=name,
                    producers=ids,
                    access=None,
                    learns=True,
                    max_hops=2,
                    avoid_visited=False,
                    at_once=1,
                    take_s=TAKE_S,
                ),
                random,
            )
            for name in (f"c{k}" for k in range(consumers))
        }
        self.stopped: set[str] = set()

    # --- time ---------------------------------------------------------------------------------

    def later(self, after_s: float, call: Callable[[], None]) -> None:
        self._made += 1
        heapq.heappush(self._calls, (self.now_s + after_s, self._made, call))

    def run(self, for_s: float) -> None:
        """Let time go by."""
        end_s = self.now_s + for_s
        while True:
            wakes = [
                (machine.next_deadline(), name)
                for name, machine in (*self.producers.items(), *self.consumers.items())
                if machine is not None
            ]
            wake_s, name = min(wakes, default=(math.inf, ""))
            call_s = self._calls[0][0] if self._calls else math.inf
            if min(wake_s, call_s) > end_s:
                self.now_s = end_s
                return
            if wake_s <= call_s:
                self.now_s = max(self.now_s, wake_s)
                if name in self.consumers:
                    self._feed_consumer(name, cn.TimerFired())
                else:
                    self._feed(name, ev.TimerFired())
            else:
                self.now_s, _, call = heapq.heappop(self._calls)
                call()

    def _way(self, call: Callable[[], None], lost: Callable[[], None]) -> None:
        """A message arrives, or its sender hears that it did not."""
        if self.random.random() < self.loss:
            self.later(3 * WAY_S, lost)
        else:
            self.later(WAY_S * (0.5 + self.random.random()), call)

    # --- producers ----------------------------------------------------------------------------

    def offer(self, producer: str, wait_s: float = 1.0) -> None:
        """Somebody brings an object."""
        self._refs += 1
        self._feed(producer, ev.Offered(self._refs, self.now_s + wait_s))

    def kill(self, producer: str) -> None:
        """It dies; what it had is lost with it, and calls that it held break off."""
        self.producers[producer] = None
        for key in [key for key in self.replies if key[0] == producer]:
            self.replies.pop(key)(None)

    def _feed(self, producer: str, event: ev.Event) -> None:
        machine = self.producers[producer]
        if machine is None:
            return
        commands = machine.handle(event, self.now_s)
        machine.check()
        for command in commands:
            self._obey(producer, command)
        if not any(isinstance(one, ev.Store) for one in commands):
            machine.check()

    def _obey(self, producer: str, command: ev.Command) -> None:
        match command:
            case ev.Admit(ref):
                self.numbers[producer] += 1
                number = self.numbers[producer]
                self.later(WAY_S, lambda: self._feed(producer, ev.Read(ref, number)))
            case ev.Store(number):
                self.later(WAY_S, lambda: self._feed(producer, ev.Stored(number)))
            case ev.Accept(_, number):
                self.accepted[producer].add(number)
            case ev.Forget(number):
                assert number not in self.acked[producer], "acknowledged twice"
                self.acked[producer].add(number)
            case ev.SendProbe(peer, probe):
                self._way(
                    lambda: self._arrive(producer, peer, probe),
                    lambda: self._feed(producer, ev.ProbeNotSent(probe, peer)),
                )
            case ev.SendOffer(peer, offer):
                declined = ev.OfferAnswered(offer.grant, taken=False)
                self._way(
                    lambda: self._offer_arrives(producer, peer, offer),
                    lambda: self._feed(producer, declined),
                )
            case _:
                ref = getattr(command, "ref", None)
                reply = self.replies.pop((producer, ref), None) if ref is not None else None
                if reply is not None:
                    reply(command)

    def _arrive(self, sender: str, peer: str, probe: ev.Probe) -> None:
        if self.producers[peer] is None:
            self._feed(sender, ev.ProbeNotSent(probe, peer))
        else:
            self._feed(peer, ev.ProbeCame(probe))

    def _offer_arrives(self, sender: str, peer: str, offer: ev.Offer) -> None:
        if self.producers[peer] is None:
            self._feed(sender, ev.OfferAnswered(offer.grant, taken=False))
            return

        def reply(command: ev.Command | None) -> None:
            taken = isinstance(command, ev.AnswerOffer) and command.taken
            answer = ev.OfferAnswered(offer.grant, taken)
            lost = ev.OfferAnswered(offer.grant, taken=False)
            self._way(lambda: self._feed(sender, answer), lambda: self._feed(sender, lost))

        self._call(peer, reply, lambda ref: ev.OfferCame(ref, offer))

    def _call(
        self,
        producer: str,
        reply: Callable[[ev.Command | None], None],
        event: Callable[[int], ev.Event],
    ) -> int:
        self._refs += 1
        self.replies[producer, self._refs] = reply
        self._feed(producer, event(self._refs))
        return self._refs

    # --- consumers ----------------------------------------------------------------------------

    def start(self) -> None:
        for name in self.consumers:
            self._feed_consumer(name, cn.Started())

    def stop(self, consumer: str) -> None:
        """It vanishes: whatever is promised to it is heard by nobody."""
        self.stopped.add(consumer)
        del self.consumers[consumer]

    def _feed_consumer(self, consumer: str, event: Any) -> None:
        machine = self.consumers.get(consumer)
        if machine is None:
            return
        commands = machine.handle(event, self.now_s)
        machine.check()
        for command in commands:
            self._obey_consumer(consumer, command)

    def _obey_consumer(self, consumer: str, command: cn.Command) -> None:
        match command:
            case cn.Take(take, producer, access):
                unreachable = cn.Unreachable(take, producer)
                self._way(
                    lambda: self._take(consumer, take, producer, access),
                    lambda: self._feed_consumer(consumer, unreachable),
                )
            case cn.Fetch(take, producer, grant):
                unreachable = cn.Unreachable(take, producer)
                self._way(
                    lambda: self._fetch(consumer, take, producer, grant),
                    lambda: self._feed_consumer(consumer, unreachable),
                )
            case cn.Handle(grant):
                self.handled += 1
                handled = cn.Handled(grant, well=self.random.random() < 0.9)
                took_s = self.random.expovariate(10.0)
                self.later(took_s, lambda: self._feed_consumer(consumer, handled))
            case cn.Tell(producer, grant, what):
                self._way(lambda: self._tell(consumer, producer, grant, what), lambda: None)

    def _take(self, consumer: str, take: str, producer: str, access: Any) -> None:
        if self.producers[producer] is None:
            self._feed_consumer(consumer, cn.Unreachable(take, producer))
            return

        def reply(command: ev.Command | None) -> None:
            match command:
                case None:
                    broken = cn.Unreachable(take, producer)
                    self.later(WAY_S, lambda: self._feed_consumer(consumer, broken))
                case ev.Give(_, grant, number, _):
                    self._give(consumer, take, producer, grant, number)
                case ev.Direct(_, offer):
                    event: Any = cn.Pointed(take, offer.producer, offer.grant)
                    self.later(WAY_S, lambda: self._feed_consumer(consumer, event))
                case ev.NoObject() | ev.RefuseTake():
                    self.later(WAY_S, lambda: self._feed_consumer(consumer, cn.Nothing(take)))

        machine = self.consumers.get(consumer)
        if machine is None:
            return
        deadline_s = self.now_s + TAKE_S
        ref = self._call(
            producer,
            reply,
            lambda ref: ev.Taken(ref, take, consumer, 2, access, False, deadline_s),
        )
        self._watch(consumer, producer, ref)

    def _watch(self, consumer: str, producer: str, ref: int) -> None:
        """A call whose consumer has vanished is seen to be gone, a little later."""
        if (producer, ref) not in self.replies:
            return
        if consumer in self.consumers:
            self.later(10 * WAY_S, lambda: self._watch(consumer, producer, ref))
        else:
            del self.replies[producer, ref]
            self._feed(producer, ev.TakeGone(ref))

    def _fetch(self, consumer: str, take: str, producer: str, grant: str) -> None:
        if self.producers[producer] is None:
            self._feed_consumer(consumer, cn.Unreachable(take, producer))
            return

        def reply(command: ev.Command | None) -> None:
            if isinstance(command, ev.Give):
                self._give(consumer, take, producer, grant, command.number)
            else:
                self.later(WAY_S, lambda: self._feed_consumer(consumer, cn.Nothing(take)))

        self._call(producer, reply, lambda ref: ev.Fetched(ref, grant))

    def _give(self, consumer: str, take: str, producer: str, grant: str, number: int) -> None:
        key = (producer, grant)
        assert key not in self.holders, "the object of a grant was sent twice"
        assert number in self.accepted[producer], "given before it was accepted"
        self.holders[key] = number
        whole = consumer in self.consumers and self.random.random() >= self.loss
        self.later(WAY_S, lambda: self._feed(producer, ev.Sent(grant, whole)))
        event: Any = cn.Unreachable(take, producer)
        if whole:
            event = cn.Given(take, producer, grant, VISIBILITY_S)
        self.later(WAY_S, lambda: self._feed_consumer(consumer, event))

    def _tell(self, consumer: str, producer: str, grant: str, what: str) -> None:
        if self.producers[producer] is None:
            return

        def reply(command: ev.Command | None) -> None:
            if command is None:
                return
            assert isinstance(command, ev.Told)
            heard = cn.Heard(grant, what, command.known)
            self._way(lambda: self._feed_consumer(consumer, heard), lambda: None)

        events = {"ack": ev.Acked, "nack": ev.Nacked, "extend": ev.Extended}
        self._call(producer, reply, lambda ref: events[what](ref, grant))
