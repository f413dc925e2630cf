"""Johnson's model: the document's equations, iterated as printed there (errata mended), are the
twin; conservation, limits and monotony over a wide space; exact where theory is exact."""

from __future__ import annotations

import math
from dataclasses import astuple, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillover.model.errors import InputError
from spillover.sim.queue.system import (
    ProbingSystem,
    alike,
    fast_and_slow,
)
from spillover_lab.theory.chain import solve
from support.few import examples

pytestmark = pytest.mark.slow


def paper(consumers=100, max_hops=3, **changes):
    """The system of section 4.1.1: lambda = mu = 0.01, messages of 1 tick, 100 producers."""
    system = ProbingSystem(
        kinds=alike(100, 0.01),
        consumers=consumers,
        consumption_rate=0.01,
        message_time=1.0,
        buffers=5,
        max_hops=max_hops,
    )
    return replace(system, **changes)


def iterated(system):
    """Equations 1 and 5-9 for one kind of producers, by damped iteration on mu_c and p_b."""
    (kind,), m, f, h = system.kinds, system.consumers, system.buffers, system.max_hops
    lam, r = kind.rate, system.message_time
    mu_c, p_b = lam, 0.5
    for _ in range(20000):
        law = {s: (lam / mu_c) ** s for s in range(f + 1)}
        law.update({-k: (p_b * mu_c / lam) ** k for k in range(1, m + 1)})
        total = math.fsum(law.values())
        p_mt = math.fsum(law[-k] for k in range(m + 1)) / total
        h_avg = math.fsum(p_mt**i for i in range(h))
        b_c = math.fsum((k + 1) * law[-k] for k in range(m)) / total / p_mt / lam
        b = p_mt**h * b_c
        found = m / kind.count * h_avg / (1 / system.consumption_rate + (h_avg + 1) * r + b)
        if abs(found / mu_c - 1) < 1e-13 and abs(p_mt ** (h - 1) / h_avg / p_b - 1) < 1e-13:
            break
        mu_c += 0.1 * (found - mu_c)
        p_b += 0.1 * (p_mt ** (h - 1) / h_avg - p_b)
    wait = (h_avg + 1) * r + b
    cycle = 1 / system.consumption_rate + wait
    u_p, u_c = 1 - law[f] / total, 1 / system.consumption_rate / cycle
    return h_avg, wait, p_mt, u_p, u_c, m / cycle


@pytest.mark.parametrize("consumers", [50, 150])
@pytest.mark.parametrize("max_hops", [1, 3, 10])
def test_the_documents_equations_hold(consumers, max_hops):
    """All its loads and hops: where its iteration did not converge too."""
    system = paper(consumers, max_hops)
    assert astuple(solve(system)) == pytest.approx(iterated(system), rel=1e-9)


def test_the_documents_numbers():
    """What section 4.1.1 says in words: the waits' limits, fewer than 4 probes at 200 %, h_avg
    below 2 up to load 100 %, and about 2.8 % more objects with h_max = 5 than with 3."""
    assert solve(paper(50, 10)).wait_mean == pytest.approx(2.0, rel=0.01)
    assert solve(paper(150, 10)).wait_mean == pytest.approx(50.0, rel=0.001)
    assert solve(paper(200, 10)).wait_mean == pytest.approx(100.0, rel=0.001)
    assert solve(paper(200, 5)).probes_mean < 4.0
    assert solve(paper(100, 10)).probes_mean < 2.0
    gain = solve(paper(100, 5)).throughput / solve(paper(100, 3)).throughput - 1
    assert gain == pytest.approx(0.028, abs=0.002)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99, 1.0, 1.5, 20.0])
@pytest.mark.parametrize("buffers", [1, 3])
def test_one_producer_and_one_consumer_are_solved_exactly(share, buffers):
    """Without message times that is a chain of f + 2 states; at share 1 it is degenerate."""
    system = paper(1, 1, kinds=alike(1, 0.01), message_time=0.0, buffers=buffers)
    figures = solve(replace(system, consumption_rate=0.01 * share))
    weights = [share**-s for s in range(-1, buffers + 1)]  # s = -1: parked
    used = 1 - weights[0] / sum(weights)
    assert figures.consumer_utilization == pytest.approx(used, rel=1e-12)
    assert figures.throughput == pytest.approx(0.01 * share * used, rel=1e-12)


