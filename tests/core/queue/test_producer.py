"""One producer, step by step: what it answers, and when."""

from __future__ import annotations

from random import Random

import pytest

from spillover.core.agenda import Agenda
from spillover.core.queue import events as ev
from spillover.core.queue.grants import ACKNOWLEDGED_MAX, Grants
from support.queue_machines import EVEN, ONLY_HERE, given, producer, put, taken


def test_consumers_that_wait_are_served_first_come() -> None:
    machine = producer()
    for ref in (7, 8, 9):
        machine.handle(taken(ref, ONLY_HERE), 0.0)
    assert [given(put(machine, number)).ref for number in (1, 2, 3)] == [7, 8, 9]


def test_a_producer_waits_for_a_place_and_is_refused_at_its_deadline() -> None:
    machine = producer(buffers=1)
    put(machine, 1)
    assert machine.handle(ev.Offered(2, 5.0), 0.0) == []
    assert machine.next_deadline() == 5.0
    assert machine.handle(ev.TimerFired(), 5.0) == [ev.RefuseOffer(2, ev.Reason.QUEUE_FULL)]


def test_a_place_that_is_free_goes_to_the_one_that_waited_longest() -> None:
    machine = producer(buffers=1)
    put(machine, 1)
    machine.handle(ev.Offered(2, 50.0), 0.0)
    machine.handle(ev.Offered(3, 50.0), 0.0)
    commands = machine.handle(taken(7, ONLY_HERE), 1.0)
    assert given(commands).number == 1
    assert [one for one in commands if isinstance(one, ev.Admit)] == [ev.Admit(2)]


def test_whoever_leaves_while_its_object_is_read_gives_its_place_up() -> None:
    machine = producer(buffers=1)
    assert machine.handle(ev.Offered(1, 5.0), 0.0) == [ev.Admit(1)]
    machine.handle(ev.Offered(2, 5.0), 0.0)
    assert machine.handle(ev.OfferGone(1), 1.0) == [ev.Admit(2)]


def test_whoever_leaves_while_its_object_is_stored_has_brought_it() -> None:
    machine = producer(buffers=1)
    machine.handle(ev.Offered(1, 5.0, 100), 0.0)
    machine.handle(ev.Read(1, 1, 100), 0.0)
    assert machine.handle(ev.OfferGone(1), 0.0) == []
    assert machine.handle(ev.Stored(1), 0.0) == [ev.Accept(1, 1)]
    assert (machine.objects.buffered, machine.room.held_bytes) == (1, 100)
    machine.check()


def test_a_full_store_takes_nothing_and_keeps_its_places() -> None:
    machine = producer(buffers=1)
    machine.handle(ev.Offered(1, 5.0), 0.0)
    machine.handle(ev.Read(1, 1), 0.0)
    assert machine.handle(ev.NotStored(1), 0.0) == [ev.RefuseOffer(1, ev.Reason.STORE_FULL)]
    assert machine.handle(ev.Offered(2, 5.0), 0.0) == [ev.Admit(2)]
    assert machine.objects.produced == 0


def test_a_probe_hops_on_until_its_hops_are_used_up() -> None:
    machine = producer()
    probe = ev.Probe("t", "p2", "c", 1, 2, {"p2": 1.0}, False, (), 5.0)
    (sent,) = machine.handle(ev.ProbeCame(probe), 0.0)
    assert isinstance(sent, ev.SendProbe)
    assert (sent.peer, sent.probe.hop, sent.probe.visited) == ("p2", 2, ("p1",))
    assert machine.handle(ev.ProbeCame(sent.probe), 0.0) == []
    assert len(machine.parked_probes) == 1


def test_an_object_for_a_take_held_elsewhere_is_offered_to_its_holder() -> None:
    machine = producer()
    machine.handle(ev.ProbeCame(ev.Probe("t", "p2", "c", 3, 3, EVEN, False, (), 5.0)), 0.0)
    (offer,) = [one for one in put(machine, 1) if isinstance(one, ev.SendOffer)]
    assert (offer.peer, offer.offer.probe_id, offer.offer.probes) == ("p2", "t", 3)
    assert machine.handle(ev.OfferAnswered(offer.offer.grant, taken=True), 1.0) == []
    (give,) = machine.handle(ev.Fetched(5, offer.offer.grant), 2.0)
    assert give == ev.Give(5, offer.offer.grant, 1, 0)
    assert machine.handle(ev.Fetched(6, offer.offer.grant), 2.0) == [ev.Told(6, known=False)]


