"""Fixed odds, and the ideal: against the network as a chain, linear programming by hand, and the
paper's words."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillover.inputs.pool_file import load_pool
from spillover.model.errors import InputError
from spillover.model.pool import Pool, PoolClass, PoolServer, PoolType
from spillover.sim.theory.tokens.bottlenecks import bottlenecks, even_split
from support.few import examples
from support.mm1k import mm1k_blocking

pytestmark = pytest.mark.slow

quarters = st.integers(1, 16).map(lambda count: count / 4)


@pytest.fixture(scope="module")
def theory(numba):
    """The module of the policies; imported late, since it needs numpy."""
    from spillover.sim.theory.tokens import exact as tokens

    return tokens


@st.composite
def pools(draw, tokens_max=2, count_max=4, extra_max=2):
    """Small pools of any shape in which every server has a class, and some more are shared."""
    count = draw(st.integers(1, count_max))
    rates = draw(st.lists(quarters, min_size=count, max_size=count))
    extra = draw(st.lists(st.sets(st.integers(0, count - 1), min_size=1), max_size=extra_max))
    members = [*({k} for k in range(count)), *extra]
    kinds = st.tuples(quarters, st.sets(st.integers(0, len(members) - 1), min_size=1))
    types = draw(st.lists(kinds, min_size=1, max_size=count_max))
    return Pool(
        name="test",
        servers=tuple(PoolServer(id=f"s{k}", rate=rate) for k, rate in enumerate(rates)),
        classes=tuple(
            PoolClass(
                id=f"c{k}",
                servers=tuple(f"s{s}" for s in sorted(own)),
                tokens=draw(st.integers(1, tokens_max)),
            )
            for k, own in enumerate(members)
        ),
        types=tuple(
            PoolType(id=f"t{k}", rate=rate, classes=tuple(f"c{c}" for c in sorted(joined)))
            for k, (rate, joined) in enumerate(types)
        ),
    )


def chain_of(pool, arrivals):
    """P(class full) and P(server idle) of jobs in order of arrival, first come first served."""
    import numpy as np

    limits = {each.id: each.tokens for each in pool.classes}
    servers = {each.id: each.servers for each in pool.classes}
    number, rows, waiting = {(): 0}, [], [()]
    while waiting:
        jobs = waiting.pop()
        steps = [
            (rate, (*jobs, name))
            for name, rate in arrivals.items()
            if rate and jobs.count(name) < limits[name]
        ]
        taken = set()
        for place, name in enumerate(jobs):
            own = [s for s in pool.servers if s.id in servers[name] and s.id not in taken]
            taken.update(each.id for each in own)
            steps.append((sum(each.rate for each in own), jobs[:place] + jobs[place + 1 :]))
        for rate, after in steps:
            if after not in number:
                number[after] = len(number)
                waiting.append(after)
            rows.append((number[jobs], number[after], rate))
    flows = np.zeros((len(number), len(number)))
    for before, after, rate in rows:
        flows[after, before] += rate
        flows[before, before] -= rate
    flows[0] = 1.0
    shares = dict(zip(number, np.linalg.solve(flows, np.eye(len(number))[0]), strict=True))
    full = {
        name: sum(p for jobs, p in shares.items() if jobs.count(name) == limit)
        for name, limit in limits.items()
    }
    idle = {
        server.id: sum(
            p for jobs, p in shares.items() if not any(server.id in servers[name] for name in jobs)
        )
        for server in pool.servers
    }
    return full, idle


@settings(max_examples=examples(45))
@given(
    pool=pools(count_max=2, extra_max=1),
    policy=st.sampled_from(["static-best", "static-uniform"]),
)
def test_the_open_network_as_a_chain(theory, pool, policy):
    """Equation (3) against first come first served, for which it holds as well. Of three classes:
    four have 27 times as many orders of jobs as three, and as many equations."""
    from spillover.sim.theory.tokens.static import static_split

    split = static_split(pool, policy)
    arrivals = dict.fromkeys((each.id for each in pool.classes), 0.0)
    for kind in pool.types:
        for name, share in split[kind.id].items():
            arrivals[name] += kind.rate * share
    full, idle = chain_of(pool, arrivals)
    figures = theory.exact_tokens(pool, policy)
    blocked = {k: sum(p * full[name] for name, p in own.items()) for k, own in split.items()}
    assert figures.blocking_per_type == pytest.approx(blocked, abs=1e-10)
    assert figures.idle == pytest.approx(idle, abs=1e-10)


@given(pool=pools())
def test_the_best_odds_load_servers_as_evenly_as_can_be(pool):
    """Every type goes to where the load is least among what it can reach; bottlenecks are even."""
    split = even_split(pool)
    blocks = bottlenecks(pool)
    load_of = {s: block.rate / block.capacity for block in blocks for s in block.servers}
    servers_of = {each.id: each.servers for each in pool.classes}
    for kind in pool.types:
        assert math.fsum(split[kind.id].values()) == pytest.approx(1, rel=1e-12)
        reach = {s for name in kind.classes for s in servers_of[name]}
        least = min(load_of[s] for s in reach)
        for name, share in split[kind.id].items():
            assert share >= 0
            if share > 1e-12:
                assert min(load_of[s] for s in servers_of[name]) == pytest.approx(least, rel=1e-6)
    assert sum(block.rate for block in blocks) == pytest.approx(sum(k.rate for k in pool.types))


def test_the_odds_of_the_paper():
    """Figure 8: by capacity. Figure 11: type 1 to the first two alone, type 2 evenly."""
    split = even_split(load_pool("comte8"))["t1"]
    assert list(split.values()) == pytest.approx([1 / 25] * 5 + [4 / 25] * 5, rel=1e-12)
    split = even_split(load_pool("comte11").at_load(1.7))
    assert list(split["t1"].values()) == pytest.approx([0.5, 0.5, 0, 0], abs=1e-12)
    assert list(split["t2"].values()) == pytest.approx([0.25] * 4, rel=1e-12)


@pytest.mark.parametrize("rho", [0.1, 1.0, 2.5])
def test_figures_9_and_12(theory, rho):
    """Closed forms for fixed odds and for ideal, at every load."""
    slow_fast, two_types = (load_pool(name).at_load(rho) for name in ("comte8", "comte11"))

    def blocking(pool, policy):
        return theory.exact_tokens(pool, policy).blocking

    assert blocking(slow_fast, "static-best") == pytest.approx(mm1k_blocking(rho, 6), rel=1e-11)
    uniform = (mm1k_blocking(2.5 * rho, 6) + mm1k_blocking(2.5 * rho / 4, 6)) / 2
    assert blocking(slow_fast, "static-uniform") == pytest.approx(uniform, rel=1e-11)
    assert blocking(slow_fast, "ideal") == pytest.approx(max(0, 1 - 1 / rho), abs=1e-15)
    nu = 6 * rho / 5
    best = (mm1k_blocking(nu / 2, 6) + 4 * mm1k_blocking(nu, 6)) / 5
    assert blocking(two_types, "static-best") == pytest.approx(best, rel=1e-11)
    least = max(0, 0.8 * (1 - 5 / 6 / rho), 1 - 1 / rho)
    assert blocking(two_types, "ideal") == pytest.approx(least, abs=1e-14)


def test_pools_too_large(theory):
    """Classes that share servers have states together; entangled types have many subsets."""
    ring = tuple(
        PoolClass(id=f"c{k}", servers=(f"s{k}", f"s{(k + 1) % 20}"), tokens=6) for k in range(20)
    )
    servers = tuple(PoolServer(id=f"s{k}", rate=1.0) for k in range(20))
    types = tuple(PoolType(id=f"t{k}", rate=1.0, classes=(f"c{k}",)) for k in range(20))
    pool = Pool(name="ring", servers=servers, classes=ring, types=types)
    with pytest.raises(InputError, match="at most 4000000 states together, got 7979"):
        theory.exact_tokens(pool, "static-uniform")
    for policy in ("static-best", "ideal"):
        with pytest.raises(InputError, match="at most 14 types with unlike servers, got 20"):
            theory.exact_tokens(pool, policy)
