"""Token balancing, exactly: against the machine itself as a chain, against fractions, and against
the figures that are known."""

from __future__ import annotations

import importlib.util
import math
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from spillover.inputs.pool_file import load_pool
from spillover.model.errors import InputError
from spillover.model.pool import Pool, PoolClass, PoolServer, PoolType
from spillover.sim.theory.mm1k import mm1k_blocking, mm1k_distribution
from spillover.sim.theory.tokens.graph import parts_of
from support.few import examples
from support.rational_tokens import rational_figures

pytestmark = pytest.mark.slow

quarters = st.integers(1, 16).map(lambda count: count / 4)


@pytest.fixture(scope="module")
def solve(require):
    """The method under test; imported late, since it needs numpy."""
    require(importlib.util.find_spec("numpy"), "numpy, from the extra `sim`")
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


@settings(max_examples=examples(80))
@given(pool=pools(tokens_max=3, count_max=4))
def test_ten_digits(solve, pool):
    """Against fractions, which do not round."""
    exact, figures = rational_figures(pool), solve(pool)
    for name, value in exact.blocking.items():
        assert figures.blocking_per_type[name] == pytest.approx(float(value), rel=1e-12)
    for name, value in exact.idle.items():
        assert figures.idle[name] == pytest.approx(float(value), rel=1e-12)


@given(pool=pools(tokens_max=4, count_max=4), rho=st.floats(1e-3, 1e3))
def test_what_is_accepted_is_served(solve, pool, rho):
    """Equation (11), and rho (1 - beta) = eta."""
    pool = pool.at_load(rho)
    figures = solve(pool)
    accepted = sum(k.rate * (1 - figures.blocking_per_type[k.id]) for k in pool.types)
    served = sum(s.rate * (1 - figures.idle[s.id]) for s in pool.servers)
    assert accepted == pytest.approx(served, rel=1e-9)
    assert pool.load * (1 - figures.blocking) == pytest.approx(figures.occupancy, rel=1e-9)


@given(pool=pools(tokens_max=3, count_max=4))
def test_both_ways_round_agree(solve, pool):
    """Counting available tokens, or tokens held with types and servers in each other's place."""
    from spillover.sim.theory.tokens.grid import _Grid

    for part in parts_of(pool):
        weights, empty, full = _Grid(part.tokens, part.types, part.servers).solve()
        other, full_too, empty_too = _Grid(part.tokens, part.servers, part.types).solve()
        assert weights == pytest.approx(other[::-1], abs=1e-10)
        for mine, its in ((empty, empty_too), (full, full_too)):
            for source, logs in mine.items():
                finite = logs > -math.inf
                assert logs[finite] == pytest.approx(its[source][::-1][finite], abs=1e-10)


@given(pool=pools(tokens_max=3), tokens=st.integers(1, 3), data=st.data())
def test_a_class_may_be_split_in_two(solve, pool, tokens, data):
    """Two classes of equal types and servers are one with the tokens of both."""
    twin = data.draw(st.sampled_from(pool.classes))
    assume(any(twin.id in kind.classes for kind in pool.types))
    types = tuple(
        replace(kind, classes=(*kind.classes, "twin")) if twin.id in kind.classes else kind
        for kind in pool.types
    )
    both = replace(
        pool, classes=(*pool.classes, replace(twin, id="twin", tokens=tokens)), types=types
    )
    grown = tuple(
        replace(each, tokens=each.tokens + tokens) if each is twin else each
        for each in pool.classes
    )
    one = solve(replace(pool, classes=grown)).as_dict()
    two = solve(both).as_dict()
    assert two["occupancy"] == pytest.approx(one["occupancy"], rel=1e-12)
    assert two["idle"] == pytest.approx(one["idle"], rel=1e-12)
    per_type = rational_figures(both).blocking
    assert two["blocking"]["per_type"] == pytest.approx(
        {name: float(value) for name, value in per_type.items()}, rel=1e-12
    )


@pytest.mark.parametrize(
    ("pool", "blocking", "average", "idle"),
    [
        (dedicated([1], 3, [(1, [0])]), [0.25], 0.25, [0.25]),
        (dedicated([1], 3, [(0.8, [0])]), [0.173442], 0.173442, [0.338753]),
        (dedicated([1, 1], 1, [(1, [0, 1])]), [0.2], 0.2, [0.6, 0.6]),
        (dedicated([1, 1], 2, [(1.6, [0, 1])]), [0.161476], 0.161476, [0.329181] * 2),
        (dedicated([1, 4], 6, [(5, [0, 1])]), [0.114517], 0.114517, [0.004010, 0.142144]),
        (
            dedicated([1, 1, 1], 2, [(1.2, [0, 1]), (1.2, [1, 2])]),
            [0.156569] * 2,
            0.156569,
            [0.357042, 0.261681, 0.357042],
        ),
        (
            dedicated([1, 1], 3, [(0.6, [0]), (0.9, [0, 1])]),
            [0.214860, 0.045546],
            0.113272,
            [0.269922, 0.399986],
        ),
        (dedicated([1, 1], 3, [(0.8, [0]), (0.8, [1])]), [0.173442] * 2, 0.173442, [0.338753] * 2),
        (dedicated([1, 1], 3, [(1.6, [0, 1])]), [0.090898], 0.090898, [0.272719] * 2),
    ],
)
def test_known_small_pools(solve, pool, blocking, average, idle):
    """Simulated and computed elsewhere, to six digits."""
    figures = solve(pool)
    assert list(figures.blocking_per_type.values()) == pytest.approx(blocking, abs=6e-7)
    assert figures.blocking == pytest.approx(average, abs=6e-7)
    assert list(figures.idle.values()) == pytest.approx(idle, abs=6e-7)


