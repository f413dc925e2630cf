"""Token limits: equal ones against the known figures, the search against all limits there are."""

from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillover.inputs.pool_file import load_pool
from spillover.model.errors import InputError
from spillover.model.pool import Pool, PoolClass, PoolServer, PoolType
from support.few import examples
from support.mm1k import mm1k_blocking, mm1k_distribution

pytestmark = pytest.mark.slow

AT_MOST = 4


@pytest.fixture(scope="module")
def limits(numba):
    """The module under test; imported late, since it needs numpy."""
    from spillover.sim.theory.tokens import limits

    return limits


def pool_of(rates, types):
    """A class for each server; types as (rate, classes), all by number."""
    return Pool(
        name="test",
        servers=tuple(PoolServer(id=f"s{k}", rate=rate) for k, rate in enumerate(rates)),
        classes=tuple(
            PoolClass(id=f"c{k}", servers=(f"s{k}",), tokens=2) for k in range(len(rates))
        ),
        types=tuple(
            PoolType(id=f"t{k}", rate=rate, classes=tuple(f"c{c}" for c in joined))
            for k, (rate, joined) in enumerate(types)
        ),
    )


quarters = st.integers(1, 16).map(lambda count: count / 4)


@st.composite
def pools(draw):
    """Up to three servers of any rates, which types share in any way."""
    rates = draw(st.lists(quarters, min_size=1, max_size=3))
    some = st.sets(st.integers(0, len(rates) - 1), min_size=1).map(sorted)
    pool = pool_of(rates, draw(st.lists(st.tuples(quarters, some), min_size=1, max_size=3)))
    return pool.at_load(draw(st.sampled_from((0.5, 0.8, 1.0, 1.5))))


@pytest.mark.parametrize(
    ("tokens", "blocking"),
    [(1, 0.239482), (6, 0.037768)],
)
def test_the_curve_of_figure_10(limits, tokens, blocking):
    """The pool of figure 8 at its critical load: each is the first row that keeps its blocking."""
    goal = limits.Goal("blocking", blocking + 1e-6)
    plan = limits.plan_limits(load_pool("comte8").at_load(1), goal, at_most=6)
    assert set(plan.uniform.tokens.values()) == {tokens}
    row = plan.curve[tokens - 1]
    assert row.figures.blocking == pytest.approx(blocking, abs=6e-7)
    assert row.above_ideal == row.figures.blocking
    assert plan.given is not None
    assert plan.given.figures.blocking == pytest.approx(0.037768, abs=6e-7)


def test_more_tokens_block_less_and_take_longer(limits):
    """Row by row, at light and heavy load; blocking never goes below the best."""
    for name, load in (("comte8", 1.3), ("comte11", 0.8)):
        goal = limits.Goal("above_ideal", 1.0)
        rows = limits.plan_limits(load_pool(name).at_load(load), goal, at_most=6).curve
        assert len(rows) == 6
        for few, more in pairwise(rows):
            assert more.figures.blocking < few.figures.blocking
            assert more.above_ideal < few.above_ideal
            assert more.time_ms > few.time_ms
            assert more.slowdown > few.slowdown
        assert rows[0].slowdown == pytest.approx(1, rel=1e-9), "one job at a time is alone"
        assert rows[-1].above_ideal >= 0


@given(st.integers(1, 12), quarters, quarters)
def test_times_are_those_of_a_queue_with_limited_room(limits, tokens, arrivals, rate):
    """One server is M/M/1/K: mean number, and mean time of what is accepted, by Little's law."""
    judge = limits.Judge(pool_of([rate], [(arrivals, [0])]))
    found, law = judge((tokens,)), mm1k_distribution(arrivals / rate, tokens)
    jobs = sum(n * share for n, share in enumerate(law))
    accepted = arrivals * (1 - mm1k_blocking(arrivals / rate, tokens))
    assert found.jobs == pytest.approx(jobs, rel=1e-9)
    assert found.time_ms == pytest.approx(1000 * jobs / accepted, rel=1e-9)
    assert found.slowdown == pytest.approx(found.time_ms * rate / 1000, rel=1e-9)


GOALS = ("above_ideal", "time_ms", "slowdown")


