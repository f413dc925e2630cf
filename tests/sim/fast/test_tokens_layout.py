"""A pool as arrays: rows, groups of classes that share servers, and balanced fair rates."""

from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillover.model.errors import InputError
from spillover.model.pool import Pool, PoolClass, PoolServer, PoolType


@pytest.fixture(scope="module")
def layout(numba):
    from spillover.sim.fast.tokens import layout as tokens_layout

    return tokens_layout


def pool_of(rates, classes):
    """Servers 0, 1, ... of these rates; classes as (servers, tokens), all for one type."""
    entries = tuple(
        PoolClass(id=f"c{i}", servers=tuple(f"s{s}" for s in servers), tokens=tokens)
        for i, (servers, tokens) in enumerate(classes)
    )
    return Pool(
        name="made",
        servers=tuple(PoolServer(id=f"s{s}", rate=rate) for s, rate in enumerate(rates)),
        classes=entries,
        types=(PoolType(id="t", rate=1.0, classes=tuple(each.id for each in entries)),),
    )


def balance(rates, classes):
    """Phi by equation (2), in fractions, for all states of the whole pool."""
    phi = {}
    for x in product(*(range(tokens + 1) for _, tokens in classes)):
        active = [i for i, count in enumerate(x) if count]
        servers = {s for i in active for s in classes[i][0]}
        capacity = sum((Fraction(rates[s]) for s in servers), Fraction(0))
        before = sum((phi[less(x, i)] for i in active), Fraction(0))
        phi[x] = before / capacity if active else Fraction(1)
    return phi


def less(x, i):
    return (*x[:i], x[i] - 1, *x[i + 1 :])


@st.composite
def small_pools(draw):
    rates = draw(st.lists(st.integers(1, 9), min_size=1, max_size=4))
    servers = st.lists(st.integers(0, len(rates) - 1), min_size=1, unique=True).map(tuple)
    classes = draw(st.lists(st.tuples(servers, st.integers(1, 3)), min_size=1, max_size=4))
    return [float(rate) for rate in rates], classes


@given(made=small_pools())
def test_rates_are_balanced_fair(layout, made):
    """phi_i(x) = Phi(x - e_i) / Phi(x) in every state of any small pool; together they use all of
    the capacity that can serve somebody."""
    rates, classes = made
    pool = pool_of(rates, classes)
    sharing = layout.sharing_of(layout.graph_of(pool))
    phi = balance(rates, classes)
    for x in phi:
        served = 0.0
        for i, count in enumerate(x):
            g = sharing.group[i]
            members = sharing.members[sharing.member_start[g] : sharing.member_start[g + 1]]
            place = sum(x[j] * sharing.stride[j] for j in members)
            rate = sharing.rates[
                sharing.start[g] + place * sharing.width[g] + sharing.column[i]
            ]  # fmt: skip
            expected = phi[less(x, i)] / phi[x] if count else 0
            assert rate == pytest.approx(float(expected), rel=1e-12)
            served += rate
        servers = {s for i, count in enumerate(x) if count for s in classes[i][0]}
        assert served == pytest.approx(sum(rates[s] for s in servers), rel=1e-12)


def test_many_tokens_do_not_leave_the_range_of_floats(layout):
    """Phi would be 1e-600 here; the rates are those of one server with two classes of equal jobs:
    shares of its capacity in proportion to the numbers of jobs."""
    pool = pool_of([1e3], [((0,), 100), ((0,), 100)])
    sharing = layout.sharing_of(layout.graph_of(pool))
    rates = sharing.rates.reshape(101, 101, 2)  # by the second class's jobs, then the first's
    assert rates[100, 100].tolist() == pytest.approx([500.0, 500.0])
    assert rates[25, 75].tolist() == pytest.approx([750.0, 250.0])


@pytest.mark.parametrize(
    ("rates", "classes", "complaint"),
    [
        ([1.0], [((0,), 100_001)], "classes: expected at most 100000 tokens in all"),
        ([1.0], [((0,), 2**53)], "classes: expected at most 100000 tokens in all"),
        ([1.0, 1.0], [((0, 1), 2_000)] * 2, "classes: expected at most 4000000 rates to table"),
        ([1.0] * 70, [((s, s + 1), 1) for s in range(69)], "give fewer tokens, or take the disc"),
        ([1e-200, 1e300], [((0,), 2), ((0, 1), 2)], "servers: expected rates of one server at"),
    ],
)
def test_pools_beyond_the_tables_are_refused(layout, rates, classes, complaint):
    """In one line, before anything is allocated."""
    pool = pool_of(rates, classes)
    with pytest.raises(InputError, match=complaint.replace("(", ".")):
        layout.sharing_of(layout.graph_of(pool))
