"""What must hold in every history of the distributed queue, whatever goes wrong: checked after each
event of a producer, by looking on.

- Conservation: what was accepted is acknowledged, granted, buffered or dead, each object once.
- What is forgotten was acknowledged under the grant of that very object, or discarded.
- Order: what is granted is older than all that was buffered before and still is.
- No double grant: an object that was given away is not given again before its consumer has given
  it back, its transfer has broken off, its visibility time has passed, or its producer has died.
- Nothing that was accepted is lost with a disk, whoever dies; and what a consumer was told to be
  acknowledged never comes again.
- No strand: while nothing is wrong, no take is open for longer than the expiry and a round of hops
  beside an object that lies in one and the same buffer all that time.
- A call is answered once, and there are no more objects than places.

A checker knows events, commands, and what machines show of their objects; none of their rules.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping

from spillover.core.queue import events as ev
from spillover.model.errors import RunError
from spillover.sim.queue.consumer import SimConsumer
from spillover.sim.queue.producer import SimProducer
from spillover.sim.queue.wires import TIMEOUT_S

ROUNDING_S = 1e-6

SETTLE_S = 1.0 + 2.0 * TIMEOUT_S
"""After the last trouble peers are passed over for a second, and calls of before time out."""

_ANSWERS = (ev.Give, ev.Direct, ev.NoObject, ev.RefuseTake, ev.Told, ev.AnswerOffer)


class Broken(RunError):
    """Something that must hold does not: what, where, and which history shows it."""


class _Hold:
    """An object that was given away under a grant, until when it is the consumer's by the
    producer's clock."""

    __slots__ = ("number", "until_s")

    def __init__(self, number: int, until_s: float) -> None:
        self.number, self.until_s = number, until_s


class _Seen:
    """What was seen of one producer over all of its lives."""

    def __init__(self) -> None:
        self.accepted: set[int] = set()
        self.forgotten: set[int] = set()
        self.told: set[int] = set()
        """Acknowledged, and its consumer was told so."""
        self.answered: set[int] = set()
        """Calls."""
        self.life = _Life()


class _Life:
    """What was seen of one life. Instants are by the producer's clock unless said."""

    def __init__(self) -> None:
        self.acks: dict[int, int] = {}
        """Objects whose acknowledgement was heard and not answered yet, by its call."""
        self.numbers: dict[str, int] = {}
        """Objects by grant."""
        self.offers: dict[str, float] = {}
        """Grants that are offered and not given yet, until when."""
        self.holds: dict[str, _Hold] = {}
        self.buffered: list[int] = []
        """As they were after the last event."""
        self.admitted: dict[int, bool] = {}
        """Offers that have a place and are not accepted yet, and whether their object is here."""
        self.takes: dict[int, tuple[float, Mapping[str, float]]] = {}
        """Open ones, by ref: since when in true time, and the access probabilities."""
        self.available_s = math.inf
        """Since when, in true time, there is an object to grant."""