@pytest.mark.parametrize(
    ("rho", "blocking"),
    [(0.8, 3.149e-4), (0.9, 6.042e-3), (1.0, 0.037768), (1.2, 0.168949), (2.0, 0.500002)],
)
def test_the_pool_of_figure_8(solve, rho, blocking):
    """As published beside the paper, to the digits given there."""
    assert solve(load_pool("comte8").at_load(rho)).blocking == pytest.approx(blocking, rel=2e-4)


@pytest.mark.parametrize(
    ("tokens", "blocking"),
    [(1, 0.239482), (2, 0.122924), (3, 0.080337), (6, 0.037768), (10, 0.021481)],
)
def test_more_tokens_block_less(solve, tokens, blocking):
    """Figure 10 at the critical load."""
    pool = load_pool("comte8").with_tokens(tokens).at_load(1)
    assert solve(pool).blocking == pytest.approx(blocking, abs=6e-7)


def test_two_types_with_servers_in_common(solve):
    """Ten equal servers, seven for each type, four shared, one type four times as frequent."""
    pool = dedicated([1] * 10, 6, [(1, range(7)), (4, range(3, 10))])
    found = [solve(pool.at_load(rho)).blocking for rho in (0.8, 1.0, 2.0)]
    assert found == pytest.approx([6.441e-3, 0.104020, 0.501012], rel=1e-4)


@given(st.integers(1, 30), quarters, quarters)
def test_one_class_is_a_queue_with_limited_room(solve, tokens, arrivals, rate):
    """M/M/1/K under processor sharing, both ends."""
    figures = solve(dedicated([rate], tokens, [(arrivals, [0])]))
    law = mm1k_distribution(arrivals / rate, tokens)
    assert figures.blocking == pytest.approx(law[-1], rel=1e-11)
    assert figures.idle["s0"] == pytest.approx(law[0], rel=1e-11)


def erlang_b(servers, offered):
    """The share of arrivals lost in M/M/c/c."""
    lost = 1.0
    for count in range(1, servers + 1):
        lost = offered * lost / (count + offered * lost)
    return lost


@given(st.integers(1, 12), quarters)
def test_one_token_a_server_is_erlang_b(solve, servers, arrivals):
    """The longest idle server is as good as any other."""
    figures = solve(dedicated([1] * servers, 1, [(arrivals, range(servers))]))
    assert figures.blocking == pytest.approx(erlang_b(servers, arrivals), rel=1e-11)


def test_hundreds_of_tokens(solve):
    """Two servers of 250 tokens at any load: against whole numbers, beyond what floats can hold.

    With one type, n! prod mu_i^y_i / y_i! summed up over the y of equal n is the weight of n.
    """
    tokens = 250
    ways = [
        sum(math.comb(n, y) * 4**y for y in range(max(0, n - tokens), min(n, tokens) + 1))
        for n in range(2 * tokens + 1)
    ]
    for rho in (1e-30, 0.5, 1.0, 30.0, 1e30):
        figures = solve(dedicated([1.0, 4.0], tokens, [(5.0 * rho, [0, 1])]))
        logs = [math.log(way) - n * math.log(5 * rho) for n, way in enumerate(ways)]
        total = math.fsum(math.exp(log - max(logs)) for log in logs)
        expected = math.exp(logs[0] - max(logs)) / total
        assert figures.blocking == pytest.approx(expected, rel=1e-10, abs=1e-300)


def test_the_large_pools_of_the_paper(solve):
    """Ten servers of 20 tokens, and two types of them: quickly, and still balanced."""
    for pool in (
        load_pool("comte8").with_tokens(20),
        dedicated([1, 4] * 5, 20, [(1, range(7)), (4, range(4, 10))]).at_load(1.1),
    ):
        figures = solve(pool)
        assert pool.load * (1 - figures.blocking) == pytest.approx(figures.occupancy, rel=1e-11)


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


def test_an_infinite_pool_is_no_worse_than_one_queue(solve):
    """Balancing never blocks more than the same servers with types of their own."""
    shared = solve(dedicated([1] * 4, 5, [(3.6, range(4))])).blocking
    assert shared < mm1k_blocking(0.9, 5)
