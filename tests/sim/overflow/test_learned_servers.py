"""A cluster that learns how many requests its service bears, beside one that is told."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from spillover.model.errors import InputError
from spillover.model.ids import ClusterId
from spillover.model.schedule import Arrival
from spillover.model.server_bounds import ServerBounds
from spillover.model.statistics import percentile
from spillover.model.topology import Cluster, Topology
from spillover.sim.overflow.run import run_overflow

SERVICE_S, SPREAD2 = 0.1, 0.25
LASTS_S = 70.0
A = ClusterId("a")


def topology(servers: int | ServerBounds) -> Topology:
    cluster = Cluster(id=A, servers=servers, service_ms=SERVICE_S * 1e3, handler="http:http://x:1/")
    return Topology(name="t", clusters=(cluster,), default_deadline_ms=400.0)


def arrivals(bears: int, load: float, seed: int = 1) -> list[Arrival]:
    """Returns requests that come at this load of what a service bears."""
    draws, time_s, found = Random(seed), 0.0, list[Arrival]()
    while (time_s := time_s + draws.expovariate(load * bears / SERVICE_S)) < LASTS_S:
        service_s = draws.gammavariate(1.0 / SPREAD2, SERVICE_S * SPREAD2)
        found.append(Arrival(time_s, A, service_s * 1e3))
    return found


def test_the_fast_engine_knows_no_servers_that_are_learned():
    from spillover.sim.fast.overflow.run import run_fast  # which imports Numba

    with pytest.raises(InputError, match=r"clusters\[0\]\.servers: expected a number, got bounds"):
        run_fast(topology(ServerBounds()), arrivals(4, 0.1), 1)


def test_a_service_that_bears_less_than_is_begun_with_is_found_though_deadlines_end_most():
    """At eight at a time nearly all would take longer than they may, so that no rate is known."""
    bears, done = 2, {}
    schedule = arrivals(bears, 0.8)
    for name, servers in (("learned", ServerBounds()), ("known", bears)):
        run = run_overflow(topology(servers), schedule, 1, bears=[(0.0, bears)])
        done[name] = run.outcomes["done"]
    assert done["learned"] >= 0.7 * done["known"], done


def test_a_service_that_bears_more_than_is_begun_with_is_given_it():
    """Eight are too few for half of what comes."""
    bears = 20
    done = {}
    schedule = [one for one in arrivals(bears, 0.8) if one.time_s < LASTS_S / 3.0]
    for name, servers in (("learned", ServerBounds()), ("known", bears), ("eight", 8)):
        run = run_overflow(topology(servers), schedule, 1, bears=[(0.0, bears)])
        done[name] = run.outcomes["done"]
    assert done["learned"] >= 0.8 * done["known"] > 1.3 * done["eight"], done


def test_whoever_waits_at_a_service_that_bears_few_waits_hardly_longer_than_if_that_were_told():
    """Trials, chance queues and changes that are none must not cost more than a fifth at p99."""
    bears, ratios = 4, list[float]()
    for seed in (1, 2, 3):
        schedule = arrivals(bears, 0.8, seed)
        p99_ms = []
        for servers in (ServerBounds(), bears):
            patient = replace(topology(servers), default_deadline_ms=60_000.0)
            run = run_overflow(patient, schedule, seed, bears=[(0.0, bears)])
            found_ms = run.system_time_ms[A][len(schedule) // 2 :]
            p99_ms.append(percentile(sorted(found_ms), 0.99))
        ratios.append(p99_ms[0] / p99_ms[1])
    assert sorted(ratios)[1] <= 1.2, ratios
