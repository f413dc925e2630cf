"""A cluster that learns how many requests its service bears, beside ones that are told."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from spillover.model.errors import InputError
from spillover.model.ids import ClusterId
from spillover.model.schedule import Arrival
from spillover.model.server_bounds import ServerBounds
from spillover.model.topology import Cluster, Link, Topology
from spillover.sim.fast.overflow.run import run_fast
from spillover.sim.overflow.run import run_overflow

SERVICE_S, LOAD, SPREAD2 = 0.1, 0.8, 0.25
PHASE_S, SETTLED_S = 70.0, 45.0
BEARS = (4, 32, 8)


def topology(*servers: int | ServerBounds) -> Topology:
    clusters = tuple(
        Cluster(
            id=ClusterId(name), servers=one, service_ms=SERVICE_S * 1e3, handler="http:http://x:1/"
        )
        for name, one in zip("ab", servers, strict=False)
    )
    links = (Link(between=(clusters[0].id, clusters[1].id), delay_ms=5.0),) if servers[1:] else ()
    return Topology(name="t", clusters=clusters, links=links, default_deadline_ms=1e8)


def arrivals(seed: int, cluster: str, bears: tuple[int, ...], load: float) -> list[Arrival]:
    """Returns requests that come at this load of what a service bears in each phase."""
    draws, found = Random(f"{seed} {cluster}"), []
    for phase, number in enumerate(bears):
        time_s = phase * PHASE_S
        while (time_s := time_s + draws.expovariate(load * number / SERVICE_S)) < (
            (phase + 1) * PHASE_S
        ):
            service_s = draws.gammavariate(1.0 / SPREAD2, SERVICE_S * SPREAD2)
            found.append(Arrival(time_s, ClusterId(cluster), service_s * 1e3))
    return found


def times_s(servers: int | ServerBounds, seed: int, bears: tuple[int, ...]) -> list[list[float]]:
    """Returns the times of the requests of each phase, sorted, of those that come once it has had
    time to settle."""
    schedule = arrivals(seed, "a", bears, LOAD)
    found: list[list[float]] = [[] for _ in bears]

    def note(number, answer):
        phase, since_s = divmod(schedule[number].time_s, PHASE_S)
        if since_s >= SETTLED_S:
            found[int(phase)].append(answer.queued_s + answer.service_s)

    told = [(phase * PHASE_S, number) for phase, number in enumerate(bears)]
    run = run_overflow(topology(servers), schedule, seed, on_answer=note, bears=told)
    assert run.outcomes == {"done": len(schedule)}
    return [sorted(each) for each in found]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1])
def test_a_service_whose_best_number_steps_is_served_nearly_as_by_who_knows_it(seed):
    learned = times_s(ServerBounds(), seed, BEARS)
    for phase, number in enumerate(BEARS):
        (known,) = times_s(number, seed, (number,))
        p99_s, known_s = (one[int(0.99 * len(one))] for one in (learned[phase], known))
        assert p99_s <= 4.0 * known_s, (number, p99_s, known_s)


@pytest.mark.slow
def test_a_service_that_bears_more_is_found_though_a_queue_is_there_already():
    """Four were too few before: what tells that they still are is that the queue has doubled."""
    schedule, settled_s = arrivals(3, "a", (5, 31), LOAD), []

    def note(number, answer):
        if schedule[number].time_s >= PHASE_S + 30.0:
            settled_s.append(answer.queued_s)

    bears = [(0.0, 4), (PHASE_S, 32)]
    run_overflow(topology(ServerBounds()), schedule, 1, on_answer=note, bears=bears)
    assert max(settled_s) < 1.0


@pytest.mark.slow
def test_neighbors_hear_what_is_believed_and_work_does_not_swing():
    """Once it is found, hardly more is handed on than where both know their numbers."""
    shares = {}
    for name, servers in (("learned", ServerBounds()), ("known", 8)):
        schedule = [*arrivals(1, "a", (8,), 0.85), *arrivals(1, "b", (8,), 0.85)]
        schedule.sort(key=lambda one: one.time_s)
        forwarded = []

        def note(number, answer, schedule=schedule, forwarded=forwarded):
            if schedule[number].time_s > 20.0:
                forwarded.append(len(answer.path) > 1)

        run = run_overflow(
            topology(servers, servers), schedule, 1, on_answer=note, bears=[(0.0, 8)]
        )
        assert run.outcomes == {"done": len(schedule)}
        shares[name] = sum(forwarded) / len(forwarded)
    assert shares["learned"] <= shares["known"] + 0.05, shares


def test_the_fast_engine_knows_no_servers_that_are_learned():
    with pytest.raises(InputError, match=r"clusters\[0\]\.servers: expected a number, got bounds"):
        run_fast(topology(ServerBounds()), arrivals(1, "a", (4,), 0.1), 1)


@pytest.mark.parametrize(("bears", "seed"), [(2, 1), (4, 3)])
def test_a_service_that_bears_less_than_is_begun_with_is_found_though_deadlines_end_most(
    bears, seed
):
    """At eight at a time nearly all would take longer than they may, so that no rate is known."""
    schedule = arrivals(seed, "a", (bears,), 0.8)
    done = {}
    for name, servers in (("learned", ServerBounds()), ("known", bears)):
        told = replace(topology(servers), default_deadline_ms=400.0)
        run = run_overflow(told, schedule, seed, bears=[(0.0, bears)])
        done[name] = run.outcomes["done"]
    assert done["learned"] >= 0.7 * done["known"], done
