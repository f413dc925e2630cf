"""What `spillover plan` goes by: the simulated 99th percentile of each site, without limits that
would hide it."""

import math

import pytest

from spillover.cli.plan import _judge
from spillover.model.ids import ClusterId
from spillover.model.schedule import Arrival
from spillover.model.topology import Cluster, Link, Topology

A, B = ClusterId("a"), ClusterId("b")
SITES = Topology(
    name="two",
    clusters=tuple(
        Cluster(id=one, servers=1, service_ms=10.0, delivery_ms=0.0, queue_limit=2)
        for one in (A, B)
    ),
    links=(Link(between=(A, B), delay_ms=1.0),),
    default_deadline_ms=50.0,
    policy="paper",
)
pytestmark = pytest.mark.usefixtures("numba")

AT_ONCE = [Arrival(0.0, A, service_ms=10.0) for _ in range(50)]


@pytest.mark.slow
def test_nobody_is_refused_or_given_up_where_servers_are_counted():
    """Though more wait than a site lets in, and for longer than anybody asks for."""
    alone = _judge(SITES, AT_ONCE, 1)
    assert alone((1, 1), False) == pytest.approx([500.0, 0.0])
    assert alone((5, 1), False) == pytest.approx([100.0, 0.0])


def test_networked_sites_share():
    together = _judge(SITES, AT_ONCE, 1)((5, 5), True)
    assert together[1] == 0.0
    assert together[0] < 100.0
    assert math.isfinite(together[0])


def test_the_seed_is_of_the_draws_of_the_rule():
    """Where it moves work, and how much; the same one gives the same."""
    burst = [Arrival(0.3 + 0.004 * n, A, service_ms=10.0) for n in range(200)]
    found = [_judge(SITES, burst, seed)((1, 2), True) for seed in (1, 2, 3, 4, 5, 1)]
    assert found[0] == found[-1]
    assert len(set(map(tuple, found))) > 1