def test_a_grant_that_is_taken_elsewhere_has_all_of_its_time_from_then_on() -> None:
    """Not only what is left since it was offered: the way to its holder may be long."""
    machine = producer()
    machine.handle(ev.ProbeCame(ev.Probe("t", "p2", "c", 3, 3, EVEN, False, (), 5.0)), 0.0)
    (offer,) = [one for one in put(machine, 1) if isinstance(one, ev.SendOffer)]
    machine.handle(ev.OfferAnswered(offer.offer.grant, taken=True), 6.0)
    machine.handle(ev.TimerFired(), 10.0)
    assert machine.objects.granted == {1}
    machine.handle(ev.TimerFired(), 16.0)
    assert machine.objects.buffered == 1


def test_an_offer_that_is_declined_costs_nobody_anything() -> None:
    machine = producer()
    machine.handle(ev.ProbeCame(ev.Probe("t", "p2", "c", 3, 3, EVEN, False, (), 5.0)), 0.0)
    (offer,) = [one for one in put(machine, 1) if isinstance(one, ev.SendOffer)]
    machine.handle(ev.OfferAnswered(offer.offer.grant, taken=False), 1.0)
    assert (machine.objects.buffered, machine.objects.deliveries(1)) == (1, 0)
    assert given(machine.handle(taken(7, ONLY_HERE), 2.0)).number == 1


def test_a_take_that_waits_is_pointed_to_an_offer() -> None:
    machine = producer()
    machine.handle(taken(7, {"p2": 1.0}, max_hops=2), 0.0)
    offer = ev.Offer("take7", "p2", "grant", 2)
    commands = machine.handle(ev.OfferCame(3, offer), 1.0)
    assert commands == [ev.Direct(7, offer), ev.AnswerOffer(3, taken=True)]


def test_a_take_ends_at_its_deadline_with_nothing() -> None:
    machine = producer()
    machine.handle(taken(7, ONLY_HERE, deadline_s=3.0), 0.0)
    assert machine.handle(ev.TimerFired(), 3.0) == [ev.NoObject(7, 1)]
    assert put(machine, 1, 4.0) == [ev.Accept(1, 1)], "nobody is parked any more"


def test_a_take_sweeps_when_its_probe_has_expired() -> None:
    machine = producer(peers=("p2", "p3", "p4"))
    access = {"p1": 0.4, "p2": 0.3, "p3": 0.3, "p4": 0.0}
    machine.handle(taken(7, access), 0.0)
    assert machine.next_deadline() == 5.0
    (sent,) = machine.handle(ev.TimerFired(), 5.0)
    assert isinstance(sent, ev.SendProbe)
    assert (sent.probe.max_hops, sent.probe.avoid_visited) == (3, True)
    assert sent.peer in {"p2", "p3"}


def test_a_sweep_that_comes_to_its_forerunner_waits_for_as_long_as_it_may() -> None:
    """What rings for the forerunner ends it no sooner."""
    machine = producer()
    for now_s in (0.0, 3.0):
        probe = ev.Probe("t", "p2", "c", 3, 3, EVEN, False, (), 5.0)
        assert machine.handle(ev.ProbeCame(probe), now_s) == []
    machine.handle(ev.TimerFired(), 5.0)
    assert len(machine.parked_probes) == 1
    machine.handle(ev.TimerFired(), 8.0)
    assert (len(machine.parked_probes), machine.probes["expired"]) == (0, 1)


def test_a_probe_lasts_no_longer_than_its_take() -> None:
    machine = producer()
    asked = taken(7, {"p2": 1.0}, 100.0, max_hops=2, deadline_s=102.0)
    (sent,) = machine.handle(asked, 100.0)
    assert isinstance(sent, ev.SendProbe)
    assert sent.probe.left_s == 2.0


def test_a_peer_that_cannot_be_reached_is_passed_over() -> None:
    machine = producer(peers=("p2", "p3"))
    access = {"p2": 0.5, "p3": 0.5}
    (sent,) = machine.handle(taken(7, access, max_hops=2), 0.0)
    assert isinstance(sent, ev.SendProbe)
    (again,) = machine.handle(ev.ProbeNotSent(sent.probe, sent.peer), 0.1)
    assert isinstance(again, ev.SendProbe)
    assert {sent.peer, again.peer} == {"p2", "p3"}
    assert again.probe == sent.probe
    assert machine.handle(ev.ProbeNotSent(again.probe, again.peer), 0.2) == []
    assert len(machine.parked_probes) == 1, "nobody else is left"


