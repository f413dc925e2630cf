"""When a request leaves its home for a neighbor's place: stories, and the rule played over all
places with one memory, as the simulator has it.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillover.core.affinity.memory import SessionMemory
from spillover.core.affinity.sites import LIVES, Sites
from spillover.model.affinity import PLACES_MAX, OwnPlace, PlaceLoad, RanAt, SessionWork
from spillover.policy.affinity import miss_weight

FREE = PlaceLoad(0.0, 0.0, 1_000.0, 0.0)
NEAR = [(0, 0.1, 0.0), (1, 0.4, 0.0)]


def asked(session=7, work=1_000.0, waits_s=(0.0,), reusable=0.0, busy=0.0, work_per_s=1_000.0):
    own = tuple(OwnPlace(wait_s, busy, reusable) for wait_s in waits_s)
    return SessionWork(session, work, work_per_s, own)


def sites_with(*loads, before_s=0.0):
    sites = Sites(64)
    for neighbor, told in enumerate(loads):
        sites.heard(neighbor, 1, told, before_s)
    return sites


def test_a_request_leaves_only_where_wait_and_way_are_less_than_the_wait_here():
    sites = sites_with([FREE], [FREE])
    assert sites.cheaper(asked(waits_s=(0.05,)), NEAR, 0.0) is None
    assert sites.cheaper(asked(waits_s=(0.2, 0.3)), NEAR, 0.0).neighbor == 0
    assert sites.cheaper(asked(waits_s=(0.05,)), NEAR, 0.2).neighbor == 0, "for want of a server"
    assert sites.cheaper(asked(waits_s=(0.2,)), NEAR[1:], 0.0) is None
    far = [(0, 0.1, 0.5), NEAR[1]]
    assert sites.cheaper(asked(waits_s=(0.45,)), far, 0.0).neighbor == 1, "no server there"


def test_what_would_be_found_here_keeps_it_and_the_more_so_the_busier_places_are():
    sites = sites_with([FREE])
    waiting = asked(waits_s=(0.9,), reusable=900.0)
    assert sites.cheaper(waiting, NEAR, 0.0) is None
    assert sites.cheaper(asked(waits_s=(1.1,), reusable=900.0), NEAR, 0.0) is not None
    busy = sites_with([FREE._replace(busy=0.9)])
    assert busy.cheaper(asked(waits_s=(1.1,), reusable=900.0, busy=0.9), NEAR, 0.0) is None


def test_the_next_turn_goes_where_the_last_one_was_sent_and_an_answer_corrects_that():
    sites = sites_with([FREE, FREE])
    first = asked(waits_s=(0.5,))
    away = sites.cheaper(first, NEAR, 0.0)
    expected = sites.sent(first, away, 1.0)
    sites.heard(0, 1, [FREE._replace(taken=1_000.0), FREE], 2.0)
    again = asked(waits_s=(0.0,))
    assert sites.cheaper(again, NEAR, 0.0).place == away.place, "what it finds is worth the way"
    sites.answered(first, expected, 0, RanAt(1, 1_000.0, 0.0))
    assert sites.cheaper(again, NEAR, 0.0).place == away.place + 1
    assert sites.cheaper(asked(session=8), NEAR, 0.0) is None


@pytest.mark.parametrize("ran", [None, RanAt(9, 1.0, 0.0)])
def test_a_session_that_ran_nobody_knows_where_is_remembered_nowhere(ran):
    """Also where a neighbor tells of a place that it has not."""
    sites = sites_with([FREE])
    request = asked(waits_s=(0.5,))
    expected = sites.sent(request, sites.cheaper(request, NEAR, 0.0), 1.0)
    sites.heard(0, 1, [FREE], 2.0)
    sites.answered(request, expected, 0, ran)
    assert sites.cheaper(asked(), NEAR, 0.0) is None


def test_what_was_handed_on_for_another_reason_is_remembered_where_it_ran():
    sites = sites_with([FREE, FREE])
    sites.answered(asked(), None, 0, RanAt(1, 0.0, 0.0))
    assert sites.cheaper(asked(), NEAR, 0.0) is not None
    sites.answered(asked(session=8), None, None, RanAt(1, 0.0, 0.0))
    assert sites.cheaper(asked(session=8), NEAR, 0.0) is None, "another cluster ran it"


def test_a_request_that_came_back_is_not_expected_there():
    sites = sites_with([FREE])
    request = asked(waits_s=(0.5,))
    expected = sites.sent(request, sites.cheaper(request, NEAR, 0.0), 1.0)
    sites.heard(0, 1, [FREE], 2.0)
    sites.came_back(request, expected)
    assert sites.cheaper(asked(), NEAR, 0.0) is None


def test_another_life_of_a_neighbor_has_nothing_of_the_one_before():
    sites = sites_with([FREE])
    sites.answered(asked(), None, 0, RanAt(0, 0.0, 0.0))
    assert sites.cheaper(asked(), NEAR, 0.0) is not None
    sites.heard(0, 2, [FREE], 3.0)
    assert sites.cheaper(asked(), NEAR, 0.0) is None


def test_what_a_report_cannot_contain_counts_until_one_can():
    sites = sites_with([FREE])
    request = asked(waits_s=(1.0,))
    sites.sent(request, sites.cheaper(request, NEAR, 0.0), 1.0)
    other = asked(session=8, waits_s=(1.0,))
    assert sites.cheaper(other, NEAR, 0.0) is None
    sites.heard(0, 1, [FREE], 0.9)
    assert sites.cheaper(other, NEAR, 0.0) is None
    sites.heard(0, 1, [FREE], 1.0)
    assert sites.cheaper(other, NEAR, 0.0) is not None


def test_where_too_little_is_known_nothing_leaves():
    sites = sites_with([FREE], [])
    late = asked(waits_s=(9.0,))
    assert sites.cheaper(late, NEAR[1:], 0.0) is None
    assert sites.cheaper(asked(waits_s=(9.0,), work_per_s=0.0), NEAR, 0.0) is None
    assert sites.cheaper(asked(waits_s=()), NEAR, 0.0) is None
    assert sites.cheaper(late, NEAR, 0.0) is not None
    sites.left(0)
    assert sites.cheaper(late, NEAR, 0.0) is None


def test_a_place_whose_speed_is_not_known_counts_as_fast_as_those_here():
    sites = sites_with([FREE._replace(work_per_s=0.0, wait=500.0)])
    assert sites.cheaper(asked(waits_s=(0.7,)), NEAR, 0.0) is not None
    assert sites.cheaper(asked(waits_s=(0.5,)), NEAR, 0.0) is None


def test_numbers_of_places_stay_within_what_the_memory_holds():
    sites = Sites(16)
    for life in range(2 * LIVES):
        sites.heard(life % 1_000, life, [FREE] * PLACES_MAX, 0.0)
    for neighbor in range(1_000):
        sites.answered(asked(), None, neighbor, RanAt(PLACES_MAX - 1, 0.0, 0.0))


def test_a_neighbor_that_starts_again_and_again_does_not_get_the_places_of_another():
    sites = sites_with([FREE], [FREE])
    sites.answered(asked(), None, 1, RanAt(0, 0.0, 0.0))
    for life in range(2, LIVES + 2):
        sites.heard(0, life, [FREE], 0.0)
    near = [(1, 0.1, 0.0), (0, 0.1, 0.0)]
    assert sites.cheaper(asked(), near, 0.0).neighbor == 1


SHARES = st.integers(0, 8).map(lambda n: n / 8)
LOADS = st.builds(
    PlaceLoad, st.integers(0, 5_000), SHARES, st.just(1_000.0), st.integers(0, 1_000_000)
)
OWN = st.builds(OwnPlace, st.integers(0, 5_000).map(lambda n: n / 1e3), SHARES, SHARES)


@given(
    st.lists(st.lists(LOADS, min_size=2, max_size=2), min_size=1, max_size=3),
    st.lists(OWN, min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(1, 2_000)), max_size=3),
)
def test_it_costs_what_the_rule_says_over_all_places_with_one_memory(loads, own, ran):
    """As `sim.affinity.rule` has it: `SessionMemory.cheapest` over each place of the others."""
    sites, memory = sites_with(*loads), SessionMemory(64)
    near = [(neighbor, 0.037 * (neighbor + 1), 0.0) for neighbor in range(len(loads))]
    for neighbor, place, work in ran:
        if neighbor < len(loads):
            taken = loads[neighbor][place].taken
            sites.answered(asked(7, work), None, neighbor, RanAt(place, taken, 0.0))
            if claim := memory.note(7, 2 * neighbor + place, work, taken):
                memory.learn(claim, 0.0)
    request = SessionWork(7, 1_500.0, 1_000.0, tuple(own))
    everywhere = [one for told in loads for one in told]
    busy = [one.busy for one in [*own, *everywhere]]
    weight = miss_weight(sum(busy) / len(busy))
    here_s = min(one.wait_s + weight * (1_500.0 - one.reusable) / 1e3 for one in own)
    candidates = [
        (2 * neighbor + place, one.wait / 1e3, near[neighbor][1], 1_000.0, one.taken)
        for neighbor, told in enumerate(loads)
        for place, one in enumerate(told)
    ]
    best = memory.cheapest(7, 1_500.0, candidates, weight)
    away = sites.cheaper(request, near, 0.0)
    if best.cost_s < here_s - 1e-6:
        assert away.cost_s == pytest.approx(best.cost_s, rel=1e-6)
    elif best.cost_s > here_s + 1e-6:
        assert away is None
