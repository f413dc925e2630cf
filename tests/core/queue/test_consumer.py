"""One consumer, step by step: whom it asks, and what becomes of what it is given."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from spillover.core.agenda import STALE_MAX
from spillover.core.queue import consumer_events as cn
from spillover.core.queue.consumer import ConsumerMachine, ConsumerSettings

VISIBILITY_S = 9.0


def consumer(seed: int = 1, **changed: Any) -> ConsumerMachine:
    told: dict[str, Any] = {
        "name": "c",
        "producers": ("p1", "p2"),
        "access": None,
        "learns": False,
        "max_hops": 3,
        "avoid_visited": False,
        "at_once": 1,
        "take_s": 30.0,
        **changed,
    }
    return ConsumerMachine(ConsumerSettings(**told), Random(seed))


def ask(machine: ConsumerMachine, event: cn.Event, now_s: float = 0.0) -> cn.Take:
    """Feed what makes it ask."""
    (take,) = [one for one in machine.handle(event, now_s) if isinstance(one, cn.Take)]
    machine.check()
    return take


def hold(machine: ConsumerMachine, take: cn.Take, grant: str, now_s: float = 0.0) -> None:
    """Give it an object."""
    given = cn.Given(take.take, take.producer, grant, VISIBILITY_S)
    commands = machine.handle(given, now_s)
    assert cn.Handle(grant) in commands
    machine.check()


def test_one_take_is_under_way_for_each_free_hand() -> None:
    machine = consumer(at_once=2)
    takes = machine.handle(cn.Started(), 0.0)
    assert len(takes) == 2
    assert all(isinstance(one, cn.Take) for one in takes)
    first = takes[0]
    assert isinstance(first, cn.Take)
    hold(machine, first, "g1")
    assert isinstance(machine.handle(cn.Handled("g1", well=True), 1.0)[-1], cn.Take)


def test_producers_are_drawn_by_the_probabilities() -> None:
    machine = consumer(access={"p1": 0.9, "p2": 0.1})
    take = ask(machine, cn.Started())
    asked = Counter([take.producer])
    for _ in range(2000):
        take = ask(machine, cn.Nothing(take.take))
        asked[take.producer] += 1
    assert asked["p1"] / 2001 == pytest.approx(0.9, abs=0.03)


def test_what_is_learned_follows_the_objects_that_came() -> None:
    machine = consumer(learns=True)
    take = ask(machine, cn.Started())
    for count in range(800):
        came_from = "p1" if count % 4 else "p2"
        machine.handle(cn.Given(take.take, came_from, f"g{count}", VISIBILITY_S), 0.0)
        take = ask(machine, cn.Handled(f"g{count}", well=True))
    assert machine.access["p1"] == pytest.approx(0.9 * 0.75 + 0.1 * 0.5, abs=0.02)


def test_an_address_is_followed() -> None:
    machine = consumer()
    take = ask(machine, cn.Started())
    commands = machine.handle(cn.Pointed(take.take, "p2", "g"), 0.0)
    assert commands == [cn.Fetch(take.take, "p2", "g")]
    ask(machine, cn.Nothing(take.take))


def test_a_take_that_was_led_elsewhere_waits_for_the_producer_there() -> None:
    machine = consumer()
    take = ask(machine, cn.Started())
    (other,) = {"p1", "p2"} - {take.producer}
    machine.handle(cn.Pointed(take.take, other, "g"), 0.0)
    assert machine.handle(cn.Silent(take.producer), 1.0) == []
    ask(machine, cn.Silent(other), 2.0)


def test_an_object_is_extended_while_it_is_handled_and_then_acknowledged() -> None:
    machine = consumer()
    take = ask(machine, cn.Started())
    hold(machine, take, "g")
    assert machine.next_deadline() == 3.0
    extend = cn.Tell(take.producer, "g", "extend")
    assert machine.handle(cn.TimerFired(), 3.0) == [extend]
    machine.handle(cn.Heard("g", "extend", known=True), 3.1)
    assert machine.handle(cn.TimerFired(), 6.0) == [extend]
    ack = cn.Tell(take.producer, "g", "ack")
    assert ack in machine.handle(cn.Handled("g", well=True), 7.0)
    assert ack in machine.handle(cn.TimerFired(), 7.2), "it was not heard"
    machine.handle(cn.Heard("g", "extend", known=True), 7.3)
    again_s = machine.next_deadline()
    assert again_s == pytest.approx(7.6), "the second pause is twice as long"
    assert ack in machine.handle(cn.TimerFired(), again_s), "that was the answer to something else"
    assert machine.handle(cn.Heard("g", "ack", known=True), 7.7) == [cn.Settled("g", known=True)]
    assert machine.handle(cn.TimerFired(), 9.0) == []


def test_a_consumer_that_was_held_up_says_by_how_much_it_came_too_late() -> None:
    machine = consumer()
    hold(machine, ask(machine, cn.Started()), "g")
    machine.handle(cn.TimerFired(), 3.0)
    machine.handle(cn.Heard("g", "extend", known=True), 3.1)
    assert machine.handle(cn.TimerFired(), 20.0) == [cn.Lost("g", 14.0)]


@pytest.mark.parametrize("told", [True, False])
def test_the_handler_hears_that_its_object_is_lost(told: bool) -> None:
    machine = consumer()
    take = ask(machine, cn.Started())
    hold(machine, take, "g")
    if told:
        machine.handle(cn.TimerFired(), 3.0)
        commands = machine.handle(cn.Heard("g", "extend", known=False), 3.1)
    else:
        for now_s in (3.0, 6.0):
            machine.handle(cn.TimerFired(), now_s)
        commands = machine.handle(cn.TimerFired(), 9.0)
    assert commands == [cn.Lost("g")], "its hand is not free before the handler has returned"
    commands = machine.handle(cn.Handled("g", well=True), 20.0)
    assert commands[0] == cn.Settled("g", known=False)
    assert isinstance(commands[1], cn.Take)


def test_an_extension_holds_from_the_first_one_that_was_not_heard() -> None:
    """Which of two was heard is not known: the grant may end as early as the first one says."""
    machine = consumer()
    take = ask(machine, cn.Started())
    hold(machine, take, "g")
    machine.handle(cn.TimerFired(), 3.0)
    machine.handle(cn.TimerFired(), 6.0)
    machine.handle(cn.Heard("g", "extend", known=True), 6.1)
    for now_s in (9.0, 12.0):
        commands = machine.handle(cn.TimerFired(), now_s)
    assert commands == [cn.Lost("g")]


def test_an_acknowledgement_that_nobody_hears_is_given_up_when_the_grant_is_over() -> None:
    machine = consumer()
    take = ask(machine, cn.Started())
    hold(machine, take, "g")
    machine.handle(cn.Stopped(), 0.5)
    machine.handle(cn.Handled("g", well=True), 1.0)
    now_s, commands = 1.0, []
    while machine.next_deadline() < 100.0:
        now_s = machine.next_deadline()
        commands += machine.handle(cn.TimerFired(), now_s)
    assert commands[-1] == cn.Settled("g", known=None)
    assert 5 <= commands.count(cn.Tell(take.producer, "g", "ack")) <= 8, "ever more seldom"
    assert machine.idle
    assert 9.0 <= now_s <= 9.3


def test_a_producer_that_cannot_be_reached_is_passed_over_then_asked_again() -> None:
    machine = consumer()
    take = ask(machine, cn.Started())
    first = take.producer
    take = ask(machine, cn.Unreachable(take.take, first))
    assert take.producer != first
    assert machine.handle(cn.Unreachable(take.take, take.producer), 0.0) == [], "both are"
    again_s = machine.next_deadline()
    assert 0.5 <= again_s <= 1.0
    (asked,) = machine.handle(cn.TimerFired(), again_s)
    assert isinstance(asked, cn.Take)


@pytest.mark.parametrize("seed", range(5))
def test_while_all_are_passed_over_it_asks_as_soon_as_one_may_be_asked(seed: int) -> None:
    """The first within a second of its failure, the other half a second later at least."""
    machine = consumer(seed=seed)
    take = ask(machine, cn.Started())
    first = take.producer
    take = ask(machine, cn.Unreachable(take.take, first))
    assert machine.handle(cn.Unreachable(take.take, take.producer), 0.499) == []
    assert machine.next_deadline() <= 1.0
    ask(machine, cn.TimerFired(), machine.next_deadline())


@pytest.mark.parametrize("answer", ["nothing", "an object"])
def test_a_producer_that_answers_begins_anew(answer: str) -> None:
    """Whatever it answers: the next failure is the first again."""
    machine = consumer(producers=("p1",))
    take = ask(machine, cn.Started())
    machine.handle(cn.Unreachable(take.take, "p1"), 0.0)
    take = ask(machine, cn.TimerFired(), 1.0)
    if answer == "nothing":
        take = ask(machine, cn.Nothing(take.take), 1.0)
    else:
        hold(machine, take, "g", 1.0)
        take = ask(machine, cn.Handled("g", well=True), 1.0)
        machine.handle(cn.Heard("g", "ack", known=True), 1.0)
    machine.handle(cn.Unreachable(take.take, "p1"), 1.0)
    again = [at for at in (1.5, 2.0) if machine.handle(cn.TimerFired(), at)]
    assert again, "half a second to a second later, not two"


def test_whoever_is_stopped_asks_for_nothing_more() -> None:
    machine = consumer()
    take = ask(machine, cn.Started())
    hold(machine, take, "g")
    machine.handle(cn.Stopped(), 0.5)
    assert machine.handle(cn.Handled("g", well=True), 1.0) == [cn.Tell(take.producer, "g", "ack")]
    assert not machine.idle
    machine.handle(cn.Heard("g", "ack", known=True), 1.1)
    assert machine.idle


def test_a_stop_breaks_off_what_is_asked_for_and_gives_back_what_comes_all_the_same() -> None:
    machine = consumer(at_once=2)
    takes = machine.handle(cn.Started(), 0.0)
    assert [isinstance(one, cn.Take) for one in takes] == [True, True]
    first = takes[0]
    assert isinstance(first, cn.Take)
    abandoned = machine.handle(cn.Stopped(), 0.5)
    assert abandoned == [cn.Abandon(one.take) for one in takes if isinstance(one, cn.Take)]
    assert machine.idle
    given = cn.Given(first.take, "p2", "g", VISIBILITY_S)
    assert machine.handle(given, 0.6) == [cn.Tell("p2", "g", "nack", 0.0)]
    assert machine.idle


def test_whoever_does_not_wait_is_given_nothing_new() -> None:
    machine = consumer()
    take = ask(machine, cn.Started())
    hold(machine, take, "g")
    machine.handle(cn.Paused(), 0.5)
    assert machine.handle(cn.Handled("g", well=True), 1.0) == [cn.Tell(take.producer, "g", "ack")]
    ask(machine, cn.Started(), 2.0)
    machine.handle(cn.Stopped(), 3.0)
    assert machine.handle(cn.Started(), 4.0) == [], "a stop is for good"


def test_many_takes_that_fail_together_are_one_failure() -> None:
    machine = consumer(producers=("p1",), at_once=8)
    takes = [one for one in machine.handle(cn.Started(), 0.0) if isinstance(one, cn.Take)]
    for take in takes:
        assert machine.handle(cn.Unreachable(take.take, "p1"), 0.0) == []
    again_s = machine.next_deadline()
    assert 0.5 <= again_s <= 1.0
    assert len(machine.handle(cn.TimerFired(), again_s)) == 8, "all hands ask again, each once"


def test_a_failed_producer_that_is_never_asked_does_not_wake_the_machine_for_ever() -> None:
    """An object's address may lead to where nothing is asked for."""
    machine = consumer(producers=("p1",))
    take = ask(machine, cn.Started())
    machine.handle(cn.Pointed(take.take, "p2", "g"), 0.0)
    take = ask(machine, cn.Unreachable(take.take, "p2"), 0.0)
    machine.handle(cn.Unreachable(take.take, "p1"), 2.0)
    assert machine.next_deadline() > 2.0
    ask(machine, cn.TimerFired(), machine.next_deadline())


