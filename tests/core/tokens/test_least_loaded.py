"""The order `least-loaded`: what it takes, that it keeps count, and that it blocks less than the
shortest queue does (decision 0038)."""

from __future__ import annotations

import math
from itertools import accumulate
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillover.core.tokens.bucket import Bucket, Loads
from spillover.inputs.builtin_pools import BUILTIN_POOLS
from spillover.model.token_orders import LEAST_LOADED
from spillover.policy.tokens import BLOCKED
from support.unlike_pools import DrivenPool, pool_of


def bucket_of(rates, limits, joins):
    """Returns a bucket with one class for each server."""
    classes = [(f"c{kind}", limit) for kind, limit in enumerate(limits)]
    return Bucket(classes, 0.0, Loads([[rate] for rate in rates], joins))


def test_a_fast_server_has_more_jobs_by_the_root_of_its_speed():
    """Of idle ones the fastest is first; rates 4 and 1 stand as 2 to 1."""
    bucket = bucket_of([1.0, 4.0], [6, 6], [(0, 1)])
    taken = [bucket.choose((0, 1)) for ref in range(6) if bucket.seize(bucket.choose((0, 1)), ref)]
    assert taken == [0, 1, 1, 0, 1, 1], "what comes next, after each"


def test_what_others_are_short_of_is_taken_last():
    """X may join A and B, Y B and C. With C full, B is all that Y has left."""
    bucket = bucket_of([1.0, 1.0, 1.0], [4, 4, 4], [(0, 1), (1, 2)])
    x, y = (0, 1), (1, 2)
    for ref in range(4):
        bucket.seize(2, ref)
    for ref in range(4, 7):
        bucket.seize(1, ref)
    assert bucket.choose(y) == 1
    bucket.seize(0, 7)
    assert bucket.choose(x) == 0
    bucket.seize(0, 8)
    bucket.seize(0, 9)
    bucket.check()
    assert bucket.choose(x) == 0, "as many jobs as B, and y can do nothing with it"


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


def blocked(pool, events, random):
    """Returns the batches' shares of jobs that the order blocks, and that the shortest queue does,
    ties at random: jobs are memoryless, so that both may meet the same events."""
    number = {each.id: kind for kind, each in enumerate(pool.classes)}
    joins = [tuple(number[id_] for id_ in kind.classes) for kind in pool.types]
    rates, limits = [each.rate for each in pool.servers], [each.tokens for each in pool.classes]
    bucket, holders = bucket_of(rates, limits, joins), [[] for _ in limits]
    jobs, arrivals = [0] * len(limits), len(joins)
    bounds = list(accumulate([*(kind.rate for kind in pool.types), *rates]))
    counts = [[0, 0, 0] for _ in range(40)]
    drawn = random.choices(range(len(bounds)), cum_weights=bounds, k=events)
    for ref, what in enumerate(drawn):
        if what >= arrivals:
            kind = what - arrivals
            jobs[kind] -= jobs[kind] > 0
            if holders[kind]:
                bucket.give_back(*holders[kind].pop(), True, 0.0)
            continue
        count = counts[ref * len(counts) // events]
        count[0] += 1
        if (chosen := bucket.choose(joins[what])) == BLOCKED:
            count[1] += 1
        else:
            holders[chosen].append((bucket.seize(chosen, ref), ref))
        room = [kind for kind in joins[what] if jobs[kind] < limits[kind]]
        if not room:
            count[2] += 1
        else:
            least = min(jobs[kind] for kind in room)
            jobs[random.choice([kind for kind in room if jobs[kind] == least])] += 1
    return [(ours / came, shortest / came) for came, ours, shortest in counts[2:]]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "load"), [("comte8", 1.0), ("comte11", 0.8)])
def test_it_blocks_less_than_the_shortest_queue(name, load):
    """By three standard errors, on the same events."""
    shares = blocked(BUILTIN_POOLS[name]().at_load(load), 250_000, Random(5))
    less = [shortest - ours for ours, shortest in shares]
    mean = sum(less) / len(less)
    spread = sum((each - mean) ** 2 for each in less) / (len(less) - 1)
    assert mean > 3.0 * math.sqrt(spread / len(less))