@settings(max_examples=examples(40))
@given(pool=pools(), name=st.sampled_from(GOALS), data=st.data())
def test_the_search_finds_the_best_limits_of_all(limits, pool, name, data):
    """All limits of up to AT_MOST tokens, one by one, while it looks at a third of them at a
    time."""
    judge = limits.Judge(pool)
    every = [judge(each) for each in product(range(1, AT_MOST + 1), repeat=len(pool.classes))]
    most = data.draw(st.sampled_from(sorted(getattr(each, name) for each in every)))
    goal = limits.Goal(name, most)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "NEAR_MAX", len(every) // 3)
        try:
            plan = limits.plan_limits(pool, goal, AT_MOST)
        except InputError:
            alike = [each for each in every if len(set(each.tokens.values())) == 1]
            assert not any(goal.is_kept(each) for each in alike)
            return
    best = min(every, key=goal.rank)
    assert plan.is_searched
    assert goal.rank(plan.best) <= goal.rank(plan.uniform)
    assert goal.rank(plan.best)[:2] == pytest.approx(goal.rank(best)[:2], rel=1e-9)


def test_limits_by_class_are_better(limits):
    """Fast servers take more: fewer tokens for the same blocking, less blocking in the same
    time."""
    pool = pool_of([4, 1, 1], [(3, [0, 1]), (2, [0, 2])]).at_load(0.8)
    few = limits.plan_limits(pool, limits.Goal("blocking", 0.1), at_most=6)
    assert sum(few.best.tokens.values()) < sum(few.uniform.tokens.values())
    assert few.best.figures.blocking <= 0.1
    quick = limits.plan_limits(pool, limits.Goal("slowdown", 3), at_most=6)
    assert quick.best.figures.blocking < quick.uniform.figures.blocking
    assert quick.best.slowdown <= 3


def test_goals_out_of_reach(limits):
    """What could be kept is said; the best effort is one only where nothing was asked for."""
    pool = load_pool("comte8").at_load(1.2)
    for goal, complaint in (
        (("blocking", 0.1), "--blocking: expected more than 0.166667, which no number of tokens"),
        (("blocking", 0.167), "--blocking: expected at least 0.1905.*, the blocking with 3 tokens"),
        (("slowdown", 0.9), "--slowdown: expected at least 1, the mean with one token a class"),
        (("time_ms", 10), "--time-ms: expected at least 4.*, the mean with one token a class"),
    ):
        with pytest.raises(InputError, match=complaint):
            limits.plan_limits(pool, limits.Goal(*goal), at_most=3)
    plan = limits.plan_limits(pool, limits.Goal("above_ideal", 1e-9), at_most=3)
    assert set(plan.best.tokens.values()) == {3}
    assert plan.as_dict()["goal_kept"] is False


def test_the_work_is_bounded(limits, monkeypatch):
    """A search that takes too long says so, and a curve that does is refused."""
    pool = load_pool("comte11")
    monkeypatch.setattr(limits, "STEPS_MAX", 20 * limits.STEPS_LEAST)
    plan = limits.plan_limits(pool, limits.Goal("slowdown", 2.5), at_most=5)
    assert not plan.is_searched
    assert plan.best.slowdown <= 2.5
    monkeypatch.setattr(limits, "STEPS_MAX", 2 * limits.STEPS_LEAST)
    with pytest.raises(InputError, match="in all, got one of more; give a lower --at-most, or sim"):
        limits.plan_limits(pool, limits.Goal("blocking", 0.05), at_most=5)


def test_no_slowdown_where_a_job_has_several_servers(limits):
    """Alone it would run on all of them."""
    servers = tuple(PoolServer(id=name, rate=1) for name in "ab")
    pool = Pool(
        name="pooled",
        servers=servers,
        classes=(PoolClass(id="both", servers=("a", "b"), tokens=2),),
        types=(PoolType(id="t", rate=1, classes=("both",)),),
    )
    with pytest.raises(InputError, match="--slowdown: expected --time-ms instead: a class has"):
        limits.plan_limits(pool, limits.Goal("slowdown", 2), at_most=4)
    plan = limits.plan_limits(pool, limits.Goal("time_ms", 800), at_most=4)
    assert plan.as_dict()["classes_of_several_servers"] == ["both"]
    assert plan.best.slowdown is None
    assert plan.best.time_ms <= 800
