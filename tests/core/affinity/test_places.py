"""Where one node sends requests of sessions: stories, and places that are played along."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillover.core.affinity.places import Places

EVERY = [(0, 0), (1, 0), (2, 0)]


def test_a_session_goes_where_it_ran_and_a_new_one_where_least_is_pending():
    places = Places(3, 30)
    first = places.sent(7, 1_000.0, 1, 0.0)
    assert places.choose(8, 1_000.0, EVERY, 1.0, 0.1) == 0, "work is pending at the other"
    places.began(first, 1.0)
    assert places.choose(7, 1_200.0, EVERY, 1.0, 2.0) == 1
    assert places.choose(8, 1_000.0, [(2, 0), (0, 0)], 1.0, 2.0) == 2, "the first of equal ones"


def test_a_session_leaves_when_the_wait_costs_more_than_the_miss():
    """A place works 1,000 a second: 5,000 pending is more than 1,000 missing, weighed or not."""
    places = Places(2, 20)
    places.began(places.sent(7, 1_000.0, 0, 0.0), 1.0)
    places.sent(8, 5_000.0, 0, 100.0)
    assert places.choose(7, 1_000.0, EVERY[:2], 1.0, 100.0) == 1


def test_a_place_with_more_requests_than_its_share_has_a_wait():
    """Two places share four servers; a request runs ten seconds."""
    places = Places(2, 4)
    places.began(places.sent(7, 1_000.0, 0, 0.0), 1.0)
    assert places.choose(7, 1_000.0, [(0, 1), (1, 0)], 10.0, 50.0) == 0
    assert places.choose(7, 1_000.0, [(0, 2), (1, 0)], 10.0, 50.0) == 1


def test_places_have_more_servers_once_operators_say_so():
    places = Places(2, 4)
    places.began(places.sent(7, 1_000.0, 0, 0.0), 1.0)
    wait_s = lambda: places.seen(0, 1.0, [(0, 5)], 10.0, 50.0).places[0].wait_s  # noqa: E731
    assert wait_s() > 0.0
    places.use(64)
    assert wait_s() == 0.0


def test_a_request_that_came_to_nothing_has_left_nothing():
    """Nor does a second end of the same one count."""
    places = Places(2, 20)
    places.began(places.sent(9, 1_000.0, 1, 0.0), 1.0)
    sent = places.sent(7, 1_000.0, 1, 2.0)
    places.failed(sent, 3.0)
    places.began(sent, 4.0)
    assert places.choose(7, 1_000.0, EVERY[:2], 1.0, 5.0) == 0


def stay(*, reuses):
    """Plays sessions at places that work 1,000 a second and have, or have not, what was done
    before. Returns which share of the sessions then stays where a fifth of a second is to be
    waited."""
    draws, places, now_s, held = random.Random(1), Places(3, 30), 0.0, {}
    for _ in range(1_000):
        session, now_s = draws.randint(1, 40), now_s + 10.0
        place = places.choose(session, 1_000.0, draws.sample(EVERY, 3), 1.0, now_s)
        sent = places.sent(session, 1_000.0, place, now_s)
        now_s += 0.05 if reuses and held.get(session) == place else 1.0
        held[session] = place
        places.began(sent, now_s)
    stays = 0
    for session, place in held.items():
        now_s += 100.0
        other = places.sent(0, 200.0, place, now_s)
        stays += places.choose(session, 1_000.0, EVERY, 1.0, now_s) == place
        places.failed(other, now_s)
    return stays / len(held)


def test_what_first_bytes_say_decides_whether_sessions_are_kept_together():
    """Where nothing is reused, the claims of the memory turn out to be worth little."""
    assert stay(reuses=True) > 0.9
    assert stay(reuses=False) < 0.3


STEPS = st.lists(
    st.tuples(st.sampled_from(["send", "begin", "fail"]), st.integers(0, 9), st.integers(1, 500)),
    max_size=60,
)


@given(STEPS)
def test_pending_work_is_that_of_requests_without_a_first_byte(steps):
    """In any order of ends, by sessions and without; nothing is left when all have ended."""
    places, under_way, now_s = Places(3, 6), [], 0.0
    for step, number, work in steps:
        now_s += 0.1
        if step == "send":
            session = number % 4
            place = places.choose(session, float(work), EVERY, 0.5, now_s)
            assert place in {0, 1, 2}
            under_way.append(places.sent(session, float(work), place, now_s))
        elif under_way:
            sent = under_way.pop(number % len(under_way))
            (places.began if step == "begin" else places.failed)(sent, now_s)
        for place in range(3):
            told = sum(one.expected for one in under_way if one.place == place)
            assert places._pending[place] == pytest.approx(told, abs=1e-6)
    for sent in under_way:
        places.failed(sent, now_s)
    assert places._pending == [0.0] * 3
