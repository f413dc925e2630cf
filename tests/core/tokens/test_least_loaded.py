"""The order `least-loaded`: what it takes, that it keeps count, and that it blocks less than the
shortest queue does (decision 0038)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillover.core.tokens.bucket import Bucket, Loads
from spillover.model.token_orders import LEAST_LOADED
from spillover.policy.tokens import BLOCKED
from support.unlike_pools import DrivenPool, pool_of


def bucket_of(rates, limits, joins):
    """Returns a bucket with one class for each server."""
    classes = [(f"c{kind}", limit) for kind, limit in enumerate(limits)]
    return Bucket(classes, 0.0, Loads([[rate] for rate in rates], joins))


STEPS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 99)), max_size=80)
LIMITS = st.lists(st.integers(1, 4), min_size=1, max_size=4)


@given(LIMITS, STEPS, st.randoms(use_true_random=False))
def test_it_takes_the_least_rank_of_those_that_are_there(limits, steps, random):
    """Whatever comes and goes, limits and servers too: never BLOCKED while a token is there."""
    classes = range(len(limits))
    joins = [tuple(sorted(random.sample(classes, random.randint(1, len(limits))))) for _ in "xyz"]
    bucket = bucket_of([random.choice((1.0, 4.0)) for _ in classes], limits, joins)
    held, closed = [], set()
    for ref, (what, which) in enumerate(steps):
        kind = which % len(limits)
        if what < 5:
            of = joins[which % 3]
            chosen = bucket.choose(of)
            there = [each for each in of if bucket.available_now(each)]
            assert chosen == min(there, key=bucket.ranks.__getitem__, default=BLOCKED)
            if there:
                held.append((bucket.seize(chosen, ref), ref))
        elif what < 8 and held:
            bucket.give_back(*held.pop(which % len(held)), which % 4 > 0, float(ref))
        elif what == 8:
            bucket.set_limit(kind, 1 + which % 5, float(ref))
        elif kind in closed:
            closed.remove(kind)
            bucket.open(kind, float(ref))
        else:
            closed.add(kind)
            bucket.close(kind)
        bucket.check()


def test_a_grant_says_why():
    servers = {"slow": 1, "fast": 4}
    classes = {"A": ("slow", 2), "B": ("fast", 2)}
    pool = DrivenPool(pool_of(servers, classes, {"x": "A B"}, order=LEAST_LOADED))
    assert pool.at(1.0).arrive(1, "x") == "fast"
    granted = pool.servers.granted(1).as_dict()
    assert granted["class"] == "B"
    assert granted["rank"] == pytest.approx(0.01 / (2 / 1.5), abs=1e-4)
    assert granted["others"] == [{"class": "A", "rank": pytest.approx(0.015)}]
