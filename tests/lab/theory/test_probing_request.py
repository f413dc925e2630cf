"""What becomes of a request: closed forms against a walk over all that it may meet."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import astuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillover_lab.theory.request import (
    independent_probes,
    probes_among,
    share_of,
)


def walk(empty, max_hops, choices):
    """Probe by probe, by how many different producers were met, all of them empty."""
    alive, probes, new, stays = {0: 1.0}, 0.0, 0.0, 0.0
    for _ in range(max_hops):
        probes += sum(alive.values())
        new += sum(share * (1 - met / choices) for met, share in alive.items())
        onward = defaultdict(float)
        for met, share in alive.items():
            onward[met] += share * met / choices
            onward[met + 1] += share * (1 - met / choices) * empty
        alive = onward
    stays = sum(alive.values())
    found_none = probes - (1 - stays)
    return probes, new, stays / empty / new, stays, found_none / probes


@given(st.floats(0.01, 0.99), st.integers(1, 12), st.integers(1, 8))
def test_probes_among_a_few_are_those_of_the_walk(empty, max_hops, choices):
    """All five figures."""
    fate = probes_among(math.log(empty / (1 - empty)), max_hops, choices)
    expected = walk(empty, max_hops, choices)
    assert astuple(fate) == pytest.approx(expected, rel=1e-8, abs=1e-12)


@pytest.mark.parametrize("log_odds", [-1e5, -800.0, -40.0, 0.0, 40.0, 800.0, 1e5])
@pytest.mark.parametrize("choices", [1, 2, 50])
def test_extremes(log_odds, choices):
    """Nobody or everybody empty: all figures stay finite and in their bounds."""
    for max_hops in (1, 7, 1_000_000):
        for fate in (
            independent_probes(log_odds, max_hops),
            probes_among(log_odds, max_hops, choices),
        ):
            assert all(map(math.isfinite, astuple(fate)))
            assert 1.0 - 1e-12 <= fate.new_probes <= fate.probes * (1 + 1e-9)
            assert fate.probes <= max_hops * (1 + 1e-9)
            for share in (fate.parking_share, fate.parks, fate.finds_none):
                assert 0.0 <= share <= 1.0 + 1e-12
    assert share_of(log_odds) + share_of(-log_odds) == pytest.approx(1.0)
