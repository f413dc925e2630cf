"""One isolated cluster against the closed forms of queueing theory."""

import math
from statistics import fmean

import pytest

from spillover.model.schedule import Arrival
from spillover.model.topology import Cluster, Topology
from spillover.sim.engine.world import stream
from spillover.sim.overflow.run import run_overflow

pytestmark = pytest.mark.slow

SERVICE_S = 0.04


def alone(servers):
    """One cluster that never refuses and never lets anything expire."""
    cluster = Cluster(id="a", servers=servers, service_ms=SERVICE_S * 1e3, queue_limit=10**9)
    return Topology(
        name="alone",
        clusters=(cluster,),
        policy="isolated",
        gossip_period_ms=60_000,
        default_deadline_ms=1e12,
    )


def poisson_arrivals(load, servers, count, *, seed=1):
    """Poisson arrivals that keep the servers busy for a share `load` of the time."""
    random = stream(seed, "arrivals")
    rate_per_s = load * servers / SERVICE_S
    time_s, schedule = 0.0, []
    for _ in range(count):
        time_s += random.expovariate(rate_per_s)
        schedule.append(Arrival(time_s, "a", random.expovariate(1 / SERVICE_S) * 1e3))
    return schedule


def waits_s(run, schedule):
    """Mean wait in the queue: what is left of the system time without the service."""
    served_ms = fmean(one.service_ms for one in schedule)
    return (fmean(run.system_time_ms["a"]) - served_ms) / 1e3


def erlang_c(servers, load):
    """The probability that an arrival has to wait in M/M/c."""
    offered = servers * load
    blocked = offered**servers / math.factorial(servers) / (1 - load)
    return blocked / (sum(offered**k / math.factorial(k) for k in range(servers)) + blocked)


def test_exponential_services_wait_as_erlang_says():
    """M/M/c: mean wait C(c, a) s / (c (1 - rho)), to within 5 %."""
    servers, load = 5, 0.8
    schedule = poisson_arrivals(load, servers, 40_000)
    run = run_overflow(alone(servers), schedule, 1)
    expected_s = erlang_c(servers, load) * SERVICE_S / (servers * (1 - load))
    assert waits_s(run, schedule) == pytest.approx(expected_s, rel=0.05)
