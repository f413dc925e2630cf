"""The machines of the service under the conditions of Johnson's document: the same figures as the
compiled pseudo-code, within both intervals."""

from dataclasses import asdict, replace

import pytest

from spillover.model.errors import InputError
from spillover.sim.queue.full import simulate
from spillover.sim.queue.measuring import warm_up
from spillover.sim.queue.system import ProbingSystem, alike, fast_and_slow


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
def agree(numba):
    """`agree(system, objects)`: the full engine with so many objects, the other with many more."""

    def compare(system, objects, **options):
        from spillover.sim.queue import compiled

        full = simulate(system, objects, 1, **options)
        fast = compiled.simulate(system, 100_000, 1, **options)
        half = {name: value + asdict(fast.ci95)[name] for name, value in asdict(full.ci95).items()}
        for name, value in asdict(full.figures).items():
            assert abs(value - asdict(fast.figures)[name]) <= half[name], name
        return {name: half[name] / value for name, value in asdict(full.figures).items()}

    return compare


SYSTEMS = [
    ({"max_hops": 1, "buffers": 1}, {}, 3000),
    ({}, {"avoid_visited": True}, 1500),
    ({"producers_per_consumer": 3}, {}, 3000),
    ({"kinds": fast_and_slow(10, 0.005, share=0.5, factor=3.0)}, {}, 1500),
]


@pytest.mark.slow
@pytest.mark.parametrize("asked", SYSTEMS)
def test_both_engines_agree_in_short(asked, agree):
    """Whatever is asked of them."""
    changes, options, objects = asked
    agree(paper(150, 10, **changes), objects, **options)


@pytest.mark.slow
def test_progress_is_told_and_the_same_seed_gives_the_same():
    """Another seed gives others."""
    system, told = paper(150, 5), []
    first = simulate(system, 300, 1, told.append)
    assert told == sorted(told)
    assert told[-1] == 300
    assert simulate(system, 300, 1) == first
    assert simulate(system, 300, 2) != first


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
