"""Leases in virtual time: the blog's rule fails under load as it says, the guarded one does not."""

import pytest

from spillover.model.errors import InputError
from spillover.model.lease_times import LeaseTimes
from spillover.policy.leases import minimum_moves
from spillover.sim.leases.run import LeaseScene, run_leases
from spillover.sim.leases.world import Troubles

PERIOD_MS = LeaseTimes().normal_lease_ms
STALLED = Troubles(stall_ms={0: 500.0})


def run(troubles=None, seed=1, **scene):
    return run_leases(LeaseScene(troubles=troubles or Troubles(), **scene), seed)


@pytest.mark.parametrize(("partitions", "troubles"), [(16, Troubles()), (17, STALLED)])
def test_what_is_even_stays_where_it_is(partitions, troubles):
    """Guarded: not a move and not a challenge in 100 periods, one member stalled or not."""
    result = run(troubles, nodes=4, partitions=partitions, periods=100)
    assert (result.moves, result.moves_min, result.challenges) == (0, 0, 0)
    assert (result.unowned_ms_max, result.double_owned_ms) == (0.0, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize(("challenges", "periods"), [("all", 50), ("one", 160)])
def test_the_blogs_rule_under_load_moves_hundreds_for_nothing(challenges, periods):
    """Its confession; and without load, with halves read for waits, the tie at one apart."""
    scene = {"nodes": 4, "periods": periods, "rule": "blog", "challenges": challenges}
    assert run(partitions=16, **scene).moves == 0
    assert run(partitions=17, **scene).moves > 100
    assert run(STALLED, partitions=16, **scene).moves > 160
    assert run(STALLED, partitions=17, **scene).moves > 160


@pytest.mark.parametrize(
    ("partitions", "fewest", "troubles"), [(16, 12, Troubles()), (64, 48, STALLED)]
)
def test_from_all_on_one_it_takes_the_fewest_moves(partitions, fewest, troubles):
    """Guarded, in a few periods whatever the size; no partition stands still for a second."""
    result = run(troubles, nodes=4, partitions=partitions, periods=20, start="one-node")
    assert result.moves == result.moves_min == fewest
    assert set(result.counts) == {partitions // 4}
    assert result.moves_ms[-1] < 10 * PERIOD_MS
    assert result.unowned_ms_max < 1_000.0
    assert result.double_owned_ms == 0.0


@pytest.mark.slow
def test_the_blogs_rule_runs_partitions_twice_when_holders_look_too_late():
    """Beyond race_size_max partitions a winner gives up waiting before the holder knows."""
    scene = {"nodes": 4, "periods": 5, "rule": "blog", "start": "one-node"}
    assert run(partitions=90, **scene).double_owned_ms == 0.0
    assert run(partitions=200, **scene).double_owned_ms > 1e6


def test_those_who_come_and_go_cost_the_fewest_moves():
    """Two join at once, one of the old dies later."""
    troubles = Troubles(join_ms={3: 6e5, 4: 6e5}, crash_ms={0: 1.2e6})
    result = run(troubles, nodes=5, partitions=17, periods=40)
    joined = minimum_moves([6, 6, 5, 0, 0], [True] * 5)
    assert result.moves == result.moves_min
    assert result.moves - joined in {3, 4}
    assert sorted(result.counts) == [0, 4, 4, 4, 5]


def test_a_handler_that_outstays_the_limit_is_fenced_before_its_successor_starts():
    """Both run, one may act."""
    troubles = Troubles(handler_stop_ms=40_000.0)
    scene = {"nodes": 4, "partitions": 16, "periods": 40, "start": "one-node"}
    result = run(troubles, **scene)
    assert result.double_owned_ms > 0.0
    assert result.double_entitled_ms == 0.0
    assert result.moves == 12
    assert run(troubles, rule="blog", **scene).double_entitled_ms > 0.0


def test_without_a_single_message_the_guarded_rule_still_evens_out():
    """Polls do: and the blog's rule never even starts."""
    scene = {"nodes": 4, "partitions": 16, "periods": 20}
    lost = Troubles(loss=1.0)
    for start, fewest in (("one-node", 12), ("empty", 0)):
        result = run(lost, start=start, **scene)
        assert (result.moves, set(result.counts)) == (fewest, {4})
        assert result.unowned_ms_max < 1.2 * PERIOD_MS
    assert run(lost, start="empty", rule="blog", **scene).counts == (0, 0, 0, 0)


def test_the_same_seed_gives_the_same_run():
    """And another seed another one."""
    scene = {"nodes": 3, "partitions": 7, "periods": 20, "rule": "blog"}
    assert run(STALLED, 5, **scene) == run(STALLED, 5, **scene)
    assert run(STALLED, 5, **scene).moves_ms != run(STALLED, 6, **scene).moves_ms


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"nodes": 0}, "nodes: expected at least 1, got 0"),
        ({"partitions": 0}, "partitions: expected at least 1"),
        ({"periods": -1}, "periods: expected at least 1"),
        ({"rule": "fair"}, "rule: expected one of guarded, blog"),
        ({"troubles": Troubles(stall_ms={2: 1.0})}, "stall_ms: expected nodes 0..1, got 2"),
        ({"troubles": Troubles(crash_ms={1: -1.0})}, "crash_ms: expected ms of at least 0"),
        ({"troubles": Troubles(join_ms={0: 1.0, 1: 1.0})}, "a node that is there from the start"),
        ({"troubles": Troubles(join_ms={1: 2.0}, crash_ms={1: 1.0})}, "join before it crashes"),
    ],
)
def test_scenes_that_make_no_sense_are_refused(changed, told):
    """One line, with the field."""
    with pytest.raises(InputError, match=told):
        LeaseScene(**{"nodes": 2, "partitions": 2, "periods": 2, **changed})