@pytest.mark.parametrize("how", ["nack", "late", "broken"])
def test_an_object_comes_back_to_the_front(how: str) -> None:
    machine = producer()
    put(machine, 1)
    put(machine, 2)
    grant = given(machine.handle(taken(7, ONLY_HERE), 0.0)).grant
    if how == "nack":
        assert machine.handle(ev.Nacked(3, grant), 1.0) == [ev.Told(3, known=True)]
    elif how == "broken":
        machine.handle(ev.Sent(grant, whole=False), 1.0)
    else:
        machine.handle(ev.Sent(grant, whole=True), 1.0)
        machine.handle(ev.TimerFired(), 10.0)
        assert machine.objects.buffered == 1, "the time begins when it has been sent"
        machine.handle(ev.TimerFired(), 11.0)
    machine.check()
    assert list(machine.objects) == [1, 2]
    assert given(machine.handle(taken(8, ONLY_HERE), 12.0)).number == 1


def test_an_extension_gives_more_time_from_now_on() -> None:
    machine = producer()
    put(machine, 1)
    grant = given(machine.handle(taken(7, ONLY_HERE), 0.0)).grant
    assert machine.handle(ev.Extended(3, grant), 8.0) == [ev.Told(3, known=True)]
    machine.handle(ev.TimerFired(), 17.9)
    assert machine.objects.buffered == 0
    machine.handle(ev.Extended(4, grant, 1.0), 17.9)
    machine.handle(ev.TimerFired(), 18.9)
    assert machine.objects.buffered == 1
    assert machine.handle(ev.Extended(5, grant), 19.0) == [ev.Told(5, known=False)]


def test_an_extension_may_be_shorter_than_what_is_left() -> None:
    """And rings when it is over, though nothing else does until then."""
    machine = producer()
    put(machine, 1)
    grant = given(machine.handle(taken(7, ONLY_HERE), 0.0)).grant
    machine.handle(ev.TimerFired(), 5.0)  # nothing is swept any more
    machine.handle(ev.Extended(3, grant, 0.5), 6.0)
    assert machine.next_deadline() == 6.5
    machine.handle(ev.TimerFired(), 6.5)
    assert machine.objects.buffered == 1


def test_a_second_acknowledgement_is_as_good_as_the_first() -> None:
    machine = producer()
    put(machine, 1)
    grant = given(machine.handle(taken(7, ONLY_HERE), 0.0)).grant
    commands = machine.handle(ev.Acked(3, grant), 1.0)
    assert commands == [ev.Forget(1), ev.Told(3, known=True)]
    assert machine.handle(ev.Acked(4, grant), 1.0) == [ev.Told(4, known=True)]
    assert machine.handle(ev.Acked(5, "another"), 1.0) == [ev.Told(5, known=False)]
    assert machine.objects.acknowledged == 1


def test_of_many_acknowledged_grants_the_last_ones_are_remembered() -> None:
    """Those are what a consumer asks again about, whose answer was lost."""
    grants = Grants(Random(1), Agenda())
    made = [grants.make(number, 0.0) for number in range(ACKNOWLEDGED_MAX + 2)]
    for grant in made:
        grants.acknowledged(grant)
    known = [grants.was_acknowledged(grant.id) for grant in made]
    assert known == [False] * 2 + [True] * ACKNOWLEDGED_MAX


def test_what_comes_back_too_often_is_dead_and_can_be_put_back() -> None:
    machine = producer(deliveries_max=2)
    put(machine, 1)
    for ref in (7, 8):
        grant = given(machine.handle(taken(ref, ONLY_HERE), 0.0)).grant
        commands = machine.handle(ev.Nacked(ref, grant), 0.0)
    assert ev.Bury(1, dead=True) in commands
    assert list(machine.objects.dead) == [1]
    commands = machine.handle(ev.PutBack(9, 1), 1.0)
    assert commands == [ev.Bury(1, dead=False), ev.Told(9, known=True)]
    assert machine.objects.deliveries(1) == 0
    assert machine.handle(ev.PutBack(9, 1), 1.0) == [ev.Told(9, known=False)]


