"""Where policies are compared: federations and loads as told, and waits that theory knows."""

from __future__ import annotations

import math
from statistics import fmean

import pytest

from spillover.tools.reproduce import policies, policies_bed
from spillover.tools.reproduce.policies_bed import SHAPES, SHARED, Cell, arrivals_of, paired, play

pytest.importorskip("numba")

EVEN = Cell("4x8", 0.8, "exponential", 0.1, 1.0, requests=40_000)


def erlang_wait(servers, load):
    """The mean wait of M/M/m in services: Erlang's C by the rate at which a full pool empties."""
    offered = servers * load
    terms = [offered**k / math.factorial(k) for k in range(servers)]
    full = offered**servers / math.factorial(servers) / (1 - load)
    return full / (sum(terms) + full) / (servers * (1 - load))


@pytest.mark.slow
@pytest.mark.parametrize(("policy", "servers"), [("isolated", 8), (SHARED, 32)])
def test_waits_are_those_of_theory(policy, servers):
    """Both ends of the gap, within 8 %."""
    waits = [play(EVEN, policy, seed).wait_mean for seed in (1, 2, 3)]
    assert fmean(waits) == pytest.approx(erlang_wait(servers, 0.8), rel=0.08)


@pytest.mark.slow
def test_a_hot_site_is_told_apart_from_the_others():
    """Each for itself, it drops what it cannot serve, and they wait as if it were not there."""
    cell = Cell("4x8", 0.5, "exponential", 0.0, 1.0, hot=3.0, requests=20_000)
    run = play(cell, "isolated", 1)
    assert run.cold_wait_mean == pytest.approx(erlang_wait(8, 0.5), rel=0.5)
    assert run.wait_mean > 10.0 * run.cold_wait_mean


@pytest.mark.parametrize("law", ["constant", "exponential", "hyperexponential"])
def test_services_take_one_on_average(law):
    """And vary as the law says."""
    services = arrivals_of(Cell("4x8", 0.9, law, 0.0, 1.0), 1).service_ms / policies_bed.SERVICE_MS
    c2 = {"constant": 0.0, "exponential": 1.0, "hyperexponential": 4.0}[law]
    assert services.mean() == pytest.approx(1.0, rel=0.03)
    assert services.var() == pytest.approx(c2, rel=0.15)


def test_each_site_has_its_load():
    """In proportion to its servers; a hot one has more."""
    cell = Cell("unlike", 0.5, "constant", 0.0, 1.0, hot=3.0)
    arrivals = arrivals_of(cell, 1)
    seconds = arrivals.time_s[-1]
    for home, servers in enumerate(SHAPES["unlike"].servers):
        load = (arrivals.cluster == home).sum() / seconds / servers
        assert load == pytest.approx(3.0 if home == 0 else 0.5, rel=0.05)


def test_the_same_seed_gives_the_same_requests_to_every_policy():
    """That is what pairs them."""
    first, again, other = (arrivals_of(EVEN, seed) for seed in (1, 1, 2))
    assert (first.time_s == again.time_s).all()
    assert (first.service_ms != other.service_ms).any()


def test_pairs_are_judged_by_their_differences():
    """What all seeds share is no noise."""
    found = paired([9.0, 18.0, 27.0], [10.0, 20.0, 30.0])
    assert found.ratio == pytest.approx(0.9)
    assert found.half_width == pytest.approx(4.303 * 0.05 / math.sqrt(3))
    assert paired([1.0], [1.0]).half_width == math.inf


@pytest.mark.slow
def test_ours_closes_more_of_the_gap_than_the_papers():
    """A small cell of the figure, with the figure's own arithmetic."""
    runs = {p: [play(EVEN, p, 1).wait_mean] for p in ("adaptive", "paper", "isolated", SHARED)}
    ours, theirs = (policies.gap_share({"wait": runs}, p) for p in ("adaptive", "paper"))
    assert 0.0 < theirs < ours < 1.0
