"""The stories of objects and probes at one producer, for `/explain`: the events that went into the
machine and the commands that came out, in words. They are bounded: the oldest are forgotten."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeAlias

from spillover.core.queue import events as ev
from spillover.core.queue.producer import ProducerMachine

STORIES_MAX = 4096
"""The most stories of objects and probes together."""

RECORDS_MAX = 32
"""The most records of one story: its beginning and the latest."""

Key: TypeAlias = tuple[str, str | int]
Record: TypeAlias = tuple[float, str]

OBJECT, PROBE = "object", "probe"


class QueueHistory:
    """The history of one producer. `saw` is called before the machine handles an event, `did` with
    each command of it."""

    def __init__(self, machine: ProducerMachine, clock: Callable[[], float]) -> None:
        self._machine = machine
        self._clock = clock
        self._stories: OrderedDict[Key, list[Record]] = OrderedDict()
        self._takes: dict[int, tuple[str, str]] = {}
        """Probe and consumer of the takes that are open, by ref."""
        self._saw: dict[type, Callable[[Any], None]] = {
            ev.Recovered: self._recovered,
            ev.Taken: self._taken,
            ev.TakeGone: lambda event: self._take_ends(event.ref, "the consumer has gone"),
            ev.ProbeCame: self._probe_came,
            ev.ProbeNotSent: lambda event: self._tell(
                (PROBE, event.probe.id), f"did not reach {event.peer}, which is passed over"
            ),
            ev.OfferCame: lambda event: self._tell(
                (PROBE, event.offer.probe_id), f"{event.offer.producer} offers an object for it"
            ),
            ev.OfferAnswered: self._offer_answered,
            ev.Sent: self._sent,
            ev.ThrownAway: lambda event: self._of_grant(
                event.grant, "its consumer went away before it had read it"
            ),
            ev.Acked: lambda event: self._of_grant(event.grant, "acknowledged: done"),
            ev.Discard: self._discarded,
            ev.Nacked: lambda event: self._of_grant(event.grant, "given back by its consumer"),
            ev.Extended: lambda event: self._of_grant(
                event.grant,
                "its consumer has asked for more time" if event.ref else "its consumer still reads",
            ),
        }
        self._did: dict[type, Callable[[Any], None]] = {
            ev.Accept: lambda command: self._tell(
                (OBJECT, command.number), "taken in and buffered: 201"
            ),
            ev.Give: self._give,
            ev.SendOffer: self._offered,
            ev.SendProbe: lambda command: self._tell(
                (PROBE, command.probe.id), f"sent on to {command.peer}: hop {command.probe.hop}"
            ),
            ev.Direct: lambda command: self._take_ends(
                command.ref, f"answered with an object of {command.offer.producer}"
            ),
            ev.NoObject: lambda command: self._take_ends(command.ref, "ended without an object"),
            ev.RefuseTake: lambda command: self._take_ends(
                command.ref, f"refused: {command.reason.value}"
            ),
            ev.Bury: self._bury,
            ev.Rest: self._rest,
        }

    def saw(self, event: ev.Event, _: float) -> None:
        """An event goes into the machine."""
        if (tell := self._saw.get(type(event))) is not None:
            tell(event)

    def did(self, command: ev.Command) -> None:
        if (tell := self._did.get(type(command))) is not None:
            tell(command)

    def story(self, kind: str, name: str | int) -> list[Record]:
        """Returns what is known of an object, by its number, or of a probe: instants and words."""
        return list(self._stories.get((kind, name), ()))

    def _tell(self, key: Key, words: str) -> None:
        story = self._stories.get(key)
        if story is None:
            story = self._stories[key] = []
            if len(self._stories) > STORIES_MAX:
                self._stories.popitem(last=False)
        elif len(story) >= RECORDS_MAX:
            del story[RECORDS_MAX // 2]
        story.append((self._clock(), words))

    def _of_grant(self, grant_id: str, words: str) -> None:
        if (grant := self._machine.grants.get(grant_id)) is not None:
            self._tell((OBJECT, grant.number), words)

    def _take_ends(self, ref: int, words: str) -> None:
        if (take := self._takes.pop(ref, None)) is not None:
            self._tell((PROBE, take[0]), words)

    # --- events -------------------------------------------------------------------------------

    def _recovered(self, event: ev.Recovered) -> None:
        self._tell((OBJECT, event.number), "found in the store when the process started")

    def _taken(self, event: ev.Taken) -> None:
        self._takes[event.ref] = (event.probe_id, event.consumer)
        hops = f"{event.max_hops} hop{'s' * (event.max_hops > 1)}"
        self._tell((PROBE, event.probe_id), f"consumer {event.consumer} asks here: up to {hops}")

    def _probe_came(self, event: ev.ProbeCame) -> None:
        probe = event.probe
        hop = f"hop {probe.hop} of {probe.max_hops}"
        words = f"came here on {hop}, for consumer {probe.consumer}, whose call {probe.first} holds"
        self._tell((PROBE, probe.id), words)

    def _offer_answered(self, event: ev.OfferAnswered) -> None:
        grant = self._machine.grants.get(event.grant)
        if grant is not None and grant.is_offer:
            words = "the offer is taken" if event.taken else "the offer is not taken: it is back"
            self._tell((OBJECT, grant.number), words)

    def _sent(self, event: ev.Sent) -> None:
        words = "sent" if event.whole else "its consumer went away before it was sent: it is back"
        self._of_grant(event.grant, words)

    def _discarded(self, event: ev.Discard) -> None:
        if event.number in self._machine.objects.dead:
            self._tell((OBJECT, event.number), "discarded by an operator")

    # --- commands -----------------------------------------------------------------------------

    def _give(self, command: ev.Give) -> None:
        number = command.number
        if command.probes == 0:
            self._tell((OBJECT, number), "fetched by its consumer")
            return
        probe, consumer = self._takes.get(command.ref, ("?", "?"))
        times = f"delivery {self._machine.objects.deliveries(number)}"
        self._tell((OBJECT, number), f"granted to consumer {consumer}, probe {probe}: {times}")
        self._take_ends(command.ref, f"answered with object {number} of this producer")

    def _offered(self, command: ev.SendOffer) -> None:
        offer = command.offer
        to = f"offered to {command.peer}, which holds the call"
        self._of_grant(offer.grant, f"granted to probe {offer.probe_id}, {to}")
        if (grant := self._machine.grants.get(offer.grant)) is not None:
            self._tell((PROBE, offer.probe_id), f"found object {grant.number} here: {to}")

    def _rest(self, command: ev.Rest) -> None:
        words = f"rests for {command.rest_s:g} s before it is given again"
        self._tell((OBJECT, command.number), words)

    def _bury(self, command: ev.Bury) -> None:
        words = "granted too often in vain: dead" if command.dead else "put back by an operator"
        self._tell((OBJECT, command.number), words)
