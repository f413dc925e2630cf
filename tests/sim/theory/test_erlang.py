"""Erlang's formulas against the balance equations of the queues that they are about."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillover.sim.theory.erlang import (
    erlang_b,
    erlang_c,
    mm1k_blocking,
    mm1k_distribution,
    system_time_exceeds,
    wait_exceeds,
    wait_mean,
    wait_quantile,
)

eighths = st.integers(1, 40).map(lambda count: count / 8)
"""Rates that floats hold exactly, so that fractions mean the same numbers."""


def birth_death(births, deaths):
    """The stationary law: birth rates of states 0.., death rates of states 1.., in fractions."""
    weights = [Fraction(1)]
    for birth, death in zip(births, deaths, strict=True):
        weights.append(weights[-1] * Fraction(birth) / Fraction(death))
    total = sum(weights)
    return [weight / total for weight in weights]


def waiting_room(servers, arrival_rate, service_rate, room):
    """M/M/c whose queue ends at `room`: beyond it there is next to nothing."""
    count = servers + room
    deaths = [min(n, servers) * service_rate for n in range(1, count + 1)]
    return [float(share) for share in birth_death([arrival_rate] * count, deaths)]


@given(st.integers(0, 12), eighths)
def test_erlang_b_is_the_share_of_the_full_state(servers, offered):
    """Of M/M/c/c, exactly."""
    law = birth_death([offered] * servers, range(1, servers + 1))
    assert erlang_b(servers, offered) == pytest.approx(float(law[-1]), rel=1e-13)


def test_erlang_b_of_many_servers():
    """At the critical load B tends to sqrt(2 / (pi c)); far below and far above, to the limits."""
    many = 1_000_000
    assert erlang_b(many, many) == pytest.approx(math.sqrt(2 / (math.pi * many)), rel=2e-3)
    assert erlang_b(many, many / 2) == 0
    assert erlang_b(many, 4 * many) == pytest.approx(3 / 4, rel=1e-6)
    assert erlang_b(3, 0) == 0
    assert erlang_b(3, math.inf) == 1


@settings(max_examples=40)
@given(st.integers(1, 6), eighths, eighths)
def test_waiting_in_a_stable_queue(servers, arrival_rate, service_rate):
    """Erlang C, the mean wait and both tails, from the law of what an arrival finds."""
    load = arrival_rate / (servers * service_rate)
    if load > 0.85:
        arrival_rate, load = 0.85 * servers * service_rate, 0.85
    law = waiting_room(servers, arrival_rate, service_rate, room=260)
    assert erlang_c(servers, arrival_rate / service_rate) == pytest.approx(
        sum(law[servers:]), rel=1e-10
    )
    rate = servers * service_rate
    ahead = range(1, len(law) - servers + 1)  # departures to wait for
    mean = sum(share * count / rate for share, count in zip(law[servers:], ahead, strict=True))
    assert wait_mean(servers, arrival_rate, service_rate) == pytest.approx(mean, rel=1e-10)
    time = 1.5 / rate
    tail = sum(
        share * erlang_tail(count, rate * time)
        for share, count in zip(law[servers:], ahead, strict=True)
    )
    assert wait_exceeds(servers, arrival_rate, service_rate, time) == pytest.approx(tail, rel=1e-10)


def erlang_tail(count, scaled_time):
    """P(the sum of `count` exponentials of rate 1 exceeds that time)."""
    term, total = math.exp(-scaled_time), 0.0
    for number in range(count):
        total += term
        term *= scaled_time / (number + 1)
    return total


@settings(max_examples=40)
@given(st.integers(1, 6), st.floats(0.05, 0.95), eighths, st.floats(0, 5))
def test_system_time_is_wait_plus_service(servers, load, service_rate, time):
    """Against a midpoint sum over the service time, also where both rates are (nearly) equal."""
    arrival_rate = load * servers * service_rate
    steps = 1000
    inside = sum(
        math.exp(-service_rate * time * (k + 0.5) / steps)
        * wait_exceeds(servers, arrival_rate, service_rate, time * (1 - (k + 0.5) / steps))
        for k in range(steps)
    )
    expected = math.exp(-service_rate * time) + inside * service_rate * time / steps
    exact = system_time_exceeds(servers, arrival_rate, service_rate, time)
    assert exact == pytest.approx(expected, rel=1e-3, abs=1e-12)


def test_system_time_of_one_server_is_exponential():
    """M/M/1: rate mu - lambda; and two equal rates in M/M/2 at load 1/2."""
    assert system_time_exceeds(1, 3.0, 4.0, 2.0) == pytest.approx(math.exp(-2), rel=1e-12)
    assert system_time_exceeds(2, 1.0, 1.0, 3.0) == pytest.approx(
        math.exp(-3) * (1 + erlang_c(2, 1.0) * 3), rel=1e-12
    )
    assert system_time_exceeds(2, 1.0, 1.0, 1e9) == 0


@given(st.integers(1, 30), st.floats(0.05, 0.99), st.floats(0, 0.999))
def test_quantiles_of_the_wait(servers, load, share):
    """That share of the waits, and no more, lies at or below it."""
    quantile = wait_quantile(servers, load * servers, 1.0, share)
    beyond = wait_exceeds(servers, load * servers, 1.0, quantile)
    assert beyond <= (1 - share) * (1 + 1e-9)
    assert quantile == 0 or beyond == pytest.approx(1 - share, rel=1e-9)


def test_an_unstable_queue():
    """Everybody waits, for ever."""
    for rate in (4.0, 5.0):
        assert erlang_c(4, rate) == 1
        assert wait_mean(4, rate, 1.0) == math.inf
        assert wait_exceeds(4, rate, 1.0, 1e9) == 1
        assert system_time_exceeds(4, rate, 1.0, 1e9) == 1
        assert wait_quantile(4, rate, 1.0, 0.5) == math.inf


@given(eighths, st.integers(0, 20))
def test_one_server_with_limited_room(load, limit):
    """M/M/1/K, exactly."""
    law = birth_death([load] * limit, [1] * limit)
    assert mm1k_distribution(load, limit) == pytest.approx([float(p) for p in law], rel=1e-13)


def test_limited_room_at_extreme_loads():
    """Nothing overflows."""
    assert mm1k_blocking(1e-300, 10_000) == 0
    assert mm1k_blocking(1e300, 10_000) == 1
    assert mm1k_blocking(1.0, 3) == 0.25
    assert mm1k_blocking(0.0, 0) == 1


@pytest.mark.parametrize("arguments", [(-1, 1.0), (1, -0.5), (1, math.nan)])
def test_what_is_no_queue(arguments):
    with pytest.raises(ValueError, match="expected a count and a load of at least 0"):
        erlang_b(*arguments)