class Checker:
    """Looks on at all producers: a `producer.Watch`. `name` says which history it is."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._seen: defaultdict[str, _Seen] = defaultdict(_Seen)
        self.events: Counter[str] = Counter()
        """How often each kind of event and command was seen."""

    def _fail(self, problem: str, producer: SimProducer) -> None:
        at = f"{producer.name}, life {producer.life}, at {producer.world.now_s:.6f} s"
        raise Broken(f"{self._name}: {problem} ({at})")

    def _of(self, producer: SimProducer) -> _Seen:
        return self._seen[producer.name]

    # --- lives --------------------------------------------------------------------------------

    def started(self, producer: SimProducer) -> None:
        """Of a `producer.Watch`."""
        seen, disk = self._of(producer), producer.disk
        seen.life = _Life()
        if disk is None:
            seen.accepted.clear()
            seen.forgotten.clear()
        else:
            lost = seen.accepted - seen.forgotten - disk.objects.keys()
            if lost:
                self._fail(f"objects {sorted(lost)} were stored and are not there", producer)
            seen.accepted |= disk.objects.keys()
            seen.forgotten -= disk.objects.keys()
        self._balance(producer, seen)

    def died(self, producer: SimProducer) -> None:
        """Of a `producer.Watch`."""
        self._of(producer).life = _Life()

    def told(self, producer: SimProducer, ref: int) -> None:
        """Of a `producer.Watch`."""
        seen = self._of(producer)
        if (number := seen.life.acks.pop(ref, None)) is not None:
            seen.told.add(number)

    # --- events -------------------------------------------------------------------------------

    def handled(
        self, producer: SimProducer, event: ev.Event, now_s: float, commands: list[ev.Command]
    ) -> None:
        """Of a `producer.Watch`."""
        seen = self._of(producer)
        life = seen.life
        self.events[type(event).__name__] += 1
        self._note(producer, life, event)
        usual_s = now_s + producer.settings.visibility_s
        self._note_grant(life, event, now_s, usual_s, commands)
        granted: list[int] = []
        for command in commands:
            self.events[type(command).__name__] += 1
            self._look_at(producer, seen, command, now_s, event)
            if isinstance(command, ev.SendOffer):
                granted.append(life.numbers[command.offer.grant])
            elif isinstance(command, ev.Give) and not isinstance(event, ev.Fetched):
                granted.append(command.number)
        try:
            producer.machine.check()
        except AssertionError as error:
            self._fail(f"after {event}: {error!r}", producer)
        self._balance(producer, seen)
        before, life.buffered = life.buffered, list(producer.machine.objects)
        stayed = [number for number in life.buffered if number in before]
        if granted and stayed and max(granted) > stayed[0]:
            self._fail(f"{max(granted)} was granted before {stayed[0]}", producer)
        if any(isinstance(one, ev.Admit) for one in commands):
            self._check_places(producer, life, event)
        self._note_available(producer, life)

    def consumer_handled(self, consumer: SimConsumer) -> None:
        """Of a consumer, after each of its events."""
        try:
            consumer.machine.check()
        except AssertionError as error:
            raise Broken(f"{self._name}: {consumer.name}: {error!r}") from error

    def _note(self, producer: SimProducer, life: _Life, event: ev.Event) -> None:
        """What the event says of takes and offers."""
        match event:
            case ev.Taken():
                life.takes[event.ref] = (producer.world.now_s, event.access)
            case ev.TakeGone(ref):
                life.takes.pop(ref, None)
            case ev.Read(ref, _):
                life.admitted[ref] = True
            case ev.OfferGone(ref):
                if not life.admitted.get(ref, True):
                    del life.admitted[ref]

    def _note_grant(
        self,
        life: _Life,
        event: ev.Event,
        now_s: float,
        usual_s: float,
        commands: list[ev.Command],
    ) -> None:
        """What the event says of a grant, which lasts until `usual_s` if it begins anew."""
        is_known = any(isinstance(one, ev.Told) and one.known for one in commands)
        match event:
            case ev.OfferAnswered(grant, taken) if grant in life.offers:
                if taken:
                    life.offers[grant] = usual_s
                else:
                    del life.offers[grant]
            case ev.Sent(grant, whole) if grant in life.holds:
                if not whole:
                    del life.holds[grant]
                elif life.holds[grant].until_s > now_s:  # else it has ended before
                    life.holds[grant].until_s = usual_s
            case ev.Acked(ref, grant) if is_known and grant in life.numbers:
                life.acks[ref] = life.numbers[grant]
                life.holds.pop(grant, None)
            case ev.Nacked(_, grant):
                life.holds.pop(grant, None)
            case ev.Extended(_, grant, _) if is_known and grant in life.holds:
                life.holds[grant].until_s = usual_s

    def _look_at(
        self,
        producer: SimProducer,
        seen: _Seen,
        command: ev.Command,
        now_s: float,
        event: ev.Event,
    ) -> None:
        life = seen.life
        if isinstance(command, _ANSWERS):
            if command.ref in seen.answered:
                self._fail(f"call {command.ref} is answered again", producer)
            seen.answered.add(command.ref)
            life.takes.pop(command.ref, None)
        match command:
            case ev.Admit(ref):
                life.admitted[ref] = False
            case ev.RefuseOffer(ref, _):
                life.admitted.pop(ref, None)
            case ev.Accept(ref, number):
                del life.admitted[ref]
                self._accepted(producer, seen, number)
            case ev.SendOffer(_, offer):
                made = producer.machine.grants.get(offer.grant)
                life.numbers[offer.grant] = -1 if made is None else made.number
                life.offers[offer.grant] = now_s + producer.settings.visibility_s
            case ev.Give(_, grant, number, _):
                self._given(producer, seen, event, grant, number, now_s)
            case ev.Forget(number):
                self._forgotten(producer, seen, event, number)

    def _accepted(self, producer: SimProducer, seen: _Seen, number: int) -> None:
        if number in seen.accepted:
            self._fail(f"{number} is accepted twice", producer)
        if producer.disk is not None and number not in producer.disk.objects:
            self._fail(f"{number} is accepted before it is stored", producer)
        seen.accepted.add(number)

    def _given(
        self,
        producer: SimProducer,
        seen: _Seen,
        event: ev.Event,
        grant: str,
        number: int,
        now_s: float,
    ) -> None:
        life = seen.life
        until_s: float | None = now_s + producer.settings.visibility_s
        if isinstance(event, ev.Fetched):
            until_s = life.offers.pop(grant, None)
        if until_s is None or life.numbers.setdefault(grant, number) != number:
            self._fail(f"grant {grant} is given again, or was declined", producer)
        if number not in seen.accepted:
            self._fail(f"{number} is given before it was accepted", producer)
        if number in seen.told:
            self._fail(f"{number} is given although it was acknowledged", producer)
        for other, hold in list(life.holds.items()):
            if hold.number == number:
                if hold.until_s > now_s + ROUNDING_S:
                    left_s = hold.until_s - now_s
                    self._fail(f"{number} is given to two, {left_s:.3f} s early", producer)
                del life.holds[other]
        assert until_s is not None
        life.holds[grant] = _Hold(number, until_s)

    def _forgotten(self, producer: SimProducer, seen: _Seen, event: ev.Event, number: int) -> None:
        match event:
            case ev.Acked():
                is_meant = seen.life.numbers.get(event.grant) == number
            case ev.Discard():
                is_meant = event.number == number
            case _:
                is_meant = False
        if not is_meant:
            self._fail(f"{number} is forgotten at {event}", producer)
        if number not in seen.accepted or number in seen.forgotten:
            self._fail(f"{number} is forgotten twice, or was never accepted", producer)
        seen.forgotten.add(number)

    def _balance(self, producer: SimProducer, seen: _Seen) -> None:
        objects = producer.machine.objects
        here = objects.buffered + len(objects.granted) + len(objects.dead)
        if len(seen.accepted) - len(seen.forgotten) != here:
            left = sorted(seen.accepted - seen.forgotten)
            self._fail(f"{here} objects are here, {left} should be", producer)

    def _check_places(self, producer: SimProducer, life: _Life, event: ev.Event) -> None:
        """What comes back takes no place, and at a timer it may come after an admission."""
        taken = len(life.buffered) + len(life.admitted)
        if taken > producer.settings.buffers and not isinstance(event, ev.TimerFired):
            self._fail(f"{taken} places are taken", producer)

    def _note_available(self, producer: SimProducer, life: _Life) -> None:
        machine = producer.machine
        if machine.objects.ready and len(machine.grants) < producer.settings.unacked_limit:
            life.available_s = min(life.available_s, producer.world.now_s)
        else:
            life.available_s = math.inf

    # --- time ---------------------------------------------------------------------------------

    def look(self, producers: Mapping[str, SimProducer], calm_s: float, hop_s: float) -> None:
        """No take may be open beside an object for longer than it takes to look everywhere, since
        `calm_s`, when the last trouble ended. A hop takes `hop_s` at most."""
        since_s = calm_s + SETTLE_S
        for holder in producers.values():
            takes = self._of(holder).life.takes
            if not takes or not holder.alive:
                continue
            expiry_s = holder.settings.probe_expiry_s / holder.clock.rate
            for ref, (begun_s, access) in takes.items():
                reached = {name for name, share in access.items() if share > 0.0} | {holder.name}
                limit_s = expiry_s + (len(reached) + 2) * hop_s + ROUNDING_S
                for name in reached:
                    beside_s = max(since_s, begun_s, self._of(producers[name]).life.available_s)
                    if holder.world.now_s - beside_s > limit_s and producers[name].alive:
                        self._fail(f"take {ref} waits beside the objects of {name}", holder)

    def left(self, producer: SimProducer) -> set[int]:
        """Returns the objects that no consumer is done with yet, those that are dead aside."""
        seen = self._of(producer)
        return seen.accepted - seen.forgotten - producer.machine.objects.dead.keys()

    def unsettled(self, producer: SimProducer) -> None:
        """Fail: some time after the last trouble there is still something left."""
        self._fail(f"objects {sorted(self.left(producer))} find no consumer", producer)
