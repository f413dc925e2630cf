"""The same source, compiled by numba, gives the same results: what `sim/fast` relies on."""

from __future__ import annotations

import importlib.util
import math
from random import Random

import pytest

from spillover.model.ranges import AMOUNT_MAX, WHOLE_MAX
from spillover.policy.backoff import backoff_s
from spillover.policy.overflow import admission, base, estimate
from spillover.policy.overflow.base import NeighborLoads, OwnLoad
from spillover.policy.overflow.choosers import CHOOSERS
from support.loads import worked_out

ROUNDS = 400

WHOLE_CORNERS = (0, 1, 2**31, WHOLE_MAX)
AMOUNT_CORNERS = (0.0, 5e-324, 1e-9, 1.0, AMOUNT_MAX)
"""Of the ranges within which neighbors tell numbers."""


@pytest.fixture(scope="module")
def compiled(require):
    """Compiles a function from outside; those that it calls are made known to the compiler."""
    require(importlib.util.find_spec("numba"), "numba, from the extra `sim`")
    from spillover.sim.fast.compile import compiled

    return compiled


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


def own_of(random, count):
    """What a cluster knows of itself, at time 1."""
    import numpy as np

    service_s, servers = random.choice((0.0, 0.04)), random.randrange(1, 6)
    return OwnLoad(
        random.randrange(12),
        servers,
        random.random() < 0.8,
        service_s,
        service_s / servers,
        random.choice((0.5, 1.0, random.uniform(0.5, 3.0))),
        random.choice((0.0, 1.0, random.uniform(0.0, 4.0))),
        random.randrange(2),
        1.0,
        np.array([random.choice((0, 0, 1, 5)) for _ in range(count)], dtype=np.int64),
    )


def loads_of(random, count):
    """What neighbors tell besides: servers, ahead, load, departure, residual, and when; and what is
    worked out of it."""
    import numpy as np

    floats = [
        [random.choice((0.0, 1.0, random.uniform(0.0, 4.0))) for _ in range(count)],
        [random.choice((0.0, 0.008, 0.04, random.random())) for _ in range(count)],
        [random.uniform(0.5, 3.0) for _ in range(count)],
        [random.choice((1.0, 0.99, 0.7, random.random(), -20.0)) for _ in range(count)],
    ]
    integers = [
        [random.randrange(1, 6) for _ in range(count)],
        [random.randrange(-5, 9) for _ in range(count)],
    ]
    floats += worked_out(integers[0], floats[0], floats[2]).values()
    return (
        *(np.array(values, dtype=np.int64) for values in integers),
        *(np.array(values, dtype=float) for values in floats),
    )


@pytest.mark.slow
def test_formulas_agree(compiled):
    """P and R, compiled and not, are the same to the last bit."""
    fast_p = compiled(base.accept_probability)
    fast_r = compiled(base.neighborhood_reject_probability)
    fast_wait = compiled(backoff_s)
    random = Random(1)
    for _ in range(ROUNDS):
        accept, _, _, _, known = knowledge(random)
        own = random.random()
        state = random.randrange(50), random.randrange(1, 9)
        assert fast_p(*state) == base.accept_probability(*state)
        plain = base.neighborhood_reject_probability(own, accept.tolist(), known.tolist())
        assert fast_r(own, accept, known) == plain
        wait = random.randrange(80), 0.05, 1.0, random.random()
        assert fast_wait(*wait) == backoff_s(*wait)


def test_picking_agrees(compiled):
    """By weight and evenly, with negative weights, empty arrays and the ends of the draw."""
    fast_weight, fast_even = compiled(base.pick_by_weight), compiled(base.pick_evenly)
    random = Random(2)
    for _ in range(ROUNDS):
        weights, _, _, _, eligible = knowledge(random)
        weights -= 0.3
        total = sum(weight for weight in weights.tolist() if weight > 0.0)
        draw = draw_of(random)
        plain = base.pick_by_weight(weights.tolist(), total, draw)
        assert fast_weight(weights, float(total), draw) == plain
        assert fast_even(eligible, draw) == base.pick_evenly(eligible.tolist(), draw)


