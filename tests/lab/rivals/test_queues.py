"""Rules of others, request by request: what a move takes, and when a queue is looked at."""

import pytest

from spillover.model.ids import ClusterId
from spillover.model.topology import Cluster, Link, Topology
from spillover_lab.rivals.queues import Rule, SkyWalker, play

WAY_S = 0.1
ENDS = ClusterId("a"), ClusterId("b")
PAIR = Topology(
    name="pair",
    clusters=tuple(Cluster(id=one, servers=1, service_ms=1000.0) for one in ENDS),
    links=(Link(between=ENDS, delay_ms=WAY_S * 1e3),),
    gossip_period_ms=1000.0,
)


class Away(Rule):
    """All goes to the other site."""

    def choose(self, home, _, /):
        return 1 - home


def test_a_request_that_moves_waits_for_the_way_there_and_back():
    assert play(PAIR, [(0.0, 0, 1.0)], Away, 1) == [(pytest.approx(2 * WAY_S), True)]


def test_a_request_in_a_queue_leaves_when_a_report_tells_of_a_free_server():
    """Of the other site's, which is busy up to 1.5 s: the report of 2 s is the first to say so."""
    requests = [(0.0, 1, 1.5), (0.1, 0, 10.0), (0.2, 0, 1.0)]
    (_, _, (waited_s, moved)) = play(PAIR, requests, SkyWalker, 1)
    assert (waited_s, moved) == (pytest.approx(2.0 + 3 * WAY_S - 0.2), True)