def test_a_producer_that_is_silent_keeps_nobody_who_waits() -> None:
    machine = consumer(at_once=3)
    takes = [one for one in machine.handle(cn.Started(), 0.0) if isinstance(one, cn.Take)]
    silent = takes[0].producer
    checks = machine.handle(cn.TimerFired(), 5.0)
    assert checks == [cn.Check(take.producer) for take in takes]
    commands = machine.handle(cn.Silent(silent), 6.0)
    machine.check()
    there = [take for take in takes if take.producer == silent]
    assert [one for one in commands if isinstance(one, cn.Abandon)] == [
        cn.Abandon(take.take) for take in there
    ]
    asked = [one for one in commands if isinstance(one, cn.Take)]
    assert len(asked) == len(there)
    assert silent not in {take.producer for take in asked}, "it is passed over"
    assert machine.handle(cn.Silent(silent), 6.1) == [], "nothing waits there any more"


def test_a_take_that_was_answered_is_not_checked() -> None:
    machine = consumer()
    take = ask(machine, cn.Started())
    hold(machine, take, "g", now_s=1.0)
    machine.handle(cn.TimerFired(), 4.0)
    assert machine.handle(cn.TimerFired(), 5.0) == []


def test_what_is_over_is_not_kept_until_it_would_be_extended() -> None:
    machine = consumer()
    take = ask(machine, cn.Started())
    for k in range(5 * STALE_MAX):
        given = cn.Given(take.take, take.producer, f"g{k}", 3600.0)
        machine.handle(given, 0.0)
        take = ask(machine, cn.Handled(f"g{k}", well=True))
        machine.handle(cn.Heard(f"g{k}", "ack", known=True), 0.0)
        assert len(machine._agenda) <= STALE_MAX + 6
    machine.check()