@st.composite
def systems(draw, *, kinds=True):
    """Nearly anything: 1 to 1000 producers, rates and loads over many orders of magnitude."""
    producers = draw(st.sampled_from([1, 2, 3, 10, 100, 1000]))
    rate = 10.0 ** draw(st.floats(-4, 4))
    made = alike(producers, rate)
    restricted = None
    shape = draw(st.sampled_from(["alike", "kinds", "restricted"]))
    if shape == "kinds" and kinds and producers > 1:
        fast = draw(st.integers(1, producers - 1))
        access = draw(st.one_of(st.none(), st.floats(0, 1)))
        factor = 10.0 ** draw(st.floats(-1, 1))
        made = fast_and_slow(producers, rate, share=fast / producers, factor=factor, access=access)
    elif shape == "restricted":
        restricted = draw(st.integers(1, min(producers, 20)))
    return ProbingSystem(
        kinds=made,
        consumers=max(1, round(producers * 10.0 ** draw(st.floats(-1, 1)))),
        consumption_rate=rate * 10.0 ** draw(st.floats(-3, 3)),
        message_time=draw(st.sampled_from([0.0, 0.01, 1.0, 100.0])) / rate,
        buffers=draw(st.sampled_from([1, 2, 5, 100])),
        max_hops=draw(st.sampled_from([1, 2, 3, 5, 10, 100])),
        producers_per_consumer=restricted,
    )


def check_bounds(system, figures):
    assert all(map(math.isfinite, astuple(figures)))
    assert 1.0 <= figures.probes_mean <= system.max_hops * (1 + 1e-12)
    assert figures.wait_mean >= (figures.probes_mean + 1) * system.message_time
    for share in (figures.empty_probability, figures.producer_utilization):
        assert 0.0 <= share <= 1.0 + 1e-12
    assert figures.throughput <= system.capacity * (1 + 1e-9)
    asked = system.consumers * system.consumption_rate
    assert figures.throughput == pytest.approx(asked * figures.consumer_utilization, rel=1e-12)


@given(systems(kinds=False))
@settings(max_examples=examples(200))
def test_what_is_made_is_what_is_consumed(system):
    """T = M U_c mu = N lambda U_p, to the last digits, and no parameters at which it fails."""
    figures = solve(system)
    check_bounds(system, figures)
    made = system.capacity * figures.producer_utilization
    assert made == pytest.approx(figures.throughput, rel=1e-9)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"max_hops": 0}, "max_hops: expected a whole number of 1 to 1000000, got 0"),
        ({"consumers": 0}, "consumers: expected a whole number of 1 to 1000000, got 0"),
        ({"buffers": -1}, "buffers: expected a whole number of 1 to 1000000, got -1"),
        ({"consumption_rate": 0.0}, "consumption_rate: expected a number of 1e-12 to 1e+12, got 0"),
        ({"message_time": -1.0}, "message_time: expected a number of 0 to 1e+12, got -1"),
        ({"message_time": math.nan}, "message_time: expected a number of 0 to 1e+12, got nan"),
        ({"producers_per_consumer": 0}, "producers_per_consumer: expected 1 to 100, the number of"),
        ({"producers_per_consumer": 101}, "producers_per_consumer: expected 1 to 100, the number"),
        ({"kinds": ()}, "kinds: expected at least one kind of producers, got none"),
        ({"kinds": alike(0, 1.0)}, "producers: expected a whole number of 1 to 1000000, got 0"),
        ({"kinds": alike(5, 0.0)}, "production_rate: expected a number of 1e-12 to 1e+12, got 0"),
        ({"kinds": alike(5, 1.0) * 2}, "access: expected shares that add up to 1"),
    ],
)
def test_systems_that_make_no_sense_are_refused(change, told):
    """In one line that names the field."""
    with pytest.raises(InputError) as refused:
        paper(**change)
    assert str(refused.value).startswith(f"probing: {told}")


def test_kinds_that_make_no_sense_are_refused():
    """A share that leaves no slow or no fast producer, a share of probes beyond 1."""
    for share in (0.0, 0.001, 1.0, 3.0):
        with pytest.raises(InputError, match="fast_share"):
            fast_and_slow(100, 1.0, share=share, factor=2.0)
    with pytest.raises(InputError, match="fast_access"):
        fast_and_slow(100, 1.0, share=0.5, factor=2.0, access=1.5)
    with pytest.raises(InputError, match="fast_factor"):
        fast_and_slow(100, 1.0, share=0.5, factor=0.0)
    with pytest.raises(InputError, match="producers_per_consumer: expected only where all"):
        paper(kinds=fast_and_slow(100, 1.0, share=0.5, factor=2.0), producers_per_consumer=5)