def test_what_was_not_handled_rests_longer_each_time_and_others_go_before_it() -> None:
    machine = producer(deliveries_max=9, retry_s=1.0, retry_s_max=3.0)
    put(machine, 1)
    now_s = 0.0
    for rest_s in (1.0, 2.0, 3.0, 3.0):
        grant = given(machine.handle(taken(7, ONLY_HERE), now_s)).grant
        commands = machine.handle(ev.Nacked(8, grant), now_s)
        assert commands == [ev.Rest(1, rest_s), ev.Told(8, known=True)]
        assert (machine.objects.buffered, machine.objects.ready) == (1, 0)
        assert machine.next_deadline() == now_s + rest_s
        now_s += rest_s
        machine.handle(ev.TimerFired(), now_s)
    grant = given(machine.handle(taken(7, ONLY_HERE), now_s)).grant
    machine.handle(ev.Nacked(8, grant), now_s)
    put(machine, 2, now_s)
    assert given(machine.handle(taken(7, ONLY_HERE), now_s)).number == 2
    machine.check()


def test_what_a_consumer_gives_back_unhandled_rests_as_long_as_it_says() -> None:
    machine = producer(retry_s=1.0)
    put(machine, 1)
    grant = given(machine.handle(taken(7, ONLY_HERE), 0.0)).grant
    machine.handle(ev.Nacked(8, grant, 0.0), 0.0)
    grant = given(machine.handle(taken(7, ONLY_HERE), 0.0)).grant
    assert ev.Rest(1, 20.0) in machine.handle(ev.Nacked(8, grant, 20.0), 0.0)


def test_as_many_rest_as_may_be_granted_and_then_nothing_is_given() -> None:
    machine = producer(buffers=3, unacked_limit=2, retry_s=1.0)
    for number in (1, 2, 3):
        put(machine, number)
    for _ in range(2):
        grant = given(machine.handle(taken(7, ONLY_HERE), 0.0)).grant
        machine.handle(ev.Nacked(8, grant), 0.0)
    assert machine.handle(taken(9, ONLY_HERE), 0.5) == []
    assert given(machine.handle(ev.TimerFired(), 1.0)).number == 1
    machine.check()


def test_what_rested_as_the_process_died_rests_on() -> None:
    machine = producer()
    machine.handle(ev.Recovered(1, 1, dead=False, rest_s=2.0), 0.0)
    assert machine.handle(taken(7, ONLY_HERE), 0.0) == []
    assert given(machine.handle(ev.TimerFired(), 2.0)).number == 1


def test_with_as_many_dead_as_there_can_be_nothing_dies() -> None:
    machine = producer(deliveries_max=1, dead_limit=0)
    put(machine, 1)
    grant = given(machine.handle(taken(7, ONLY_HERE), 0.0)).grant
    machine.handle(ev.Nacked(7, grant), 0.0)
    assert machine.objects.buffered == 1


def test_what_was_granted_too_often_as_the_process_died_is_dead_at_the_start() -> None:
    machine = producer(deliveries_max=3, dead_limit=1)
    assert machine.handle(ev.Recovered(1, 2, dead=False), 0.0) == []
    assert machine.handle(ev.Recovered(2, 3, dead=False), 0.0) == [ev.Bury(2, dead=True)]
    assert machine.handle(ev.Recovered(3, 3, dead=False), 0.0) == [], "there is no room for it"
    machine.check()
    assert (list(machine.objects), list(machine.objects.dead)) == ([1, 3], [2])


def test_what_was_thrown_away_unread_is_back_unless_its_consumer_was_heard_since() -> None:
    machine = producer()
    put(machine, 1)
    give = given(machine.handle(taken(7, ONLY_HERE), 0.0))
    machine.handle(ev.Extended(0, give.grant), 1.0)
    machine.handle(ev.Sent(give.grant, whole=True), 2.0)
    machine.handle(ev.ThrownAway(give.grant), 3.0)
    assert list(machine.objects) == [1]
    machine.handle(ev.ThrownAway(give.grant), 3.0)
    give = given(machine.handle(taken(8, ONLY_HERE), 4.0))
    machine.handle(ev.Sent(give.grant, whole=True), 5.0)
    machine.handle(ev.Extended(9, give.grant), 6.0)
    machine.handle(ev.ThrownAway(give.grant), 7.0)
    assert machine.objects.granted == {1}
    machine.check()


