"""Who moves where when servers come and go: the rules against exact expectations, and ours."""

import bisect
import hashlib
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillover.policy.membership import (
    ELSEWHERE,
    choose_baseline,
    choose_probabilistic,
    choose_stratified,
    hash_point,
    move_quotient,
    phase_of,
    successor,
    surplus_of,
    survivor_quotient,
)

LAST_DRAW = 1.0 - 2.0**-53

CHANGES = [
    *((8, 1, 0), (6, 2, 0), (5, 1, 3), (8, 0, 1), (9, 0, 1), (2, 2, 8), (3, 2, 1)),
    *((2, 3, 2), (4, 2, 1), (2, 2, 2), (0, 3, 3), (1, 0, 1), (4, 0, 0)),
]
"""Those of ZooKeeper's own suite: servers that are kept, go and come."""

DRAWS = st.one_of(
    st.sampled_from([0.0, LAST_DRAW, 0.5, 1 / 3]),
    st.floats(0, 1, exclude_max=True),
)
PHASES = st.floats(0, 0.999)


@st.composite
def changes(draw, largest=12):
    """kept, gone, added; neither list is empty."""
    kept, gone, added = (draw(st.integers(0, largest)) for _ in range(3))
    return (kept, gone, added) if kept or (gone and added) else (1, gone, added)


def expected(kept, gone, added, clients):
    """Moved, and the clients at each place afterwards, if each old server has its even share."""
    share = Fraction(clients, kept + gone)
    moves, survivors = Fraction(*move_quotient(kept, gone, added)), Fraction(0)
    if gone:
        survivors = Fraction(*survivor_quotient(kept, gone, added))
    to_survivors = gone * share * survivors
    to_new = kept * share * moves + gone * share * (1 - survivors)
    after = [share * (1 - moves) + to_survivors / kept] * kept if kept else []
    after += [to_new / added] * added if added else []
    return kept * share * moves + gone * share, after


@given(changes(largest=40))
def test_rules_are_exactly_even_and_move_the_least(change):
    """In rational arithmetic: the same for all, and no fewer moves could give it."""
    kept, gone, added = change
    moved, after = expected(*change, clients=1)
    even = Fraction(1, kept + added)
    assert set(after) == {even}
    share = Fraction(1, kept + gone)
    assert moved == gone * share + kept * max(Fraction(0), share - even)


@pytest.mark.parametrize(("kept", "gone", "added"), CHANGES)
def test_the_coin_tosses_as_the_rules_say(kept, gone, added):
    """An even grid of draws gives each place its share, to within one grid point an edge."""
    grid = 504
    after = [0] * (kept + added)
    for own in range(kept + gone):
        for i in range(grid):
            after[choose_probabilistic(own, kept, gone, added, (i + 0.5) / grid)] += 1
    even = grid * (kept + gone) / (kept + added)
    assert max(abs(count - even) for count in after) <= kept + gone


@given(changes(), DRAWS, st.integers(1, 50), st.data())
def test_choices_are_places_that_the_rules_allow(change, draw, clients, data):
    """Every draw, its ends too, gives a place; survivors' clients move to new servers only."""
    kept, gone, added = change
    rank = data.draw(st.integers(0, clients - 1))
    for own in (ELSEWHERE, *range(kept + gone)):
        place = choose_probabilistic(own, kept, gone, added, draw)
        ranked = choose_stratified(own, kept, gone, added, rank, clients, 0.0, draw)
        for chosen in (place, ranked, choose_baseline(own, kept, gone, added, draw)):
            assert 0 <= chosen < kept + added
        for chosen in (place, ranked):
            if 0 <= own < kept:
                assert chosen == own or (added > gone and chosen >= kept)
            elif added >= gone and added:
                assert chosen >= kept


def test_rule_4_without_new_servers_is_exactly_one():
    """As a float 3 * (7 - 3) / (3 * 4) and its like may be below 1; nothing is left to chance."""
    for kept in range(1, 30):
        for gone in range(30):
            assert survivor_quotient(kept, gone, 0) == (1, 1)
            for own in (ELSEWHERE, kept):
                if own == kept and gone == 0:
                    continue
                assert choose_probabilistic(own, kept, gone, 0, LAST_DRAW) == kept - 1
                assert choose_stratified(own, kept, gone, 0, 6, 7, 0.0, LAST_DRAW) <= kept - 1


