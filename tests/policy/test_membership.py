"""Who moves where when servers come and go: the rules against exact expectations, and ours."""

from __future__ import annotations

import bisect
import hashlib
import importlib.util
from fractions import Fraction
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillover.policy import membership as rebalancing
from spillover.policy.membership import (
    ELSEWHERE,
    LAST_POSITION,
    choose_baseline,
    choose_probabilistic,
    choose_stratified,
    even_start,
    hash_point,
    move_quotient,
    spread_point,
    successor,
    survivor_quotient,
)

# ZooKeeper's own expectations (10 000 clients): kept, gone, added; moved; per server after.
ZOOKEEPER = {
    "9 to 8": (8, 1, 0, "1111.1", 1250),
    "8 to 6": (6, 2, 0, "2500", "1666.7"),
    "6 to 8, 5 kept": (5, 1, 3, "3750", 1250),
    "8 to 9": (8, 0, 1, "1111.1", "1111.1"),
    "9 to 10": (9, 0, 1, "1000", 1000),
    "4 to 10, 2 kept": (2, 2, 8, "8000", 1000),
    "5 to 4, 3 kept": (3, 2, 1, "4000", 2500),
    "5 to 4, 2 kept": (2, 3, 2, "6000", 2500),
    "6 to 5, 4 kept": (4, 2, 1, "3333.3", 2000),
    "4 to 4, 2 swapped": (2, 2, 2, "5000", 2500),
    "3 to 3, all replaced": (0, 3, 3, "10000", "3333.3"),
    "1 to 2": (1, 0, 1, "5000", 5000),
    "unchanged": (4, 0, 0, "0", 2500),
}
DRAWS = st.one_of(
    st.sampled_from([0.0, LAST_POSITION, 0.5, 1 / 3]),
    st.floats(0, 1, exclude_max=True),
)


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


@pytest.mark.parametrize("case", ZOOKEEPER.values(), ids=list(ZOOKEEPER))
def test_zookeepers_expectations(case):
    """The table that ZooKeeper's own suite checks by simulation."""
    *change, moved, after = case
    exactly, counts = expected(*change, clients=10_000)
    assert float(exactly) == pytest.approx(float(moved), abs=0.05)
    assert {round(float(count), 1) for count in counts} == {round(float(after), 1)}


@pytest.mark.parametrize("case", ZOOKEEPER.values(), ids=list(ZOOKEEPER))
def test_the_coin_tosses_as_the_rules_say(case):
    """An even grid of draws gives each place its share, to within one grid point an edge."""
    kept, gone, added, *_ = case
    grid = 5040
    after = [0] * (kept + added)
    for own in range(kept + gone):
        for i in range(grid):
            after[choose_probabilistic(own, kept, gone, added, (i + 0.5) / grid)] += 1
    even = grid * (kept + gone) / (kept + added)
    assert max(abs(count - even) for count in after) <= kept + gone


@given(changes(), DRAWS)
def test_choices_are_places_that_the_rules_allow(change, draw):
    """Every draw, its ends too, gives a place; survivors' clients move to new servers only."""
    kept, gone, added = change
    for own in (ELSEWHERE, *range(kept + gone)):
        place = choose_probabilistic(own, kept, gone, added, draw)
        other, position = choose_stratified(own, kept, gone, added, draw)
        for chosen in (place, other, choose_baseline(own, kept, gone, added, draw)):
            assert 0 <= chosen < kept + added
        assert 0.0 <= position < 1.0
        for chosen in (place, other):
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
                assert choose_probabilistic(own, kept, gone, 0, LAST_POSITION) == kept - 1
                assert choose_stratified(own, kept, gone, 0, LAST_POSITION)[0] <= kept - 1