def test_a_drain_gives_away_and_takes_nothing() -> None:
    machine = producer(buffers=1)
    put(machine, 1)
    machine.handle(ev.Offered(2, 50.0), 0.0)
    assert machine.handle(ev.Drain(), 1.0) == [ev.RefuseOffer(2, ev.Reason.DRAINING)]
    assert machine.handle(ev.Offered(3, 50.0), 1.0) == [ev.RefuseOffer(3, ev.Reason.DRAINING)]
    probe = ev.Probe("t", "p2", "c", 1, 1, EVEN, False, (), 5.0)
    (offer,) = machine.handle(ev.ProbeCame(probe), 1.0)
    assert isinstance(offer, ev.SendOffer)
    assert machine.handle(taken(7, EVEN), 1.0) == [ev.RefuseTake(7, ev.Reason.DRAINING)]
    assert not machine.drained
    machine.handle(ev.OfferAnswered(offer.offer.grant, taken=True), 1.0)
    machine.handle(ev.Acked(8, offer.offer.grant), 2.0)
    assert machine.drained


def test_a_drain_sends_those_that_wait_here_on() -> None:
    machine = producer()
    probe = ev.Probe("t", "p2", "c", 2, 2, EVEN, False, ("p2",), 5.0)
    machine.handle(ev.ProbeCame(probe), 0.0)
    machine.handle(taken(7, ONLY_HERE), 0.0)
    commands = machine.handle(ev.Drain(), 1.0)
    assert ev.NoObject(7, 1) in commands
    (sent,) = [one for one in commands if isinstance(one, ev.SendProbe)]
    assert (sent.peer, sent.probe.left_s) == ("p2", 4.0)


def test_no_more_calls_are_held_than_there_is_room_for() -> None:
    machine = producer(buffers=1, waiting_limit=1)
    assert machine.handle(taken(7, ONLY_HERE), 0.0) == []
    refused = machine.handle(taken(8, ONLY_HERE), 0.0)
    assert refused == [ev.RefuseTake(8, ev.Reason.QUEUE_FULL)]


def test_with_as_many_grants_as_there_can_be_an_object_waits() -> None:
    machine = producer(unacked_limit=1)
    put(machine, 1)
    put(machine, 2)
    grant = given(machine.handle(taken(7, ONLY_HERE), 0.0)).grant
    assert machine.handle(taken(8, ONLY_HERE), 0.0) == []
    machine.check()
    assert given(machine.handle(ev.Acked(9, grant), 1.0)).ref == 8


def test_an_offer_waits_until_there_is_memory_for_its_object() -> None:
    machine = producer(buffers=9, held_limit_bytes=100)
    assert machine.handle(ev.Offered(1, 50.0, 150), 0.0) == [ev.Admit(1)], "else it never would"
    assert machine.handle(ev.Offered(2, 50.0, 60), 0.0) == []
    assert machine.handle(ev.Offered(3, 50.0, 10), 0.0) == [], "behind those that came before"
    commands = machine.handle(ev.Read(1, 1, 50), 0.0) + machine.handle(ev.Stored(1), 0.0)
    assert commands == [ev.Store(1), ev.Accept(1, 1)]
    assert machine.room.held_bytes == 50
    machine.check()
    grant = given(machine.handle(taken(7, ONLY_HERE), 0.0)).grant
    commands = machine.handle(ev.Acked(8, grant), 0.0)
    assert [one for one in commands if isinstance(one, ev.Admit)] == [ev.Admit(2), ev.Admit(3)]
    assert machine.room.held_bytes == 70


def test_whoever_leaves_lets_a_smaller_one_in() -> None:
    machine = producer(buffers=9, held_limit_bytes=100)
    machine.handle(ev.Offered(1, 50.0, 60), 0.0)
    machine.handle(ev.Offered(2, 5.0, 60), 0.0)
    machine.handle(ev.Offered(3, 50.0, 10), 0.0)
    commands = machine.handle(ev.TimerFired(), 5.0)
    assert commands == [ev.RefuseOffer(2, ev.Reason.QUEUE_FULL), ev.Admit(3)]
    machine.check()


def test_two_holders_may_have_probes_of_the_same_name() -> None:
    machine = producer(peers=("p2", "p3"))
    for holder in ("p2", "p3"):
        machine.handle(ev.ProbeCame(ev.Probe("t", holder, "c", 1, 1, EVEN, False, (), 5.0)), 0.0)
    assert len(machine.parked_probes) == 2
