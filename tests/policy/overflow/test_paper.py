"""Lai & Polak's rule against a twin in exact fractions, and its edges with stale knowledge."""

from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from spillover.policy.overflow.base import KEEP
from spillover.policy.overflow.paper import choose
from support.loads import neighbor_loads, own_load

ALMOST_ONE = 1.0 - 2.0**-53
probabilities = st.floats(0.0, 1.0)
draws = st.floats(0.0, ALMOST_ONE)


def paper(queue_length, servers, may_keep, reject_near, eligible, draw):
    """The real function and the weights it wrote, over a buffer full of rubbish."""
    weights = [7.0] * len(reject_near)
    nothing = [0] * len(reject_near)
    own = own_load(queue_length, servers, may_keep)
    near = neighbor_loads(reject_near, nothing, nothing)
    choice = choose(own, near, eligible, weights, draw)
    return choice, weights


def twin_probabilities(queue_length, servers, may_keep, reject_near, eligible):
    """Exact probability of each choice, KEEP included: section II of the paper, word for word."""
    accept = Fraction(servers, queue_length + servers) if may_keep else Fraction(0)
    weights = {}
    for y, can in enumerate(eligible):
        if can and accept < 1:
            weights[y] = max(Fraction(0), 1 - Fraction(reject_near[y]) / (1 - accept))
    if not weights:
        return {KEEP: Fraction(1)}
    total = sum(weights.values())
    if total == 0:
        weights = dict.fromkeys(weights, Fraction(1))
        total = Fraction(len(weights))
    shares = {y: (1 - accept) * weight / total for y, weight in weights.items()}
    return {KEEP: accept, **shares}


@st.composite
def situations(draw):
    """What a cluster may know: any queue, unlike m, up to six neighbors, some not eligible."""
    count = draw(st.integers(0, 6))
    queue_length, servers = draw(st.integers(0, 60)), draw(st.integers(1, 12))
    reject_near = draw(st.lists(probabilities, min_size=count, max_size=count))
    eligible = draw(st.lists(st.booleans(), min_size=count, max_size=count))
    may_keep = draw(st.booleans())
    reject = queue_length / (queue_length + servers) if may_keep else 1.0
    # At equality rounding decides whether a weight is 0; that edge has its own test below.
    assume(all(near == 1.0 or abs(near - reject) > 1e-6 for near in reject_near))
    return queue_length, servers, may_keep, reject_near, eligible


@given(situations(), draws)
def test_a_draw_chooses_where_the_twin_says(situation, draw):
    """The twin walks along its shares; away from a break point both are at the same one."""
    reached, chosen = Fraction(0), None
    for choice, share in twin_probabilities(*situation).items():
        assume(abs(float(reached) - draw) > 1e-9)
        if chosen is None and draw < reached + share:
            chosen = choice
        reached += share
    assert paper(*situation, draw)[0] == chosen


@given(situations(), draws)
def test_weights_tell_what_the_choice_was_made_from(situation, draw):
    """The buffer holds max(0, 1 - Rbar_y / Pbar_k) of the eligible, or zeros where it was kept."""
    queue_length, servers, may_keep, reject_near, eligible = situation
    choice, weights = paper(*situation, draw)
    accept = servers / (queue_length + servers) if may_keep else 0.0
    if draw < accept:
        assert choice == KEEP
        assert weights == [0.0] * len(eligible)
    else:
        for y, can in enumerate(eligible):
            expected = max(0.0, 1.0 - reject_near[y] / (1.0 - accept)) if can else 0.0
            assert weights[y] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("near", [0.5, 0.75, 1.0])
def test_with_no_positive_weight_the_choice_is_even(near):
    """Pbar = 1/2 and every Rbar at least that: half is kept, the rest goes evenly."""
    choices = [
        paper(5, 5, True, [near] * 4, [True, False, True, True], (k + 0.5) / 600)
        for k in range(600)
    ]
    assert [c for c, _ in choices] == [KEEP] * 300 + [0] * 100 + [2] * 100 + [3] * 100
    assert all(weights == [0.0] * 4 for _, weights in choices)


@pytest.mark.parametrize("draw", [0.0, ALMOST_ONE])
@pytest.mark.parametrize(("queue_length", "servers"), [(1, 1), (10_000, 3)])
def test_the_ends_of_the_draw_are_safe(draw, queue_length, servers):
    """0 keeps if keeping is possible at all; just below 1 chooses the last one with a weight."""
    situation = [0.1, 0.0, 1.0], [True, True, True]
    kept, _ = paper(queue_length, servers, True, *situation, draw)
    assert kept == (KEEP if draw == 0.0 else 1)
    assert paper(queue_length, servers, False, *situation, draw)[0] == (0 if draw == 0.0 else 1)
