"""A simulated cluster with unlike servers blocks as the theory of tokens says, by type.

What is compared is the services' own pool, machine and server clocks, with the exact values of
Comte's pools (`sim.theory.tokens`) and with the compiled simulation of them (`sim.tokens`). Each
comparison allows 3 standard errors, by batch means; seeds are fixed.
"""

import math
from dataclasses import replace
from random import Random

import pytest

from spillover.inputs.pool_file import load_pool
from spillover.inputs.topology_file import load_topology
from spillover.model.schedule import Arrival
from spillover.sim.overflow.run import run_overflow
from spillover.sim.theory.tokens.exact import exact_tokens

BATCHES = 32
WIDE = 3.0
LAWS = {"exp": lambda random: random.expovariate(1.0), "det": lambda _: 1.0}


def blocked_by_type(name, load, jobs, *, discipline="ps", sizes="exp", seed=1):
    """By type: the share of jobs that are blocked, in each batch, and how many jobs there were. A
    tenth as many come first and are not counted."""
    pool, law = load_pool(name).at_load(load), LAWS[sizes]
    topology = load_topology(name)
    (cluster,) = topology.clusters
    topology = replace(topology, clusters=(replace(cluster, discipline=discipline),))
    random, now_s = Random(f"{seed}/{name}/{load}"), 0.0
    rates = [kind.rate for kind in pool.types]
    schedule = []
    for _ in range(jobs + jobs // 10):
        now_s += random.expovariate(sum(rates))
        (kind,) = random.choices(pool.types, rates)
        schedule.append(Arrival(now_s, cluster.id, law(random) * 1e3, kind.id))
    answered = set()
    run = run_overflow(topology, schedule, seed, on_answer=lambda k, _: answered.add(k))
    told = run.as_dict()["per_type"]
    assert sum(told[kind.id]["outcomes"].get("refused", 0) for kind in pool.types) == len(
        schedule
    ) - len(answered)
    found = {kind.id: ([0.0] * BATCHES, [0] * BATCHES) for kind in pool.types}
    for number in range(jobs // 10, len(schedule)):
        blocked, came = found[schedule[number].type]
        batch = (number - jobs // 10) * BATCHES // jobs
        came[batch] += 1
        blocked[batch] += number not in answered
    return found


def mean_and_error(blocked, came, expected):
    """The share and its standard error, which is at least that of independent trials."""
    total = sum(came)
    share = sum(blocked) / total
    off = [one - share * count for one, count in zip(blocked, came, strict=True)]
    error = math.sqrt(BATCHES / (BATCHES - 1) * sum(each**2 for each in off)) / total
    return share, max(error, math.sqrt(expected * (1.0 - expected) / total))


def compare(name, load, jobs, **how):
    exact = exact_tokens(load_pool(name).at_load(load)).blocking_per_type
    for kind, (blocked, came) in blocked_by_type(name, load, jobs, **how).items():
        share, error = mean_and_error(blocked, came, exact[kind])
        assert abs(share - exact[kind]) <= WIDE * error, (kind, share, exact[kind], error)
        if exact[kind] > 0.01:
            assert error < 0.3 * exact[kind], "too wide to tell anything"


@pytest.mark.slow
def test_a_pool_blocks_as_the_theory_says():
    """Figure 8's pool, overloaded."""
    compare("comte8", 1.2, 6000)