def test_an_unchanged_list_without_the_own_server():
    """The 0/0 of the document: anywhere, evenly. Nobody else moves."""
    places = [choose_probabilistic(ELSEWHERE, 3, 0, 0, (i + 0.5) / 30) for i in range(30)]
    assert [places.count(place) for place in range(3)] == [10, 10, 10]
    places = [choose_stratified(ELSEWHERE, 3, 0, 0, (i + 0.5) / 30)[0] for i in range(30)]
    assert [places.count(place) for place in range(3)] == [10, 10, 10]
    assert all(choose_probabilistic(own, 3, 0, 0, 0.99) == own for own in range(3))
    assert all(choose_stratified(own, 3, 0, 0, 0.75) == (own, 0.75) for own in range(3))


def pieces_of(kept, gone, added):
    """(own, from, to) of the pieces that move as a whole: the parts change hands at multiples of
    one new server's share of an old one."""
    new = kept + added
    cuts = [Fraction(i, new) for i in range(new + 1)]
    return [(own, a, b) for own in range(kept + gone) for a, b in pairwise(cuts)]


@given(changes(largest=6))
def test_stratified_keeps_lengths_and_moves_the_least(change):
    """The pieces of the old interval fill the new one without a gap or an overlap, and as much of
    it moves as the rules say."""
    kept, gone, added = change
    old, new = kept + gone, kept + added
    pieces, moved = [], 0.0
    for own, a, b in pieces_of(kept, gone, added):
        middle = float((a + b) / 2)
        place, position = choose_stratified(own, kept, gone, added, middle)
        half = float(b - a) / 2 * new / old
        pieces.append((place + position - half, place + position + half))
        stays = own < kept and place == own
        moved += 0.0 if stays else float(b - a) / old
    pieces.sort()
    assert [pieces[0][0], pieces[-1][1]] == pytest.approx([0, new], abs=1e-9)
    for (_, end), (start, _) in pairwise(pieces):
        assert start == pytest.approx(end, abs=1e-9)
    assert moved == pytest.approx(float(expected(kept, gone, added, 1)[0]), abs=1e-9)


def test_last_to_come_is_first_to_go():
    """What a server got when another went is what it gives back when that returns."""
    start = [(own, (i + 0.5) / 20) for own in range(5) for i in range(20)]
    without = [choose_stratified(own, 4, 1, 0, position) for own, position in start]
    back = [choose_stratified(own, 4, 0, 1, position) for own, position in without]
    assert [place for place, _ in back] == [own for own, _ in start]
    assert [position for _, position in back] == pytest.approx([position for _, position in start])


def test_ranks_spread_evenly_from_any_rank_on():
    """Without knowing how many there are: within a few of even, where draws are within dozens."""
    for first in (0, 17, 1000):
        places = [even_start(spread_point(rank), 9)[0] for rank in range(first, first + 900)]
        assert max(abs(places.count(place) - 100) for place in range(9)) <= 3
    assert even_start(LAST_POSITION, 3) == (2, pytest.approx(1.0))
    assert even_start(LAST_POSITION, 3)[1] < 1.0


@given(st.lists(st.integers(0, 50), min_size=1), st.integers(-1, 51))
def test_the_circle_is_closed(points, point):
    """The first at or after the point; after the last comes the first."""
    points.sort()
    assert successor(points, point) == bisect.bisect_left(points, point) % len(points)


def test_points_are_md5():
    assert hash_point("s1") == int(hashlib.md5(b"s1", usedforsecurity=False).hexdigest(), 16)


def test_compiled_choices_agree(require):
    """The same source, compiled by numba, gives the same results."""
    require(importlib.util.find_spec("numba"), "numba, from the extra `sim`")
    from numba import njit
    from numba.extending import register_jitable

    for function in (move_quotient, survivor_quotient, rebalancing._dealt):
        register_jitable(function)
    random = Random(1)
    choosers = (choose_probabilistic, choose_baseline, choose_stratified)
    compiled = [njit(choose) for choose in choosers]
    for _ in range(300):
        kept, gone, added = random.randrange(1, 6), random.randrange(5), random.randrange(5)
        own = random.randrange(-1, kept + gone)
        draw = random.choice((0.0, LAST_POSITION, random.random()))
        for choose, fast in zip(choosers, compiled, strict=True):
            assert fast(own, kept, gone, added, draw) == choose(own, kept, gone, added, draw)
