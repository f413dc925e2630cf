"""A machine whose number of servers is learned."""

import pytest

from spillover.core.overflow import events as ev
from spillover.model.request import DONE, Outcome
from spillover.model.server_bounds import ServerBounds


@pytest.mark.parametrize("said_no", [True, False])
def test_an_answer_that_says_no_is_no_good_end(story, said_no):
    """As a proxied 429 is, which a service that bears no more gives at once: else the larger number
    would always be the better one."""
    one = story(neighbors=(), servers=8, bounds=ServerBounds(), queue_limit=100)
    for ref in range(1, 101):
        one.arrive(ref)
    for ref in range(1, 81):
        one.now_s += 0.1
        one.tell(ev.ServiceEnded(ref, DONE, 0.8, said_no=said_no))
    assert (one.machine.servers.total == 8) is said_no


def test_how_many_may_be_away_does_not_move_with_what_is_believed(story):
    """Links have as many connections from the start."""
    one = story(servers=8, bounds=ServerBounds(min=2, max=32), queue_limit=0)
    assert one.machine.settings.away_limit == 32


def test_services_that_take_no_time_end_as_others_do(story):
    """`service_ms: 0` is allowed, and the first end is before anything is measured."""
    one = story(neighbors=(), servers=8, bounds=ServerBounds(), service_s=0.0)
    one.arrive(1)
    one.tell(ev.ServiceEnded(1, DONE, 0.0))
    assert one.machine.servers.total == 8


@pytest.mark.parametrize(("ran_s", "halves"), [(0.2, False), (0.9, True)])
def test_clients_that_hang_up_soon_say_nothing_of_the_service(story, ran_s, halves):
    """As those that complete code while somebody types. Who gives up after a usual service would
    have got an answer from one that bears what runs."""
    one = story(neighbors=(), servers=8, bounds=ServerBounds(), queue_limit=100, service_s=1.0)
    for ref in range(1, 101):
        one.arrive(ref, deadline_s=1e9)
    for ref in range(1, 81):
        one.now_s += 0.02
        one.tell(ev.Cancelled(ref))
        one.tell(ev.ServiceEnded(ref, Outcome.CANCELLED, ran_s))
    assert (one.machine.servers.believed < 8) is halves


def test_deadlines_that_end_all_count_however_soon(story):
    one = story(neighbors=(), servers=8, bounds=ServerBounds(), queue_limit=100, service_s=1.0)
    for ref in range(1, 101):
        one.arrive(ref, deadline_s=1.0 + ref if ref > 8 else 1.0)
    for ref in range(1, 81):
        one.now_s = max(1.0, float(ref))
        one.tell(ev.TimerFired())
        for stopped in list(one.machine.servers.stuck):
            one.tell(ev.ServiceEnded(stopped, Outcome.CANCELLED, 0.1))
    assert one.machine.servers.believed < 8
    assert not one.machine.servers.late


@pytest.mark.parametrize("outcome", [DONE, Outcome.FAILED])
def test_what_ends_as_its_deadline_does_is_not_remembered(story, outcome):
    """The shell had the answer before it heard that nobody waits for it."""
    one = story(neighbors=(), servers=8, bounds=ServerBounds())
    one.arrive(1, deadline_s=1.0)
    one.now_s = 1.0
    one.tell(ev.TimerFired())
    assert one.machine.servers.late == {1}
    one.tell(ev.ServiceEnded(1, outcome, 0.01))
    assert not one.machine.servers.late
