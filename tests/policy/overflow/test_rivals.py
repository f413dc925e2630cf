"""The rivals of the paper's rule: two choices, by enumeration of all pairs, and isolation."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from spillover.policy.overflow import isolated
from spillover.policy.overflow import two_choice as rule
from spillover.policy.overflow.base import KEEP
from support.loads import neighbor_loads, own_load

EDGE = 1e-9
ALMOST_ONE = 1.0 - 2.0**-53


def two_choice(queue_length, servers, may_keep, service_s, lengths, delays_s, eligible, draw):
    """The real function and the weights it wrote, over a buffer full of rubbish."""
    weights = [7.0] * len(lengths)
    nothing = [0.0] * len(lengths)
    own = own_load(queue_length, servers, may_keep, service_s)
    near = neighbor_loads(nothing, lengths, delays_s)
    choice = rule.choose(own, near, eligible, weights, draw)
    return choice, weights


def twin(queue_length, servers, may_keep, service_s, lengths, delays_s, first, second):
    """Decision 0004: of two drawn neighbors y is the one believed shorter, the first at a
    tie; forward if N > N_y + 1 + m * delay / service. Services of no length never make it worth
    the while."""
    y = min((first, second), key=lambda drawn: lengths[drawn])
    if not may_keep:
        return y
    if service_s == 0:
        return KEEP
    way = servers * Fraction(delays_s[y]) / Fraction(service_s)
    return y if queue_length > lengths[y] + 1 + way else KEEP


# Values of which products are exact in binary, so that a tie is a tie for both.
seconds = st.integers(0, 64).map(lambda units: units / 128)


@st.composite
def situations(draw):
    """What a cluster may know: any queue, unlike m, up to five neighbors, some not eligible."""
    count = draw(st.integers(0, 5))

    def each(values):
        return draw(st.lists(values, min_size=count, max_size=count))

    return (
        draw(st.integers(0, 60)),
        draw(st.integers(1, 12)),
        draw(st.booleans()),
        draw(seconds),
        each(st.integers(0, 60)),
        each(seconds),
        each(st.booleans()),
    )


@given(situations())
def test_every_pair_is_drawn_alike_and_leads_where_the_twin_says(situation):
    """With c eligible neighbors the draws fall into c * c cells of one size, one per ordered pair
    (with replacement): inside each, from edge to edge, the choice is the twin's for that pair."""
    *known, eligible = situation
    there = [y for y, can in enumerate(eligible) if can]
    size = 1 / max(1, len(there)) ** 2
    for cell, (first, second) in enumerate((f, s) for f in there for s in there):
        expected = twin(*known, first, second)
        low, high = cell * size, (cell + 1) * size
        for draw in (low + EDGE, (low + high) / 2, high - EDGE):
            choice, weights = two_choice(*situation, draw)
            assert choice == expected
            assert weights == [1.0 if y in {first, second} else 0.0 for y in range(len(eligible))]


@given(situations(), st.sampled_from([0.0, ALMOST_ONE]))
def test_the_ends_of_the_draw_are_safe(situation, draw):
    """0 draws the first neighbor twice; just below 1 draws the last one first."""
    *known, eligible = situation
    there = [y for y, can in enumerate(eligible) if can]
    choice, _ = two_choice(*situation, draw)
    if not there:
        assert choice == KEEP
    elif draw == 0.0:
        assert choice == twin(*known, there[0], there[0])
    else:
        assert choice in {twin(*known, there[-1], second) for second in there}


@given(st.integers(0, 100), st.booleans(), st.lists(st.booleans(), max_size=5), st.floats(0, 0.99))
def test_isolated_never_forwards(queue_length, may_keep, eligible, draw):
    """Not even where keeping is impossible."""
    count = len(eligible)
    weights = [7.0] * count
    own = own_load(queue_length, 5, may_keep)
    near = neighbor_loads([0.0] * count, [0] * count, [0.0] * count)
    assert isolated.choose(own, near, eligible, weights, draw) == KEEP
    assert weights == [0.0] * count
