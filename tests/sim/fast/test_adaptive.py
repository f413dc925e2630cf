"""The compiled engine plays `adaptive` as the full one does: loads that ride on messages, questions
for work, and the bound of foreign requests that wait, each request to the last bit."""

from dataclasses import replace
from random import Random

import pytest

from spillover.core.overflow.history import LEFT_IN_TIME, PULLED_BY, REFUSED_BY, WENT_FIRST
from spillover.core.overflow.neighbor import SENDS_MAX
from spillover.model.schedule import Arrival
from spillover.model.topology import Cluster, Link, Topology
from support.engines import assert_alike


def exponential(random, mean_ms):
    return random.expovariate(1.0 / mean_ms)


def unlike_sites(**settings):
    """Four sites of 1, 2, 4 and 8 servers in a ring with a chord, all services 200 ms."""
    servers = {"a": 1, "b": 2, "c": 4, "d": 8}
    delay_ms = settings.pop("delay_ms", 20.0)
    pairs = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a"), ("a", "c")]
    return Topology(
        name="sites",
        policy="adaptive",
        clusters=tuple(Cluster(id=i, servers=m, service_ms=200.0) for i, m in servers.items()),
        links=tuple(Link(between=pair, delay_ms=delay_ms) for pair in pairs),
        **settings,
    )


def arrivals(topology, load, work, *, seed, duration_s=12.0):
    """Poisson arrivals at each cluster that bring this load, with work drawn by a law."""
    random = Random(seed)
    schedule = []
    for cluster in topology.clusters:
        time_s, rate_hz = 0.0, load * cluster.servers / (cluster.service_ms / 1e3)
        while (time_s := time_s + random.expovariate(rate_hz)) < duration_s:
            schedule.append(Arrival(time_s, cluster.id, work(random, cluster.service_ms)))
    return sorted(schedule, key=lambda arrival: arrival.time_s)


@pytest.mark.slow
def test_work_that_is_asked_for_gives_the_same(fast):
    """Only the smallest site has clients, and reports are as rare as they can be."""
    topology = unlike_sites(gossip_period_ms=10_000.0)
    schedule = arrivals(topology, 0.7, exponential, seed=8, duration_s=15.0)
    schedule = [replace(arrival, cluster="a") for arrival in schedule]
    _, clusters = assert_alike(fast, topology, schedule, 8)
    logs = [cluster.machine.decider.log for cluster in clusters]
    told = [one for log in logs for n in range(len(schedule)) for one in log.tell(f"sim-{n}")]
    assert sum(one["event"] == PULLED_BY for one in told) > 20


@pytest.mark.slow
def test_a_flood_at_one_site_gives_the_same(fast):
    """What is older goes in place of what comes, and what is refused takes its place back: also
    beyond a full queue, and where what comes now would be too late."""
    topology = unlike_sites(default_deadline_ms=3_000.7)
    sites = [replace(one, servers=2, queue_limit=40) for one in topology.clusters]
    topology = replace(topology, clusters=tuple(sites))
    schedule = arrivals(topology, 0.95, exponential, seed=3)
    schedule = [replace(arrival, cluster="a") for arrival in schedule]
    _, clusters = assert_alike(fast, topology, schedule, 3)
    logs = [cluster.machine.decider.log for cluster in clusters]
    told = [[one["event"] for one in logs[0].tell(f"sim-{n}")] for n in range(len(schedule))]
    assert sum(WENT_FIRST in events for events in told) > 50
    back = [events for events in told if {WENT_FIRST, REFUSED_BY} <= set(events)]
    assert len(back) > 5


@pytest.mark.slow
def test_short_services_beside_long_ones_give_the_same(fast):
    """Age is counted in departures of the slower side, which is now the one and now the other."""
    topology = Topology(
        name="short",
        policy="adaptive",
        clusters=(
            Cluster(id="few", servers=3, service_ms=1000.0),
            Cluster(id="many", servers=50, service_ms=5.0),
        ),
        links=(Link(between=("few", "many"), delay_ms=2.0),),
    )
    schedule = arrivals(topology, 0.9, lambda *_: None, seed=5, duration_s=1.5)
    late = Random(5)
    schedule += [Arrival(late.uniform(0.0, 1.5), "few") for _ in range(60)]
    schedule.sort(key=lambda arrival: arrival.time_s)
    found, _ = assert_alike(fast, topology, schedule, 5)
    assert sum(hops == 1 for _, _, hops in found) > 20


@pytest.mark.slow
def test_what_is_stranded_behind_long_work_gives_the_same(fast):
    """Two of three sites are held again and again by work of a thousand usual services: what waits
    is looked at again, and goes on hop by hop, also where it was refused before."""
    topology = Topology(
        name="stranded",
        policy="adaptive",
        clusters=tuple(Cluster(id=one, servers=2, service_ms=1.0) for one in "abc"),
        links=tuple(Link(between=pair, delay_ms=5.0) for pair in ("ab", "bc")),
        default_deadline_ms=1000.7,
    )
    random = Random(4)
    schedule = [Arrival(12.0 * random.random(), "a", 0.5 + random.random()) for _ in range(900)]
    for start_s, held in ((4.0, "ab"), (8.0, "abc")):
        schedule += [Arrival(start_s + random.random() / 99, x, 3000.0) for x in held for _ in "12"]
    schedule.sort(key=lambda arrival: arrival.time_s)
    found, clusters = assert_alike(fast, topology, schedule, 4)
    assert max(hops for _, _, hops in found if hops is not None) == 2
    logs = [cluster.machine.decider.log for cluster in clusters]
    told = [one for log in logs for n in range(len(schedule)) for one in log.tell(f"sim-{n}")]
    left = sum(one["event"] == LEFT_IN_TIME for one in told)
    assert left > 2, left


@pytest.mark.slow
def test_more_sends_than_are_counted_give_the_same(fast):
    """To a quick site far away, which has not told its load for more than SENDS_MAX of them."""
    topology = Topology(
        name="far",
        policy="adaptive",
        clusters=(
            Cluster(id="slow", servers=1, service_ms=1000.0),
            Cluster(id="quick", servers=200, service_ms=10.0),
        ),
        links=(Link(between=("slow", "quick"), delay_ms=400.0),),
    )
    schedule = [Arrival(1.0 + k / 10_000, "slow") for k in range(2 * SENDS_MAX)]
    found, _ = assert_alike(fast, topology, schedule, 1)
    assert sum(hops == 1 for _, _, hops in found) > SENDS_MAX
