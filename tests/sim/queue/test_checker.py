"""The checker sees what it is there for: each planted bug is found in some random history, and told
with its seed."""

from __future__ import annotations

import heapq

import pytest

from spillover.core.queue import events as ev
from spillover.core.queue.consumer import ConsumerMachine
from spillover.core.queue.objects import Objects
from spillover.core.queue.probing import Ways
from spillover.core.queue.producer import ProducerMachine
from spillover.core.queue.room import Room
from support.histories.queue_checker import Broken
from support.histories.queues import History

SEEDS = range(300)


def what_breaks():
    """Random histories until something breaks; what is told then."""
    for seed in SEEDS:
        try:
            History(seed).play()
        except Broken as broken:
            told = str(broken)
            assert told.startswith(f"history {seed}: ")
            assert "\n" not in told
            return told
    pytest.fail("nothing was found")


def test_consumers_that_are_not_looked_after(monkeypatch):
    """Their probe has parked, and objects are elsewhere."""
    monkeypatch.setattr(ProducerMachine, "_sweep", lambda *_: None)
    assert "waits beside the objects of" in what_breaks()


def test_a_sweep_that_does_not_look_everywhere(monkeypatch):
    """It stops as early as any other probe."""
    monkeypatch.setattr(Ways, "reach", lambda *_: 1)
    assert "waits beside the objects of" in what_breaks()


def test_the_newest_first(monkeypatch):
    """A stack is no queue."""

    def grant(objects):
        number = max(objects._buffer)
        objects._buffer.remove(number)
        heapq.heapify(objects._buffer)
        objects.granted.add(number)
        return number

    monkeypatch.setattr(Objects, "grant", grant)
    assert "was granted before" in what_breaks()


def test_what_comes_back_stands_behind(monkeypatch):
    """It had waited already."""

    def give_back(objects, number):
        objects.granted.remove(number)
        objects._buffer.append(number)  # a heap no longer

    monkeypatch.setattr(Objects, "give_back", give_back)
    assert "was granted before" in what_breaks()


def test_objects_accepted_before_they_are_stored(monkeypatch):
    """201 first, the disk later."""

    def read(machine, event, now_s):
        machine.room.read(event.ref, event.number, event.held_bytes)
        machine._stored(ev.Stored(event.number), now_s)

    monkeypatch.setattr(ProducerMachine, "_read", read)
    assert "is accepted before it is stored" in what_breaks()


def test_an_extension_that_is_forgotten(monkeypatch):
    """The consumer was told that it has more time."""

    def extended(machine, event, _):
        machine._out.append(ev.Told(event.ref, machine.grants.get(event.grant) is not None))

    monkeypatch.setattr(ProducerMachine, "_extended", extended)
    assert "is given to two" in what_breaks()


def test_visibility_that_does_not_begin_anew(monkeypatch):
    """When the object has been sent whole."""

    def sent(machine, event, now_s):
        grant = machine.grants.get(event.grant)
        if grant is not None and event.whole:
            grant.until_s = now_s
            machine._agenda.at(now_s, machine._grant_late, grant)

    monkeypatch.setattr(ProducerMachine, "_sent", sent)
    assert "is given to two" in what_breaks()


def test_an_object_that_is_sent_twice(monkeypatch):
    """Whoever comes for it gets it, again and again."""

    def fetched(machine, event, _):
        grant = machine.grants.get(event.grant)
        if grant is None:
            machine._out.append(ev.Told(event.ref, known=False))
            return
        grant.is_offer = False
        machine._out.append(ev.Give(event.ref, grant.id, grant.number, 0))

    monkeypatch.setattr(ProducerMachine, "_fetched", fetched)
    history = History(0)
    producer = next(iter(history.producers.values()))
    producer.boot()
    make_one_offer(producer)
    grant = next(iter(producer.machine.grants)).id
    producer.ask(lambda ref: ev.Fetched(ref, grant), lambda _: None)
    with pytest.raises(Broken, match="is given again, or was declined"):
        producer.ask(lambda ref: ev.Fetched(ref, grant), lambda _: None)


def make_one_offer(producer):
    """An object that is offered to a take held elsewhere."""
    producer.disk = None
    producer.ask(lambda ref: ev.Offered(ref, 1e9), lambda admit: producer.read(admit.ref, print))
    peer = next(iter(producer.machine.ways._known))
    probe = ev.Probe(
        id="take", first="elsewhere", consumer="c", hop=1, max_hops=1, access={peer: 1.0},
        avoid_visited=False, visited=(), left_s=1.0,
    )  # fmt: skip
    producer._others = {**producer._others, "elsewhere": producer}
    producer.feed(ev.ProbeCame(probe))


def test_an_acknowledgement_that_is_not_kept(monkeypatch):
    """The consumer was told that it was heard."""

    def acked(machine, event, now_s):
        grant = machine.grants.get(event.grant)
        if grant is not None:
            machine._return(grant, now_s)
        machine._out.append(ev.Told(event.ref, known=True))

    monkeypatch.setattr(ProducerMachine, "_acked", acked)
    assert "is given although it was acknowledged" in what_breaks()


def test_objects_that_get_lost(monkeypatch):
    """Where the handler has failed too often."""

    def bury(objects, number):
        objects.granted.remove(number)
        objects._deliveries.pop(number)
        objects.produced -= 1

    monkeypatch.setattr(Objects, "bury", bury)
    assert "objects are here" in what_breaks()


def test_more_objects_than_places(monkeypatch):
    """The buffer's bound is not looked at."""
    monkeypatch.setattr(Room, "fits", lambda *_: True)
    assert "places are taken" in what_breaks()


def test_a_consumer_with_more_hands_than_it_has(monkeypatch):
    """Whatever is being handled, it asks for more."""

    def ask(machine, now_s):
        for _ in range(machine.settings.at_once + 1):
            take = f"{machine.settings.name}-{machine._random.random()}"
            machine._takes[take] = machine.settings.producers[0]

    monkeypatch.setattr(ConsumerMachine, "_ask", ask)
    assert "more hands than there are" in what_breaks()


def test_grants_that_never_end(monkeypatch):
    """What a consumer that has vanished was given stays with it."""

    def grant_late(machine, grant, now_s):
        if grant.id in machine.grants:
            machine._agenda.at(now_s + 10.0, machine._grant_late, grant)

    monkeypatch.setattr(ProducerMachine, "_grant_late", grant_late)
    assert "find no consumer" in what_breaks()
