"""The token simulation against exact values, and what is insensitive to the law of job sizes.

Where many estimates are compared with exact values at once, some lie outside their 95 % interval
even if all is right. Each comparison below allows 2.2 half-widths, 4.5 standard deviations as the
batches estimate them, which some in 100 000 exceed (Student's t, 31 degrees of freedom); seeds are
fixed, so that nothing flickers.
"""

import pytest

from spillover.inputs.pool_file import load_pool
from spillover.model.errors import InputError
from spillover.model.pool import Pool, PoolClass, PoolServer, PoolType

WIDE = 2.2

pytestmark = [pytest.mark.usefixtures("numba"), pytest.mark.slow]


@pytest.fixture(scope="module")
def tokens(numba):
    from spillover.sim import tokens

    return tokens


@pytest.fixture(scope="module")
def exact(numba):
    from spillover.sim.theory.tokens.exact import exact_tokens

    return exact_tokens


def pool_of(servers, classes, types):
    """Servers as {id: rate}, classes as {id: (servers, tokens)}, types as {id: (rate, classes)}."""
    return Pool(
        name="made",
        servers=tuple(PoolServer(id=name, rate=rate) for name, rate in servers.items()),
        classes=tuple(
            PoolClass(id=name, servers=tuple(row), tokens=tokens)
            for name, (row, tokens) in classes.items()
        ),
        types=tuple(
            PoolType(id=name, rate=rate, classes=tuple(row)) for name, (rate, row) in types.items()
        ),
    )


def pooled():
    """Neighbors of three classes share servers; two types, one class for both."""
    return pool_of(
        {"1": 1.0, "2": 2.0, "3": 1.0, "4": 3.0},
        {"a": ("12", 4), "b": ("23", 4), "c": ("34", 4)},
        {"x": (3.0, "ab"), "y": (4.0, "bc")},
    )


# Notes, b.4: servers, classes, types; blocking by type and idle probabilities by server.
def misses(run, figures):
    """Every estimate's distance from the exact value, in half-widths."""
    pairs = [
        (run.blocking, figures.blocking),
        (run.occupancy, figures.occupancy),
        *((each, figures.blocking_per_type[name]) for name, each in run.blocking_per_type.items()),
        *((each, figures.idle[name]) for name, each in run.idle.items()),
    ]
    return [abs(each.value - expected) / each.ci95 for each, expected in pairs]


@pytest.mark.parametrize(
    ("load", "policy", "discipline", "interruptions"),
    [
        (0.6, "dynamic", "ps", 0.0),
        (1.6, "dynamic", "fcfs", 4.0),
        (1.0, "static-best", "fcfs", 0.0),
        (1.6, "static-uniform", "ps", 0.0),
    ],
)
def test_exponential_sizes_give_the_exact_values(
    tokens, exact, load, policy, discipline, interruptions
):
    """Loads, policies and disciplines on pooled servers. FCFS, interrupted or not, has
    the stationary law of balanced fairness (sections II-C and III-C)."""
    pool = pooled().at_load(load)
    run = tokens.run_tokens(
        pool, 100_000, 3, policy, discipline, interruptions=interruptions
    )  # fmt: skip
    assert max(misses(run, exact(pool, policy))) < WIDE


@pytest.mark.parametrize(
    ("name", "load", "policy"), [("comte8", 1.0, "dynamic"), ("comte11", 1.8, "static-best")]
)
def test_the_papers_pools(tokens, exact, name, load, policy):
    """Figures 8 and 11, processor sharing."""
    pool = load_pool(name).at_load(load)
    run = tokens.run_tokens(pool, 100_000, 1, policy)
    assert max(misses(run, exact(pool, policy))) < WIDE
    assert run.load == pytest.approx(load)


def test_work_is_conserved(tokens):
    """Equation (11): rho (1 - beta) = eta, up to what is in the system at the end."""
    for discipline, sizes in (("ps", "hyper"), ("fcfs", "det"), ("fcfs", "hyper")):
        run = tokens.run_tokens(pooled().at_load(1.3), 100_000, 8, "dynamic", discipline, sizes)
        assert run.load * (1 - run.blocking.value) == pytest.approx(run.occupancy.value, rel=0.01)


def test_the_same_seed_gives_the_same_run(tokens):
    """And another seed another one; progress comes up to 1 and changes nothing."""
    seen = []
    first, again, other = (
        tokens.run_tokens(pooled(), 5_000, seed, on_progress=watch)
        for seed, watch in ((1, None), (1, seen.append), (2, None))
    )
    assert first.blocking_per_type == again.blocking_per_type
    assert first.idle == again.idle
    assert first.blocking_per_type != other.blocking_per_type
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


def test_short_runs_have_no_interval(tokens):
    """Ten jobs say little, and the object says so; a type that never came has no share."""
    pool = pool_of(
        {"1": 1.0, "unused": 1.0},
        {"a": ("1", 1)},
        {"x": (1.0, "a"), "rare": (1e-9, "a")},
    )
    short = tokens.run_tokens(pool, 10, 1).as_dict()
    assert short["ci95"]["blocking"] == {"average": None, "per_type": {"x": None, "rare": None}}
    assert short["blocking"]["per_type"]["rare"] is None
    assert short["idle"]["unused"] == 1.0
    long = tokens.run_tokens(pool.at_load(1e-6), 5_000, 1)
    assert long.blocking.value == 0.0
    assert long.blocking.ci95 == pytest.approx(3 / 5_000)


@pytest.mark.parametrize(
    ("jobs", "options", "complaint"),
    [
        (0, {}, "--jobs: expected at least 1, got 0"),
        (10, {"interruptions": -1.0}, "--interruptions: expected 0 to 10000, got -1"),
        (10, {"interruptions": 1e9}, "--interruptions: expected 0 to 10000, got 1e"),
        (10, {"policy": "ideal"}, "--policy: expected dynamic or one of static-best, "),
        (10, {"discipline": "lifo"}, "--discipline: expected ps or fcfs, got 'lifo'"),
        (10, {"sizes": "pareto"}, "--sizes: expected one of exp, hyper, "),
    ],
)
def test_bad_input(tokens, jobs, options, complaint):
    """One line that names the option."""
    with pytest.raises(InputError) as refused:
        tokens.run_tokens(pooled(), jobs, 1, **options)
    assert str(refused.value).startswith(complaint)
