"""What the bare pool blocks of Poisson arrivals, beside the exact values: sizes exponential, times
virtual, processor sharing as `core.tokens.sharing` does it."""

from __future__ import annotations

import math
from random import Random

import pytest

from spillover.core.tokens.servers import TokenServers
from spillover.core.tokens.sharing import SharedServer
from spillover.model.pool import Pool, PoolClass, PoolServer, PoolType
from spillover.model.type_groups import TypeGroups
from spillover.sim.theory.tokens.exact import exact_tokens
from support.unlike_pools import Visit, pool_of

JOBS = 40_000
BATCHES = 40

CASES = {
    "one server": ({"A": 1}, {"A": ("A", 3)}, {"x": (1.0, "A")}),
    "Erlang B": ({"A": 1, "B": 1}, {"A": ("A", 1), "B": ("B", 1)}, {"x": (1.0, "A B")}),
    "big and small": ({"A": 1, "B": 4}, {"A": ("A", 6), "B": ("B", 6)}, {"x": (5.0, "A B")}),
    "nested": (
        {"A": 1, "B": 1},
        {"A": ("A", 3), "B": ("B", 3)},
        {"a": (0.6, "A"), "b": (0.9, "A B")},
    ),
    "chain": (
        {"A": 1, "B": 1, "C": 1},
        {"A": ("A", 2), "B": ("B", 2), "C": ("C", 2)},
        {"x": (1.2, "A B"), "y": (1.2, "B C")},
    ),
}


def exact(servers, classes, types):
    """Returns what theory says each type is blocked."""
    pool = Pool(
        name="case",
        servers=tuple(PoolServer(id=each, rate=rate) for each, rate in servers.items()),
        classes=tuple(
            PoolClass(id=each, servers=tuple(of.split()), tokens=tokens)
            for each, (of, tokens) in classes.items()
        ),
        types=tuple(
            PoolType(id=each, rate=rate, classes=tuple(of.split()))
            for each, (rate, of) in types.items()
        ),
    )
    return exact_tokens(pool).blocking_per_type


def blocked_shares(servers, classes, types, random):
    """Returns by type the share that was blocked in each batch of jobs."""
    pool = pool_of(servers, classes, {each: of for each, (_, of) in types.items()})
    tokens = TokenServers(pool, TypeGroups.of({"a": pool}), "a", 1.0, 0.0, 0.0)
    clocks = [SharedServer(rate) for rate in servers.values()]
    rates = {each: rate for each, (rate, _) in types.items()}
    per_batch = JOBS // BATCHES
    counts = {each: [[0, 0] for _ in range(BATCHES)] for each in types}
    now_s = 0.0
    for ref in range(-per_batch, JOBS):
        now_s += random.expovariate(sum(rates.values()))
        while True:
            ends = [(*end, clock) for clock in clocks if (end := clock.next_end()) is not None]
            at_s, ended, clock = min(ends, key=lambda end: end[0], default=(math.inf, 0, None))
            if at_s > now_s:
                break
            tokens.now_s = at_s
            clock.remove(ended, at_s)
            tokens.vacate(ended)
        tokens.now_s = now_s
        (type_,) = random.choices(list(rates), list(rates.values()))
        visit = Visit(ref, type_)
        starts = tokens.may_start(visit)
        if starts:
            clocks[tokens.occupy(visit)].add(ref, now_s, random.expovariate(1.0))
        if ref >= 0:
            count = counts[type_][ref // per_batch]
            count[0] += not starts
            count[1] += 1
    tokens.check()
    return {each: [blocked / of for blocked, of in batches] for each, batches in counts.items()}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_it_blocks_what_theory_says(case):
    shares = blocked_shares(*CASES[case], Random(17))
    for type_, expected in exact(*CASES[case]).items():
        mean = sum(shares[type_]) / BATCHES
        spread = sum((share - mean) ** 2 for share in shares[type_]) / (BATCHES - 1)
        error = math.sqrt(spread / BATCHES)
        assert 0.0 < error < 0.02
        assert mean == pytest.approx(expected, abs=3.0 * error)


NOTES = {
    "one server": {"x": 0.25},
    "Erlang B": {"x": 0.2},
    "big and small": {"x": 0.114517},
    "nested": {"a": 0.214860, "b": 0.045546},
    "chain": {"x": 0.156569, "y": 0.156569},
}


@pytest.mark.parametrize("case", CASES)
def test_theory_says_what_the_notes_do(case):
    assert exact(*CASES[case]) == pytest.approx(NOTES[case], abs=1e-6)
