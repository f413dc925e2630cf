"""Virtual time: order of things, and streams of random numbers."""

from __future__ import annotations

from spillover.sim.world import World, stream


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
