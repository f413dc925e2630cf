"""Virtual time: order of things, and streams of random numbers."""

import gc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillover.sim.engine.world import World, rare_collections, stream


def test_things_happen_in_order_of_time_and_then_as_made():
    """Equal instants keep the order in which they were planned, planned ones meanwhile included."""
    world, seen = World(), []

    def note(name):
        seen.append((world.now_s, name))
        if name == "b":
            world.at(world.now_s, note, "planned by b")

    for time_s, name in ((2.0, "c"), (1.0, "a"), (1.0, "b"), (1.0, "also")):
        world.at(time_s, note, name)
    world.run(lambda: False)
    assert seen == [(1.0, "a"), (1.0, "b"), (1.0, "also"), (1.0, "planned by b"), (2.0, "c")]
    assert world.happened == 5


def test_the_world_stops_when_it_is_done():
    """What is still to come does not happen, and can happen later."""
    world, seen = World(), []
    for time_s in range(5):
        world.at(time_s, seen.append, time_s)
    world.run(lambda: len(seen) == 2)
    assert (seen, world.now_s) == ([0, 1], 1)
    world.run(lambda: False)
    assert seen == [0, 1, 2, 3, 4]


def test_streams_repeat_and_do_not_disturb_each_other():
    """The same seed and name give the same numbers; another name or seed gives others."""
    assert stream(1, "a").random() == stream(1, "a").random()
    assert len({stream(seed, name).random() for seed in (1, 2) for name in "ab"}) == 4


@given(
    st.lists(st.integers(0, 6), max_size=12),
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3)), max_size=6),
)
def test_a_schedule_happens_as_if_all_of_it_had_been_planned_at_once(times_s, others):
    """In any order, along with what was planned before and after, and what comes up meanwhile."""

    def play(*, one_by_one):
        world, seen = World(), []

        def note(name, more):
            seen.append((world.now_s, name))
            if more:
                world.at(world.now_s + more - 1, note, f"{name}'", 0)

        world.at(3, note, "before", 1)
        if one_by_one:
            world.at_each(times_s, lambda k: note(k, k % 3))
        else:
            for k, time_s in enumerate(times_s):
                world.at(time_s, note, k, k % 3)
        for number, (time_s, more) in enumerate(others):
            world.at(time_s, note, f"other {number}", more)
        world.run(lambda: False)
        return seen, world.happened

    assert play(one_by_one=True) == play(one_by_one=False)


def test_the_garbage_collector_is_as_it_was_afterwards():
    """Also where a run fails."""
    before = gc.get_threshold()
    during = []

    def fail():
        with rare_collections():
            during.append(gc.get_threshold()[0])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert during >= [10_000]
    assert gc.get_threshold() == before