@pytest.mark.parametrize("name", CHOOSERS)
def test_choosers_agree(compiled, name):
    """Every policy chooses alike, and writes the same weights."""
    import numpy as np

    fast = compiled(CHOOSERS[name])
    random = Random(3)
    for _ in range(ROUNDS):
        _, reject_near, lengths, delays_s, eligible = knowledge(random)
        own, near, draw = (
            own_of(random, len(lengths)),
            loads_of(random, len(lengths)),
            draw_of(random),
        )
        fast_weights, weights = np.full(len(lengths), 7.0), [7.0] * len(lengths)
        known = reject_near, lengths, delays_s, *near
        choice = fast(own, NeighborLoads(*known, 0.05), eligible, fast_weights, draw)
        plain = NeighborLoads(*(tuple(array.tolist()) for array in known), 0.05)
        plain_own = own._replace(unreported=tuple(own.unreported.tolist()))
        told = tuple(eligible.tolist())
        assert choice == CHOOSERS[name](plain_own, plain, told, weights, draw)
        assert fast_weights.tolist() == weights


@pytest.mark.parametrize("name", CHOOSERS)
def test_choosers_bear_the_corners_of_the_ranges(compiled, name):
    """Neither engine overflows or divides by nothing, and both choose alike."""
    import numpy as np

    fast = compiled(CHOOSERS[name])
    random = Random(6)

    def some(values, count=4):
        return [random.choice(values) for _ in range(count)]

    for _ in range(ROUNDS):
        servers = some(WHOLE_CORNERS[1:])
        load, departure_ms, residual = (some(AMOUNT_CORNERS) for _ in range(3))
        integers = [some(WHOLE_CORNERS), servers, [n - WHOLE_MAX // 2 for n in some(WHOLE_CORNERS)]]
        floats = [load, [one / 1e3 for one in departure_ms], residual, some((1.0, 0.0, -1e6))]
        floats += worked_out(servers, load, residual).values()
        lengths, *whole = (np.array(one, dtype=np.int64) for one in integers)
        real = [np.array(one, dtype=float) for one in floats]
        reject_near, delays_s = np.array(some((0.0, 5e-324, 1.0))), np.array(some((0.0, 60.0)))
        own = own_of(random, 4)._replace(queue_length=random.choice((0, 1, 2**31)))
        eligible = np.array(some((True, True, False)))
        known = reject_near, lengths, delays_s, *whole, *real
        near = NeighborLoads(*(tuple(array.tolist()) for array in known), 0.05)
        plain_own = own._replace(unreported=tuple(own.unreported.tolist()))
        fast_weights, weights, draw = np.zeros(4), [0.0] * 4, draw_of(random)
        told = tuple(eligible.tolist())
        choice = fast(own, NeighborLoads(*known, 0.05), eligible, fast_weights, draw)
        assert choice == CHOOSERS[name](plain_own, near, told, weights, draw)
        assert fast_weights.tolist() == weights
        assert all(map(math.isfinite, weights))


def test_admission_agrees(compiled):
    """Room, the stay and the time left are the same, the stay to the last bit."""
    fast_takes, fast_full = compiled(admission.takes_foreign), compiled(admission.is_full)
    fast_tells, fast_late = compiled(admission.tells_wait), compiled(admission.is_too_late)
    fast_stay = compiled(admission.stay_s)
    random = Random(4)
    for _ in range(ROUNDS):
        waiting, servers, is_home = (
            random.randrange(9),
            random.randrange(1, 9),
            random.random() < 0.5,
        )
        assert fast_takes(servers - 1, waiting, 5) == admission.takes_foreign(
            servers - 1, waiting, 5
        )
        assert fast_full(waiting, is_home, 7, 5) == admission.is_full(waiting, is_home, 7, 5)
        assert fast_tells(waiting, servers) == admission.tells_wait(waiting, servers)
        here_s, left_s = random.choice((0.75, random.random())), random.choice((1.0, 0.75))
        assert fast_late(here_s, left_s, is_home) == admission.is_too_late(here_s, left_s, is_home)
        stay = waiting, servers, random.random(), random.choice((0.0, random.random())), 0.006
        assert fast_stay(*stay) == admission.stay_s(*stay)


def test_estimates_agree(compiled):
    """From a guess, also of 0, over services with pauses among them: to the last bit."""
    fast = compiled(estimate.learned)
    random = Random(5)
    for _ in range(ROUNDS // 10):
        ours = theirs = random.choice((0.0, 0.04)), 0.0
        for number in range(1, random.randrange(2, 90)):
            took_s = random.choice((0.0, 0.04, random.random(), 100.0))
            ours, theirs = fast(*ours, number, took_s), estimate.learned(*theirs, number, took_s)
            assert ours == theirs
