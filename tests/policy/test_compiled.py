"""The same source, compiled by numba, gives the same results: what `sim/fast` will rely on."""

from __future__ import annotations

import importlib.util
from random import Random

import pytest

from spillover.policy.backoff import backoff_s
from spillover.policy.overflow import acceptance
from spillover.policy.overflow.choosers import CHOOSERS

INNER = (
    acceptance.accept_probability,
    acceptance.neighborhood_reject_probability,
    acceptance.pick_by_weight,
    acceptance.pick_evenly,
)
ROUNDS = 400


@pytest.fixture(scope="module")
def compiled(require):
    """Compiles a function from outside; those that it calls are made known to the compiler."""
    require(importlib.util.find_spec("numba"), "numba, from the extra `sim`")
    from numba import njit
    from numba.extending import register_jitable

    for function in INNER:
        register_jitable(function)
    return njit


def knowledge(random):
    """Arrays as the fast simulator holds them: float, float, int, float, bool, by neighbor."""
    import numpy as np

    count = random.randrange(7)
    edges = (0.0, 0.5, 1.0)
    return (
        np.array([random.choice((*edges, random.random())) for _ in range(count)], dtype=float),
        np.array([random.choice((*edges, random.random())) for _ in range(count)], dtype=float),
        np.array([random.randrange(9) for _ in range(count)], dtype=np.int64),
        np.array([random.choice((0.0, 0.035)) for _ in range(count)], dtype=float),
        np.array([random.random() < 0.7 for _ in range(count)], dtype=np.bool_),
    )


def draw_of(random):
    return random.choice((0.0, 1.0 - 2.0**-53, random.random(), random.random()))


def test_formulas_agree(compiled):
    """P and R, compiled and not, are the same to the last bit."""
    fast_p = compiled(acceptance.accept_probability)
    fast_r = compiled(acceptance.neighborhood_reject_probability)
    fast_wait = compiled(backoff_s)
    random = Random(1)
    for _ in range(ROUNDS):
        accept, _, _, _, known = knowledge(random)
        own = random.random()
        state = random.randrange(50), random.randrange(1, 9)
        assert fast_p(*state) == acceptance.accept_probability(*state)
        plain = acceptance.neighborhood_reject_probability(own, accept.tolist(), known.tolist())
        assert fast_r(own, accept, known) == plain
        wait = random.randrange(80), 0.05, 1.0, random.random()
        assert fast_wait(*wait) == backoff_s(*wait)


def test_picking_agrees(compiled):
    """By weight and evenly, with negative weights, empty arrays and the ends of the draw."""
    fast_weight, fast_even = compiled(acceptance.pick_by_weight), compiled(acceptance.pick_evenly)
    random = Random(2)
    for _ in range(ROUNDS):
        weights, _, _, _, eligible = knowledge(random)
        weights -= 0.3
        total = sum(weight for weight in weights.tolist() if weight > 0.0)
        draw = draw_of(random)
        plain = acceptance.pick_by_weight(weights.tolist(), total, draw)
        assert fast_weight(weights, float(total), draw) == plain
        assert fast_even(eligible, draw) == acceptance.pick_evenly(eligible.tolist(), draw)


@pytest.mark.parametrize("name", CHOOSERS)
def test_choosers_agree(compiled, name):
    """Every policy chooses alike, and writes the same weights."""
    import numpy as np

    fast = compiled(CHOOSERS[name])
    random = Random(3)
    for _ in range(ROUNDS):
        _, reject_near, lengths, delays_s, eligible = knowledge(random)
        own = random.randrange(12), random.randrange(1, 6), random.random() < 0.8
        service_s, draw = random.choice((0.0, 0.04)), draw_of(random)
        fast_weights, weights = np.full(len(lengths), 7.0), [7.0] * len(lengths)
        known = reject_near, lengths, delays_s, eligible
        choice = fast(*own, service_s, *known, fast_weights, draw)
        plain = CHOOSERS[name](*own, service_s, *(array.tolist() for array in known), weights, draw)
        assert choice == plain
        assert fast_weights.tolist() == weights
