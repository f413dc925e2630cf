"""The small structures of a machine: its FIFO, its deadlines, its ledger."""

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillover.core.fifo import Fifo
from spillover.core.overflow.events import HOME
from spillover.core.overflow.neighbor import Neighbor
from spillover.core.overflow.register import STALE_MAX, Register
from spillover.core.overflow.visit import AWAY, Visit
from spillover.model.request import Outcome, Request


@given(st.lists(st.tuples(st.sampled_from(["join", "leave", "next"]), st.integers(0, 99))))
def test_a_fifo_with_holes_is_a_list_from_which_things_are_taken(steps):
    """Against a plain list: same items, same order, same length, after any mix of steps."""
    fifo, twin, places = Fifo(), [], {}
    for number, (step, where) in enumerate(steps):
        if step == "join":
            places[number] = fifo.append(number)
            twin.append(number)
        elif twin and step == "leave":
            fifo.discard(places[twin.pop(where % len(twin))])
        elif twin:
            assert fifo.popleft() == twin.pop(0)
        assert (list(fifo), len(fifo)) == (twin, len(twin))


def test_holes_do_not_pile_up():
    """A queue that is only ever left early stays small."""
    fifo = Fifo()
    fifo.append("stays")
    for number in range(10_000):
        fifo.discard(fifo.append(number))
    assert list(fifo) == ["stays"]
    assert len(fifo._places) < 100


@given(st.lists(st.floats(0, 100) | st.just(math.inf), max_size=40), st.sets(st.integers(0, 39)))
def test_due_deadlines_come_out_in_order_and_only_of_the_living(times, dead):
    """Against sorting: what has ended meanwhile never comes up, infinity never does."""
    register = Register(1)
    visits = [accepted(register, ref, time_s) for ref, time_s in enumerate(times)]
    for ref in dead.intersection(register.visits):
        register.end(visits[ref], Outcome.DONE)
    living = list(register.visits)
    expected = sorted((times[ref], ref) for ref in living if times[ref] <= 50)
    assert register.next_s == min((times[ref] for ref in living), default=math.inf)
    popped = []
    while (visit := register.pop_due(50.0)) is not None:
        popped.append((visit.deadline_s, visit.ref))
        register.end(visit, Outcome.EXPIRED)
    assert popped == expected
    assert register.next_s > 50


def accepted(register, ref, deadline_s):
    visit = Visit(ref, Request(f"r{ref}", True, None), HOME, True, deadline_s, 0.0)
    register.accept(visit)
    return visit


def test_what_is_looked_at_comes_up_again_when_it_is_to_be_looked_at_again():
    register = Register(1)
    first, second = (accepted(register, ref, 10.0 + ref) for ref in range(2))
    assert register.pop_due(10.0) is first
    register.look_again(first, 10.5)
    assert (register.next_s, register.pop_due(10.4)) == (10.5, None)
    assert [register.pop_due(20.0) for _ in range(3)] == [first, second, None]


def test_stale_deadlines_are_bounded():
    """Requests with an hour to live that end at once do not fill the heap."""
    register = Register(1)
    visits = []
    for ref in range(20_000):
        visits.append(accepted(register, ref, 3600.0 + ref % 7))
        assert len(register.due) <= STALE_MAX + 2 * len(register.visits)
        if ref >= 10:
            register.end(visits[ref - 10], Outcome.DONE)
    assert len(register.due) > 0


@pytest.mark.parametrize(
    ("outcome", "home", "foreign"),
    [
        (Outcome.DONE, "done", "answered"),
        (Outcome.FAILED, "failed", "answered"),
        (Outcome.EXPIRED, "expired", "answered"),
        (Outcome.CANCELLED, "cancelled", "cancelled"),
        (Outcome.UNKNOWN, "failed", "answered"),
    ],
)
def test_every_end_has_its_entry(outcome, home, foreign):
    """The names of the ledger in `/state`; both sides balance."""
    register = Register(3)
    ledger = register.ledger
    for ref, origin in ((1, HOME), (2, 0)):
        visit = Visit(ref, Request("r", True, None), origin, origin == HOME, 60.0, 0.0)
        visit.target = Neighbor(0, "b", 0.0, 0.25)
        register.accept(visit)
        register.enter(visit, AWAY, 0.0)
        assert ledger.imbalance() == 0
        register.leave(visit)
        assert ledger.imbalance() == 1
        register.end(visit, outcome)
    assert ledger.imbalance() == 0
    told = ledger.as_dict()
    assert told["epoch"] == 3
    assert +Counter(told["home"]) == {"accepted": 1, home: 1}
    assert +Counter(told["foreign"]) == {"received": 1, foreign: 1}
