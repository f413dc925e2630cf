"""Token balancing, exactly: against the machine itself as a chain, against fractions, and against
the figures that are known."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillover.inputs.pool_file import load_pool
from spillover.model.errors import InputError
from spillover.model.pool import Pool, PoolClass, PoolServer, PoolType
from support.few import examples
from support.rational_tokens import rational_figures

pytestmark = pytest.mark.slow

quarters = st.integers(1, 16).map(lambda count: count / 4)


@pytest.fixture(scope="module")
def solve(numba):
    """The method under test; imported late, since it needs numpy."""
    from spillover.sim.theory.tokens.exact import exact_tokens

    return exact_tokens


def pool_of(rates, classes, types):
    """Servers by rate, classes as (servers, tokens), types as (rate, classes), all by number."""
    return Pool(
        name="test",
        servers=tuple(PoolServer(id=f"s{k}", rate=rate) for k, rate in enumerate(rates)),
        classes=tuple(
            PoolClass(id=f"c{k}", servers=tuple(f"s{s}" for s in servers), tokens=tokens)
            for k, (servers, tokens) in enumerate(classes)
        ),
        types=tuple(
            PoolType(id=f"t{k}", rate=rate, classes=tuple(f"c{c}" for c in joined))
            for k, (rate, joined) in enumerate(types)
        ),
    )


@st.composite
def pools(draw, tokens_max=2, count_max=3):
    """Small pools of any shape: several servers a class, several classes a type, useless parts."""
    rates = draw(st.lists(quarters, min_size=1, max_size=count_max))
    some_servers = st.sets(st.integers(0, len(rates) - 1), min_size=1)
    entries = st.tuples(some_servers.map(sorted), st.integers(1, tokens_max))
    classes = draw(st.lists(entries, min_size=1, max_size=count_max))
    some_classes = st.sets(st.integers(0, len(classes) - 1), min_size=1)
    kinds = st.tuples(quarters, some_classes.map(sorted))
    return pool_of(rates, classes, draw(st.lists(kinds, min_size=1, max_size=count_max)))


def dedicated(rates, tokens, types):
    """A class for each server."""
    return pool_of(rates, [([k], tokens) for k in range(len(rates))], types)


@given(pool=pools())
def test_the_machine_does_what_the_formulas_say(solve, machine, pool):
    """Its chain of job orders and token orders, solved without any balance function."""
    blocked, idle = machine(pool)
    figures = solve(pool)
    assert figures.blocking_per_type == pytest.approx(blocked, abs=1e-11)
    assert figures.idle == pytest.approx(idle, abs=1e-11)


@settings(max_examples=examples(40))
@given(pool=pools(tokens_max=3, count_max=4))
def test_ten_digits(solve, pool):
    """Against fractions, which do not round."""
    exact, figures = rational_figures(pool), solve(pool)
    for name, value in exact.blocking.items():
        assert figures.blocking_per_type[name] == pytest.approx(float(value), rel=1e-12)
    for name, value in exact.idle.items():
        assert figures.idle[name] == pytest.approx(float(value), rel=1e-12)


@pytest.mark.parametrize(
    ("rho", "blocking"),
    [(0.8, 3.149e-4), (1.0, 0.037768), (2.0, 0.500002)],
)
def test_the_pool_of_figure_8(solve, rho, blocking):
    """As published beside the paper, to the digits given there."""
    assert solve(load_pool("comte8").at_load(rho)).blocking == pytest.approx(blocking, rel=2e-4)


def test_hundreds_of_tokens(solve):
    """Two servers of 250 tokens at any load: against whole numbers, beyond what floats can hold.

    With one type, n! prod mu_i^y_i / y_i! summed up over the y of equal n is the weight of n.
    """
    tokens = 250
    ways = [
        sum(math.comb(n, y) * 4**y for y in range(max(0, n - tokens), min(n, tokens) + 1))
        for n in range(2 * tokens + 1)
    ]
    for rho in (1e-30, 1.0, 1e30):
        figures = solve(dedicated([1.0, 4.0], tokens, [(5.0 * rho, [0, 1])]))
        logs = [math.log(way) - n * math.log(5 * rho) for n, way in enumerate(ways)]
        total = math.fsum(math.exp(log - max(logs)) for log in logs)
        expected = math.exp(logs[0] - max(logs)) / total
        assert figures.blocking == pytest.approx(expected, rel=1e-10, abs=1e-300)


def test_parts_without_a_use(solve):
    """A server without a class and a class without a type change nothing."""
    plain = dedicated([1, 2], 2, [(2, [0, 1])])
    more = pool_of([1, 2, 5, 7], [([0], 2), ([1], 2), ([2], 3)], [(2, [0, 1])])
    figures = solve(more)
    assert figures.blocking == pytest.approx(solve(plain).blocking, rel=1e-14)
    assert (figures.idle["s2"], figures.idle["s3"]) == (1, 1)
    assert rational_figures(more).idle["s2"] == 1


def test_a_pool_too_large(solve):
    """It is said that simulation is the way."""
    ring = [([k, (k + 1) % 12], 6) for k in range(12)]
    pool = pool_of([1.0] * 12, ring, [(9.0, range(12))])
    complaint = r"solved with 4000000 states .*, got one of 13841287201 and .* can be simulated"
    with pytest.raises(InputError, match=complaint):
        solve(pool)
    with pytest.raises(InputError, match="at most 50000 states, got 13841287201"):
        rational_figures(pool)


def test_unknown_policies(solve):
    with pytest.raises(ValueError, match="expected one of dynamic, static-best"):
        solve(load_pool("comte8"), "greedy")
