"""A cluster that all is to leave, in virtual time: its queue goes as fast as a neighbor can serve,
however rarely that one reports."""

from __future__ import annotations

import pytest

from spillover.core.overflow import events as ev
from spillover.model.request import Outcome
from spillover.model.topology import Cluster, Link, Topology
from spillover.sim.engine.world import World
from spillover.sim.overflow.federation import build_federation, request_of

WAITING = 200
SERVERS = 5
SERVICE_S = 0.02
BEGIN_S = 1.0
"""When all is to leave; the neighbor takes something from then on."""


@pytest.mark.parametrize("period_ms", [50.0, 250.0, 2000.0])
@pytest.mark.parametrize("leave", [ev.Drain, ev.ServersDown])
def test_a_queue_leaves_as_fast_as_the_neighbor_serves(leave, period_ms):
    """Two hundred wait at a when b, which took nothing before, takes requests again: its servers
    are busy all the time until the last of them."""
    world = World()
    topology = Topology(
        name="pair",
        policy="paper",
        gossip_period_ms=period_ms,
        clusters=(Cluster(id="a", servers=1), Cluster(id="b", servers=SERVERS)),
        links=(Link(between=("a", "b"), delay_ms=2.0),),
    )
    clusters = build_federation(topology, world, 1)
    a, b = clusters["a"], clusters["b"]
    b.feed(ev.Drain())
    done_s = []

    def answered(answer):
        assert answer.outcome is Outcome.DONE
        if answer.path[-1] == "b":
            done_s.append(world.now_s)
        if len(done_s) == WAITING:
            reached.append(True)

    def submit(number):
        service_s = 60.0 if number == 0 else SERVICE_S
        request = request_of(number, None, service_s, "default")
        a.submit(request, world.now_s + 100.0, answered, lambda _: None)

    for number in range(WAITING + 1):
        world.at(0.5 + number * 1e-6, submit, number)
    world.at(BEGIN_S, a.feed, leave())
    world.at(BEGIN_S, b.feed, ev.Resume())
    reached = []
    world.at(BEGIN_S + 30.0, reached.append, False)
    world.run(lambda: reached)
    assert reached == [True]
    served_s = WAITING * SERVICE_S / SERVERS
    assert done_s[-1] - BEGIN_S == pytest.approx(served_s, rel=0.1)
