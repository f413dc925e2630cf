"""A machine whose number of servers is learned."""

import pytest

from spillover.core.overflow import events as ev
from spillover.model.request import DONE
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