def test_an_unchanged_list_without_the_own_server():
    """The 0/0 of the document: anywhere, evenly. Nobody else moves."""
    places = [choose_probabilistic(ELSEWHERE, 3, 0, 0, (i + 0.5) / 30) for i in range(30)]
    assert [places.count(place) for place in range(3)] == [10, 10, 10]
    places = [choose_stratified(ELSEWHERE, 3, 0, 0, rank, 30, 0.0, 0.5) for rank in range(30)]
    assert [places.count(place) for place in range(3)] == [10, 10, 10]
    assert all(choose_probabilistic(own, 3, 0, 0, 0.99) == own for own in range(3))
    assert all(choose_stratified(own, 3, 0, 0, 9, 10, 0.0, 0.75) == own for own in range(3))


def ranked_counts(change, counts, phase, surplus=None):
    """Returns the clients at each place afterwards, and how many moved."""
    kept, gone, added = change
    after, moved = [0] * (kept + added), 0
    for own in range(kept + gone):
        for rank in range(counts[own]):
            extra = surplus[own] if surplus else 0.0
            place = choose_stratified(own, kept, gone, added, rank, counts[own], extra, phase)
            after[place] += 1
            moved += not (own < kept and place == own)
    return after, moved


@given(changes(largest=9), st.integers(1, 120), PHASES)
def test_ranks_are_exactly_even_and_move_the_least(change, clients, phase):
    """From equal counts: no two differ by more than one, and what moves is the least, rounded."""
    kept, gone, _ = change
    after, moved = ranked_counts(change, [clients] * (kept + gone), phase)
    assert max(after) - min(after) <= 1
    assert abs(moved - expected(*change, clients * (kept + gone))[0]) < 1


def test_last_to_come_is_first_to_go():
    """Whoever leaves a survivor has a higher rank than whoever stays."""
    for own in range(4):
        places = [choose_stratified(own, 4, 0, 1, rank, 50, 0.0, 0.5) for rank in range(50)]
        assert places == sorted(places)
        assert places.count(4) == 10


def test_half_a_surplus_leaves_at_any_change():
    """The highest ranks, a few to each other server; also where nobody would have to move."""
    counts = [160, 60, 60, 60]
    surplus = [surplus_of(count, sum(counts), 4) for count in counts]
    after, moved = ranked_counts((4, 0, 0), counts, 0.5, surplus)
    assert (surplus[1:], moved) == ([0.0] * 3, 38)  # (160 - 85) / 2
    assert sorted(after) == [72, 73, 73, 122]
    assert choose_stratified(0, 1, 0, 0, 9, 10, 0.9, 0.5) == 0  # nowhere else to go


def test_what_counts_as_surplus():
    """Not what rounding leaves: 2 clients, or 2 %; what is short has none."""
    assert surplus_of(102, 300, 3) == 0.0
    assert surplus_of(103, 300, 3) == pytest.approx(3 / 103)
    assert surplus_of(1019, 3000, 3) == 0.0
    assert surplus_of(6, 12, 3) == 0.0
    assert surplus_of(7, 13, 3) > 0.0
    assert surplus_of(2, 6, 3) == surplus_of(0, 6, 3) == surplus_of(0, 0, 3) == 0.0


def test_rounding_begins_anywhere_in_turn():
    """In any twenty changes in a row, in each half as often, up to one or two."""
    for first in range(50):
        phases = [phase_of(version) for version in range(first, first + 20)]
        assert all(0 <= phase < 1 for phase in phases)
        assert abs(sum(phase < 0.5 for phase in phases) - 10) <= 2


@given(st.lists(st.integers(0, 50), min_size=1), st.integers(-1, 51))
def test_the_circle_is_closed(points, point):
    """The first at or after the point; after the last comes the first."""
    points.sort()
    assert successor(points, point) == bisect.bisect_left(points, point) % len(points)


def test_points_are_md5():
    assert hash_point("s1") == int(hashlib.md5(b"s1", usedforsecurity=False).hexdigest(), 16)
