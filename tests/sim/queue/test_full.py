"""The machines of the service under the conditions of Johnson's document: the same figures as the
compiled pseudo-code, within both intervals."""

from __future__ import annotations

import importlib.util
from dataclasses import asdict, replace

import pytest

from spillover.model.errors import InputError
from spillover.sim.queue.full import simulate
from spillover.sim.queue.measuring import warm_up
from spillover.sim.queue.system import ProbingSystem, alike, fast_and_slow
from spillover.sim.queue.wires import FETCH, IN_PAPER, OFFER, POINTER


def paper(load, producers=20, **changes):
    """As section 4.1.1, with fewer producers."""
    system = ProbingSystem(
        kinds=alike(producers, 0.01),
        consumers=producers * load // 100,
        consumption_rate=0.01,
        message_time=1.0,
        buffers=5,
        max_hops=3,
    )
    return replace(system, **changes)


@pytest.fixture
def agree(require):
    """`agree(system, objects)`: the full engine with so many objects, the other with many more."""
    require(importlib.util.find_spec("numba"), "numba, from the extra `sim`")

    def compare(system, objects, **options):
        from spillover.sim.queue import compiled

        full = simulate(system, objects, 1, **options)
        fast = compiled.simulate(system, 300_000, 1, **options)
        half = {name: value + asdict(fast.ci95)[name] for name, value in asdict(full.ci95).items()}
        for name, value in asdict(full.figures).items():
            assert abs(value - asdict(fast.figures)[name]) <= half[name], name
        return {name: half[name] / value for name, value in asdict(full.figures).items()}

    return compare


SYSTEMS = [
    ({}, {}),
    ({"max_hops": 1, "buffers": 1}, {}),
    ({}, {"avoid_visited": True}),
    ({"producers_per_consumer": 3}, {}),
    ({"kinds": fast_and_slow(10, 0.005, share=0.5, factor=3.0)}, {}),
]


@pytest.mark.slow
@pytest.mark.parametrize("asked", SYSTEMS[1:])
def test_both_engines_agree_in_short(asked, agree):
    """Whatever is asked of them."""
    changes, options = asked
    agree(paper(150, 10, **changes), 3000, **options)


@pytest.mark.slow
def test_looking_after_those_who_wait_shortens_waits():
    """What the service does beyond the document: sweeps find objects elsewhere."""
    system = paper(100, 10, max_hops=1, buffers=2)
    waits = [
        simulate(system, 3000, 1, probe_expiry_s=expiry_s).figures.wait_mean
        for expiry_s in (10.0, 1e9)
    ]
    assert waits[0] < 0.9 * waits[1]


@pytest.mark.slow
def test_the_legs_that_the_service_adds_take_time():
    """At a low load an object is found elsewhere now and then; its offer, its address and the
    fetching take three messages more."""
    system = paper(50, 10, max_hops=3, buffers=1)
    waits = [
        simulate(system, 3000, 1, legs=legs).figures.wait_mean
        for legs in (dict.fromkeys((*IN_PAPER, OFFER, POINTER, FETCH), 1.0), {})
    ]
    probes = simulate(system, 3000, 1).figures.probes_mean
    assert waits[0] - waits[1] > probes + 1.0


@pytest.mark.slow
def test_progress_is_told_and_the_same_seed_gives_the_same():
    """Another seed gives others."""
    system, told = paper(150, 5), []
    first = simulate(system, 600, 1, told.append)
    assert told == sorted(told)
    assert told[-1] == 600
    assert simulate(system, 600, 1) == first
    assert simulate(system, 600, 2) != first


def test_too_few_objects_are_refused():
    """There is one batch at least for each object."""
    with pytest.raises(InputError, match="objects: expected at least 30"):
        simulate(paper(100), 29, 1)


def test_a_tenth_warms_up_and_ten_rounds_at_least():
    """Of all places that objects may be in: 20 consumers, and 5 at each of 20 producers."""
    system = paper(100)
    assert warm_up(system, 1_000_000) == 100_000
    assert warm_up(system, 12_000) == warm_up(system, 100) == 1200
    assert warm_up(system, 12_001) == 1201
