"""The machine of one producer: it keeps objects, and helps consumers' probes to find some.

Theory of operation. An object is *offered*, *admitted* when there is a place for it, read, stored,
and then *buffered*. A consumer's call, a *take*, is held by the producer that it came to, which
sends a *probe* to itself first. A probe that meets an object makes a *grant* of it; else it hops
on, and on its last hop it *parks*, first come. A grant for a take held elsewhere is offered to its
holder, which takes or declines it. A grant ends with an acknowledgement, or its object returns: at
a nack, when its sending is broken off, when its time is over, when the offer is declined. What was
not handled rests before it is granted again, longer each time: else it would be dead in moments.

Nobody is stranded: as long as a take is open its holder sends a new probe each `probe_expiry_s`,
one that visits every producer the consumer can reach; the parked one expires by then.

What bounds it: buffered and admitted objects by `buffers`, all of them by `held_limit_bytes`,
grants and what rests by `unacked_limit`, dead ones by `dead_limit`, and whatever waits by
`waiting_limit`.

Not here: bodies, sockets, disks, clocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from spillover.core.agenda import Agenda
from spillover.core.queue import events as ev
from spillover.core.queue.events import Probe
from spillover.core.queue.grants import Grant, Grants
from spillover.core.queue.objects import Objects
from spillover.core.queue.probing import ParkedProbe, Ways
from spillover.core.queue.room import Room, WaitingOffer
from spillover.core.queue.settings import ProducerSettings
from spillover.core.queue.takes import OpenTake, Takes
from spillover.policy.backoff import backoff_s
from spillover.policy.queue import HOP, meet

SERVED, SENT_ON, PARKED, EXPIRED = "served", "sent_on", "parked", "expired"
PROBE_ENDS = (SERVED, SENT_ON, PARKED, EXPIRED)
"""The ends of a probe here. One that parks is served or expires later on."""


class ProducerMachine:
    """One producer, which knows these `peers`. `random` draws where probes go, and the names of
    grants."""

    def __init__(self, settings: ProducerSettings, peers: tuple[str, ...], random: Random) -> None:
        self.settings = settings
        self.objects = Objects()
        self._agenda = Agenda()
        self.grants = Grants(random, self._agenda)
        self.takes = Takes(self._agenda)
        self.ways = Ways(settings.id, peers, random)
        self.draining = False
        self.room = Room(settings.buffers, settings.held_limit_bytes)
        self.offers: dict[int, WaitingOffer] = {}
        """The offers that wait for a place, first come."""
        self.parked_probes: dict[tuple[str, str], ParkedProbe] = {}
        """Probes that are parked here, by the holder and the id of their take, first come."""
        self.probes = dict.fromkeys(PROBE_ENDS, 0)
        """The number of probes that came here, by their ends."""
        self.returned = 0
        """Grants that ended without an acknowledgement."""
        self._out: list[ev.Command] = []
        self._handlers: dict[type, Callable[[Any, float], None]] = {
            ev.Offered: self._offered,
            ev.OfferGone: self._offer_gone,
            ev.Read: self._read,
            ev.Stored: self._stored,
            ev.NotStored: self._not_stored,
            ev.Recovered: self._recovered,
            ev.Taken: self._taken,
            ev.TakeGone: lambda event, _: self.takes.end_call(event.ref),
            ev.ProbeCame: lambda event, now_s: self._meet(event.probe, now_s),
            ev.ProbeNotSent: self._probe_not_sent,
            ev.OfferCame: self._offer_came,
            ev.OfferAnswered: self._offer_answered,
            ev.Fetched: self._fetched,
            ev.Sent: self._sent,
            ev.ThrownAway: self._thrown_away,
            ev.Acked: self._acked,
            ev.Nacked: self._nacked,
            ev.Extended: self._extended,
            ev.PutBack: self._put_back,
            ev.Discard: self._discard,
            ev.Drain: self._drain,
            ev.Resume: self._resume,
            ev.TimerFired: lambda _, now_s: self._agenda.run_due(now_s),
        }

    def handle(self, event: ev.Event, now_s: float) -> list[ev.Command]:
        self._handlers[type(event)](event, now_s)
        commands, self._out = self._out, []
        return commands

    def next_deadline(self) -> float:
        return self._agenda.first_s()

    @property
    def waiting(self) -> int:
        """Returns how many offers wait for a place."""
        return len(self.offers)

    @property
    def drained(self) -> bool:
        """Returns whether a drain has nothing left to do: dead objects stay."""
        objects = self.objects
        return self.draining and not (
            objects.buffered or objects.granted or self.room.admitted or self.takes
        )

    # --- objects come in ----------------------------------------------------------------------

    def _fits(self, size_bytes: int) -> bool:
        return self.room.fits(self.objects.ready, size_bytes)

    def _offered(self, event: ev.Offered, now_s: float) -> None:
        if self.draining:
            self._out.append(ev.RefuseOffer(event.ref, ev.Reason.DRAINING))
        elif not self.offers and self._fits(event.size_bytes):
            self._admit(event.ref, event.size_bytes)
        elif event.deadline_s <= now_s or len(self.offers) >= self.settings.waiting_limit:
            self._out.append(ev.RefuseOffer(event.ref, ev.Reason.QUEUE_FULL))
        else:
            alarm = self._agenda.at(event.deadline_s, self._offer_late, event.ref)
            self.offers[event.ref] = WaitingOffer(event.size_bytes, now_s, alarm)

    def _offer_late(self, ref: int, _: float) -> None:
        del self.offers[ref]
        self._out.append(ev.RefuseOffer(ref, ev.Reason.QUEUE_FULL))
        self._admit_next()

    def _offer_gone(self, event: ev.OfferGone, now_s: float) -> None:
        if event.ref in self.offers:
            self._agenda.drop(self.offers.pop(event.ref).alarm)
        self.room.leave(event.ref)
        self._admit_next()

    def _admit(self, ref: int, size_bytes: int) -> None:
        self.room.admit(ref, size_bytes)
        self._out.append(ev.Admit(ref))

    def _admit_next(self) -> None:
        """Whoever came first is first, also where a later one would fit."""
        while self.offers:
            ref, offer = next(iter(self.offers.items()))
            if not self._fits(offer.size_bytes):
                return
            del self.offers[ref]
            self._agenda.drop(offer.alarm)
            self._admit(ref, offer.size_bytes)

    def _read(self, event: ev.Read, now_s: float) -> None:
        self.room.read(event.ref, event.number, event.held_bytes)
        self._out.append(ev.Store(event.number))

    def _stored(self, event: ev.Stored, now_s: float) -> None:
        ref = self.room.stored(event.number)
        self.objects.add(event.number)
        self._out.append(ev.Accept(ref, event.number))
        self._serve(now_s)

    def _not_stored(self, event: ev.NotStored, now_s: float) -> None:
        ref = self.room.not_stored(event.number)
        self._out.append(ev.RefuseOffer(ref, ev.Reason.STORE_FULL))
        self._admit_next()

    def _recovered(self, event: ev.Recovered, now_s: float) -> None:
        """Take an object back from the store. One that was granted as the process died was granted
        in vain: it may be dead of that."""
        objects = self.objects
        dies = not event.dead and self._is_hopeless(event.deliveries)
        dead = event.dead or dies
        rests = event.rest_s > 0.0 and not dead
        objects.recover(event.number, event.deliveries, dead=dead, rests=rests)
        if rests:
            self._agenda.at(now_s + event.rest_s, self._wake, event.number)
        if dies:
            self._out.append(ev.Bury(event.number, dead=True))
        self.room.hold(event.number, event.held_bytes)

    # --- consumers ask ------------------------------------------------------------------------

    def _taken(self, event: ev.Taken, now_s: float) -> None:
        is_over = self.draining and not self._available  # what is here is given to whoever asks
        if is_over or len(self.takes) >= self.settings.waiting_limit:
            reason = ev.Reason.DRAINING if is_over else ev.Reason.QUEUE_FULL
            self._out.append(ev.RefuseTake(event.ref, reason))
            return
        take = OpenTake(event, now_s)
        self.takes.add(take)
        take.deadline_alarm = self._agenda.at(event.deadline_s, self._take_late, take)
        left_s = self._watch(take, now_s)
        self._meet(take.probe(self.settings.id, left_s), now_s)

    def _watch(self, take: OpenTake, now_s: float) -> float:
        """Sweep when the probe that leaves now has expired; how long it may last."""
        expiry_s = self.settings.probe_expiry_s
        take.sweep_alarm = self._agenda.at(now_s + expiry_s, self._sweep, take)
        return min(expiry_s, take.deadline_s - now_s)

    def _sweep(self, take: OpenTake, now_s: float) -> None:
        left_s = self._watch(take, now_s)
        reach = self.ways.reach(take.access)
        self._meet(take.sweep(self.settings.id, left_s, reach), now_s)

    def _take_late(self, take: OpenTake, _: float) -> None:
        self.takes.end(take)
        self._out.append(ev.NoObject(take.ref, take.probes))

    # --- probes -------------------------------------------------------------------------------

    def _meet(self, probe: Probe, now_s: float) -> None:
        """A probe is here: it is served, hops on, or parks."""
        if probe.left_s <= 0.0 or (probe.first == self.settings.id and probe.id not in self.takes):
            return
        if self._available:
            self._grant(probe, now_s)
            return
        own, hop, among = self.settings.id, probe.hop, None
        while self.draining or meet(0, hop, probe.max_hops) == HOP:
            if among is None:
                among = self.ways.within_reach(probe.access, now_s, own_too=not self.draining)
            peer = self.ways.next_hop(probe, hop, among)
            if peer is None:
                break
            hop += 1
            if peer != own:
                self.probes[SENT_ON] += 1
                self._out.append(ev.SendProbe(peer, probe.onward(own, hop - probe.hop)))
                return
        self._park(probe.onward(own, hop - probe.hop) if hop > probe.hop else probe, now_s)

    def _probe_not_sent(self, event: ev.ProbeNotSent, now_s: float) -> None:
        """Pass over the peer that was not reached; the hop does not count."""
        self.ways.failed(event.peer, now_s)
        probe = event.probe
        self._meet(replace(probe, hop=probe.hop - 1, visited=probe.visited[:-1]), now_s)

    def _park(self, probe: Probe, now_s: float) -> None:
        """Wait here; a sweep that comes to where its forerunner is keeps the place in the line."""
        key = (probe.first, probe.id)
        forerunner = self.parked_probes.get(key)
        is_full = forerunner is None and len(self.parked_probes) >= self.settings.waiting_limit
        if is_full or self.draining:
            return  # the next sweep finds another place
        self.probes[PARKED] += 1
        if forerunner is not None:
            self._agenda.drop(forerunner.alarm)
        until_s = now_s + probe.left_s
        alarm = self._agenda.at(until_s, self._parked_late, key)
        self.parked_probes[key] = ParkedProbe(probe, until_s, alarm)

    def _parked_late(self, key: tuple[str, str], _: float) -> None:
        del self.parked_probes[key]
        self.probes[EXPIRED] += 1

    @property
    def _available(self) -> bool:
        """Returns whether there is an object to grant."""
        away = len(self.grants) + len(self.objects.resting)
        return self.objects.ready > 0 and away < self.settings.unacked_limit

    def _serve(self, now_s: float) -> None:
        """Grant what is buffered to those parked here, then fill the places that became free."""
        while self._available and self.parked_probes:
            probe, until_s, alarm = self.parked_probes.pop(next(iter(self.parked_probes)))
            self._agenda.drop(alarm)
            if until_s > now_s and (probe.first != self.settings.id or probe.id in self.takes):
                self._grant(probe, now_s)
        self._admit_next()

    # --- grants -------------------------------------------------------------------------------

    def _grant(self, probe: Probe, now_s: float) -> None:
        self.probes[SERVED] += 1
        number = self.objects.grant()
        grant = self.grants.make(number, now_s + self.settings.visibility_s)
        grant.alarm = self._agenda.at(grant.until_s, self._grant_late, grant)
        if probe.first == self.settings.id:
            take = self.takes.by_id[probe.id]
            self.takes.end(take)
            grant.is_offer, grant.is_sending = False, True
            self.objects.delivered(number)
            self._out.append(ev.Give(take.ref, grant.id, number, probe.hop))
        else:
            offer = ev.Offer(probe.id, self.settings.id, grant.id, probe.hop)
            self._out.append(ev.SendOffer(probe.first, offer))
        self._admit_next()

    def _offer_came(self, event: ev.OfferCame, now_s: float) -> None:
        take = self.takes.by_id.get(event.offer.probe_id)
        if take is not None:
            self.takes.end(take)
            self._out.append(ev.Direct(take.ref, event.offer))
        self._out.append(ev.AnswerOffer(event.ref, take is not None))

    def _offer_answered(self, event: ev.OfferAnswered, now_s: float) -> None:
        grant = self.grants.get(event.grant)
        if grant is None or not grant.is_offer:
            return
        grant.is_offer = False
        if event.taken:
            self.objects.delivered(grant.number)
            grant.until_s = now_s + self.settings.visibility_s
        else:
            self._return(grant, now_s)

    def _fetched(self, event: ev.Fetched, now_s: float) -> None:
        """The answer that it was taken may come after the consumer itself."""
        grant = self.grants.get(event.grant)
        if grant is None or grant.is_sending:
            self._out.append(ev.Told(event.ref, known=False))
            return
        if grant.is_offer:
            grant.is_offer = False
            self.objects.delivered(grant.number)
        grant.is_sending = True
        self._out.append(ev.Give(event.ref, grant.id, grant.number, 0))

    def _sent(self, event: ev.Sent, now_s: float) -> None:
        grant = self.grants.get(event.grant)
        if grant is None:
            return
        if event.whole:
            grant.is_received = False  # extended until now for the sake of the transfer
            grant.until_s = now_s + self.settings.visibility_s
        else:
            self._return(grant, now_s)

    def _thrown_away(self, event: ev.ThrownAway, now_s: float) -> None:
        """End a grant whose answer was thrown away. A consumer that has asked for more time has
        received it all the same."""
        grant = self.grants.get(event.grant)
        if grant is not None and not grant.is_received:
            self._return(grant, now_s)

    def _grant_late(self, grant: Grant, now_s: float) -> None:
        if grant.until_s > now_s:
            grant.alarm = self._agenda.at(grant.until_s, self._grant_late, grant)
        else:
            self._return(grant, now_s)

    def _return(self, grant: Grant, now_s: float, resting_s: float = 0.0) -> None:
        """The object is buffered again, in its place, after it has rested; or dead if it came back
        too often."""
        self.returned += 1
        self.grants.end(grant)
        objects, number = self.objects, grant.number
        if self._is_hopeless(objects.deliveries(number)):
            objects.bury(number)
            self._out.append(ev.Bury(number, dead=True))
        elif resting_s > 0.0:
            objects.rest(number)
            self._agenda.at(now_s + resting_s, self._wake, number)
            self._out.append(ev.Rest(number, resting_s))
        else:
            objects.give_back(number)
        self._serve(now_s)

    def _wake(self, number: int, now_s: float) -> None:
        self.objects.wake(number)
        self._serve(now_s)

    def _is_hopeless(self, deliveries: int) -> bool:
        settings = self.settings
        return (
            deliveries >= settings.deliveries_max and len(self.objects.dead) < settings.dead_limit
        )

    def _acked(self, event: ev.Acked, now_s: float) -> None:
        """A second acknowledgement of the same grant is as good as the first."""
        grant = self.grants.get(event.grant)
        if grant is not None:
            self.grants.acknowledged(grant)
            self.objects.acknowledge(grant.number)
            self.room.gone(grant.number)
            self._out.append(ev.Forget(grant.number))
            self._serve(now_s)
        self._out.append(ev.Told(event.ref, self.grants.was_acknowledged(event.grant)))

    def _nacked(self, event: ev.Nacked, now_s: float) -> None:
        grant = self.grants.get(event.grant)
        if grant is not None:
            resting_s = event.rest_s
            if resting_s is None:
                settings, before = self.settings, self.objects.deliveries(grant.number) - 1
                resting_s = backoff_s(max(0, before), settings.retry_s, settings.retry_s_max, 0.0)
            self._return(grant, now_s, resting_s)
        self._out.append(ev.Told(event.ref, grant is not None))

    def _extended(self, event: ev.Extended, now_s: float) -> None:
        grant = self.grants.get(event.grant)
        if grant is not None:
            usual_s = self.settings.visibility_s
            longer_s = usual_s if event.visibility_s is None else event.visibility_s
            grant.is_received = True
            is_sooner = now_s + longer_s < grant.until_s
            grant.until_s = now_s + longer_s
            if is_sooner:
                self._agenda.drop(grant.alarm)
                grant.alarm = self._agenda.at(grant.until_s, self._grant_late, grant)
        self._out.append(ev.Told(event.ref, grant is not None))

    # --- operators ----------------------------------------------------------------------------

    def _put_back(self, event: ev.PutBack, now_s: float) -> None:
        known = self.objects.put_back(event.number)
        if known:
            self._out.append(ev.Bury(event.number, dead=False))
        self._out.append(ev.Told(event.ref, known))
        self._serve(now_s)

    def _discard(self, event: ev.Discard, now_s: float) -> None:
        known = self.objects.discard(event.number)
        if known:
            self.room.gone(event.number)
            self._out.append(ev.Forget(event.number))
        self._out.append(ev.Told(event.ref, known))
        self._admit_next()

    def _drain(self, event: ev.Drain, now_s: float) -> None:
        """Whoever waits here does better elsewhere. What is buffered is still given."""
        self.draining = True
        for ref, offer in self.offers.items():
            self._agenda.drop(offer.alarm)
            self._out.append(ev.RefuseOffer(ref, ev.Reason.DRAINING))
        self.offers.clear()
        for take in list(self.takes.by_id.values()):
            self.takes.end(take)
            self._out.append(ev.NoObject(take.ref, take.probes))
        parked, self.parked_probes = self.parked_probes, {}
        for probe, until_s, alarm in parked.values():
            self._agenda.drop(alarm)
            self._meet(replace(probe, left_s=until_s - now_s), now_s)

    def _resume(self, event: ev.Resume, now_s: float) -> None:
        self.draining = False

    def check(self) -> None:
        """Raise AssertionError if the state contradicts itself."""
        self.objects.check()
        assert {grant.number for grant in self.grants} == self.objects.granted, "grants"
        self.room.check()
        assert not (self._available and self.parked_probes), (
            "a probe waits although there is an object"
        )
        for offer in list(self.offers.values())[:1]:
            assert not self._fits(offer.size_bytes), "an offer waits although there is a place"
        waits = self.offers or self.takes or self.grants or self.objects.resting
        assert self.next_deadline() < math.inf or not waits
