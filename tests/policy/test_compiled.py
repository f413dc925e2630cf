"""The same source, compiled by numba, gives the same results: what `sim/fast` relies on."""

import importlib.util
import math
from random import Random

import pytest

from spillover.model.ranges import AMOUNT_MAX, WHOLE_MAX
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


@pytest.mark.parametrize("name", ["paper", "adaptive"])
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
