"""The queue in virtual time at instants that are given: it goes by them, it is the same system, and
two that go by the same differ by little but what is different about them."""

from __future__ import annotations

from random import Random

import pytest

from spillover.sim.queue.full import simulate
from spillover.sim.queue.replay import Came, Instants, replay
from spillover.sim.queue.system import ProbingSystem, alike
from spillover.sim.queue.wires import IN_PAPER, OBJECT
from spillover_lab.bench.queue_waits import estimate

WARM_UP_S, ENDS_S = 10.0, 130.0


def system_of(producers=8, consumers=8, production_rate=5.0, consumption_rate=5.0, max_hops=2):
    return ProbingSystem(
        kinds=alike(producers, production_rate),
        consumers=consumers,
        consumption_rate=consumption_rate,
        message_time=0.0003,
        buffers=2,
        max_hops=max_hops,
    )


def drawn(system, seed, ends_s=ENDS_S):
    """Instants by chance, and all of where probes go."""
    random = Random(seed)

    def instants(rate):
        times = [0.0]
        while times[-1] < ends_s:
            times.append(times[-1] + random.expovariate(rate))
        return times

    made_s = [instants(system.kinds[0].rate)[1:] for _ in range(system.producers)]
    asked_s = [instants(system.consumption_rate) for _ in range(system.consumers)]
    ways = [
        [[random.randrange(system.producers) for _ in range(system.max_hops)] for _ in times]
        for times in asked_s
    ]
    return Instants(made_s, asked_s, ways)


def played(system, instants, seed, **more):
    legs = dict.fromkeys(IN_PAPER, system.message_time) | more
    return replay(system, instants, ENDS_S, seed, probe_expiry_s=5.0, legs=legs)


def test_probes_go_where_they_are_told_and_objects_are_made_when_they_are():
    """Two are empty for good, and what the third has made finds the consumer parked there. Then it
    is done at an instant of its own, the second after that: during the first it waited."""
    system = system_of(producers=3, consumers=1, max_hops=3)
    instants = Instants(
        [[], [], [0.5, 0.75]], [[0.25, 0.375, 0.625]], [[[0, 1, 2], [0], [1, 0, 2]]]
    )
    came = replay(system, instants, 1.0, 1, probe_expiry_s=5.0, legs={})
    assert came == [Came(0.5, 0.25, 3), Came(0.75, 0.125, 3)]


@pytest.mark.slow
@pytest.mark.parametrize("consumption_rate", [2.5, 7.5])
def test_it_is_the_same_system(consumption_rate):
    """As the one that counts times from what happens, within both intervals."""
    system = system_of(consumption_rate=consumption_rate)
    runs = [played(system, drawn(system, 1), 1)]
    other = simulate(system, 3000, 1, probe_expiry_s=5.0)
    for value, mean, half_width in (
        (lambda came: came.wait_s, other.figures.wait_mean, other.ci95.wait_mean),
        (lambda came: came.probes, other.figures.probes_mean, other.ci95.probes_mean),
    ):
        seen = estimate(runs, WARM_UP_S, ENDS_S, value)
        assert abs(seen.mean - mean) <= seen.half_width + half_width


@pytest.mark.slow
def test_the_same_instants_leave_little_to_chance():
    """An object that takes 2 ms more makes every wait longer by that: nothing to be seen where
    each goes by instants of its own."""
    system = system_of(consumption_rate=2.5, max_hops=3)
    instants = drawn(system, 1)
    waits = [
        estimate([played(system, instants, seed, **{OBJECT: took_s})], WARM_UP_S, ENDS_S, wait_of)
        for seed, took_s in ((1, 0.0003), (2, 0.0023))
    ]
    half_width = waits[1].half_width_beside(waits[0])
    assert 3.0 * half_width < waits[0].half_width
    assert abs(waits[1].mean - waits[0].mean - 0.002) < half_width


def wait_of(came):
    return came.wait_s
