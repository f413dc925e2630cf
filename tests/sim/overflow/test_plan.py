"""The planner finds the fewest servers: against trying them all, and on real simulations."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillover.model.errors import InputError
from spillover.model.ids import ClusterId
from spillover.model.schedule import Arrival
from spillover.model.topology import Cluster, Link, Topology
from spillover.sim.overflow.plan import Planner


def topology_of(*ids):
    clusters = tuple(Cluster(id=ClusterId(c), servers=1, service_ms=100) for c in ids)
    links = tuple(Link(between=(ClusterId(a), ClusterId(b))) for a, b in itertools.pairwise(ids))
    return Topology(name="t", clusters=clusters, links=links)


def crowd(loads):
    """So many requests at once at each cluster, one after the other."""
    return [
        Arrival(float(k), cluster)
        for k, (cluster, load) in enumerate(loads.items())
        for _ in range(load)
    ]


def pooled(needs, together):
    """A judge: alone a cluster needs its own number, networked all need a sum."""

    def judge(servers, networked):
        if networked:
            return [1.0 if sum(servers) >= together else 9.0] * len(servers)
        return [1.0 if m >= need else 9.0 for m, need in zip(servers, needs, strict=True)]

    return judge


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.data())
def test_the_fewest_are_found(needs, data):
    """Where more servers never harm, no smaller plan keeps the limit, alone or networked."""
    together = data.draw(st.integers(1, sum(needs) + 3))
    ids = [ClusterId(c) for c in "abcd"[: len(needs)]]
    schedule = crowd(dict(zip(ids, [9] * len(ids), strict=True)))
    plan = Planner(topology_of(*ids), schedule, 5.0, pooled(needs, together)).plan()
    assert plan.isolated == tuple(needs)
    assert sum(plan.networked) == max(together, len(needs))
    assert all(m >= 1 for m in plan.networked)
    assert plan.saved_share == pytest.approx(1 - sum(plan.networked) / sum(needs))


def test_a_limit_below_the_work_itself_is_told():
    """No number of servers makes a request shorter than its service."""
    schedule = crowd({ClusterId("a"): 3})
    with pytest.raises(InputError, match=r"--p99-ms: expected at least 9: .* cluster a .* got 5"):
        Planner(topology_of("a"), schedule, 5.0, lambda m, _: [9.0] * len(m)).plan()


def test_requests_that_are_never_done_count_as_infinitely_long():
    schedule = crowd({ClusterId("a"): 3})

    def judge(servers, networked):
        return [math.inf if servers[0] < 3 else 1.0]

    assert Planner(topology_of("a"), schedule, 5.0, judge).plan().networked == (3,)


def test_no_more_servers_are_tried_than_can_ever_be_busy():
    tried = []

    def judge(servers, networked):
        tried.append(servers)
        return [1.0] * len(servers)

    schedule = crowd({ClusterId("a"): 4, ClusterId("b"): 2})
    plan = Planner(topology_of("a", "b"), schedule, 5.0, judge).plan()
    assert tried[0] == (4, 2)
    assert plan.isolated == plan.networked == (1, 1)


def test_a_site_without_requests_has_no_p99():
    schedule = crowd({ClusterId("a"): 2})
    plan = Planner(topology_of("a", "b"), schedule, 5.0, lambda _, __: [1.0, 0.0]).plan()
    assert plan.isolated_p99_ms == plan.networked_p99_ms == [1.0, None]
