"""What a machine has put down for later, in the order in which it comes."""

import math

from spillover.core.agenda import STALE_MAX, Agenda


def test_what_is_due_comes_earliest_first_and_what_it_puts_down_too():
    """Those of one instant as they were put down; each gets the instant at which it is called."""
    agenda, called = Agenda(), []

    def note(name, now_s):
        called.append((name, now_s))

    def note_and_go_on(name, now_s):
        note(name, now_s)
        agenda.at(now_s, note, f"after {name}")
        agenda.at(now_s + 5.0, note, f"long after {name}")

    assert agenda.first_s() == math.inf
    agenda.at(3.0, note, "third")
    agenda.at(1.0, note_and_go_on, "first")
    agenda.at(1.0, note, "second")
    agenda.run_due(0.5)
    assert (agenda.first_s(), called) == (1.0, [])
    agenda.run_due(2.0)
    assert called == [("first", 2.0), ("second", 2.0), ("after first", 2.0)]
    agenda.run_due(3.0)
    assert called[3:] == [("third", 3.0)]
    assert agenda.first_s() == 7.0
    agenda.clear()
    agenda.run_due(9.0)
    assert (agenda.first_s(), len(called)) == (math.inf, 4)


def test_what_is_dropped_does_not_come_and_takes_no_room():
    """Also where it would have come long after, and behind what stays; twice is once."""
    agenda, called = Agenda(), []
    stays = agenda.at(1e6, called.append)
    for _ in range(20 * STALE_MAX):
        gone = agenda.at(2e6, called.append)
        agenda.drop(gone)
        agenda.drop(gone)
    assert len(agenda) <= STALE_MAX + 2
    agenda.drop(agenda.at(1.0, called.append))
    assert agenda.first_s() == 1e6
    agenda.run_due(3e6)
    assert (called, agenda.first_s(), len(agenda)) == ([3e6], math.inf, 0)
    agenda.drop(stays)  # it came
