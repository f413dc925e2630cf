"""Members that come, go, sleep and are hung up on: what holds whatever goes wrong, and the bounds.

Each machine is asked after every event whether it contradicts itself (`journal`).
"""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillover.model.lease_times import LeaseTimes
from spillover.sim.leases.run import LeaseScene, run_leases
from spillover.sim.leases.world import Troubles
from support.few import examples

TIMES = LeaseTimes()
PERIOD_MS = TIMES.normal_lease_ms
LEASE_MS = TIMES.max_lease_ms
WAITS_MS = 5_000.0
WHEN = st.floats(0.0, 1.5e6)


def run(troubles=None, seed=1, **scene):
    scene = LeaseScene(troubles=troubles or Troubles(), **scene)
    return run_leases(scene, seed, journal=lambda *_: None)


def safe(result):
    """At most one may act on a partition, and its epochs grow."""
    for tenures in result.tenures:
        epochs = [tenure.epoch for tenure in tenures]
        assert all(earlier < later for earlier, later in pairwise(epochs))
    assert result.double_entitled_ms == 0.0
    return result


@st.composite
def lives(draw, nodes):
    """Who joins, dies, leaves and comes again, when."""
    some = st.integers(0, nodes - 1)
    join = draw(st.dictionaries(some, WHEN))
    join.pop(0, None)
    drain = draw(st.dictionaries(some, WHEN))
    crash = draw(st.dictionaries(some, WHEN))
    drain = {n: t for n, t in drain.items() if t >= join.get(n, 0.0)}
    crash = {n: t for n, t in crash.items() if t >= join.get(n, 0.0) and n not in drain}
    after_ms = st.sampled_from([None, 1_000.0, 5_000.0, 100_000.0, 400_000.0])
    gone = {**drain, **crash}
    rejoin = {n: t + ms for n, t in gone.items() if (ms := draw(after_ms)) is not None}
    return {"join_ms": join, "drain_ms": drain, "crash_ms": crash, "rejoin_ms": rejoin}


@st.composite
def rough_scenes(draw):
    """Everything but the loss of data: see below."""
    nodes = draw(st.integers(1, 5))
    some = st.integers(0, nodes - 1)
    asleep = st.tuples(WHEN, st.sampled_from([0.5, 1.5, 5.0]))
    pauses = draw(st.dictionaries(some, asleep))
    outages = draw(st.lists(st.tuples(WHEN, st.sampled_from([0.1, 0.5, 1.7])), max_size=2))
    troubles = Troubles(
        **draw(lives(nodes)),
        stall_ms=draw(st.dictionaries(some, st.sampled_from([100.0, 2_000.0, 30_000.0, 4e5]))),
        pause_ms={n: (t, t + leases * LEASE_MS) for n, (t, leases) in pauses.items()},
        outage_ms=[(t, t + leases * LEASE_MS) for t, leases in outages],
        clock_rate=draw(st.dictionaries(some, st.floats(0.95, 1.05))),
        loss=draw(st.sampled_from([0.0, 0.3, 1.0])),
        repeats=draw(st.sampled_from([0.0, 0.5])),
        answers_lost=draw(st.sampled_from([0.0, 0.1, 0.4])),
        answers_repeated=draw(st.sampled_from([0.0, 0.3])),
        hop_ms=draw(st.sampled_from([(0.2, 2.0), (0.2, 3_000.0)])),
        handler_stop_ms=draw(st.sampled_from([0.0, 1_000.0, 60_000.0])),
    )
    start = draw(st.sampled_from(["balanced", "one-node", "empty"]))
    partitions = draw(st.integers(1, 12))
    return LeaseScene(
        nodes=nodes, partitions=partitions, periods=40, start=start, troubles=troubles
    )


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(rough_scenes(), st.integers(0, 2**32))
def test_at_most_one_may_act_whatever_goes_wrong(scene, seed):
    """Stalls, sleep beyond the lease, deaths, drains, outages, lost answers, clocks of 5 %."""
    safe(run_leases(scene, seed, journal=lambda *_: None))


@settings(max_examples=examples(30))
@given(rough_scenes(), st.integers(0, 2**32))
def test_when_the_troubles_are_over_the_living_share_everything_evenly(scene, seed):
    """Also without a single message."""
    troubles = scene.troubles
    rough = {
        name: getattr(troubles, name)
        for name in Troubles.__slots__
        if name not in {"stall_ms", "hop_ms"}
    }
    stall_ms = {node: min(ms, 2_000.0) for node, ms in troubles.stall_ms.items()}
    calm = Troubles(**{**rough, "answers_lost_to_ms": 2.0e6}, stall_ms=stall_ms)
    last_ms = 2.0e6 + 5.0 * LEASE_MS
    periods = int(last_ms / PERIOD_MS) + 30
    result = safe(
        run_leases(
            LeaseScene(
                nodes=scene.nodes,
                partitions=scene.partitions,
                periods=periods,
                start=scene.start,
                troubles=calm,
            ),
            seed,
        )
    )
    gone = (calm.drain_ms.keys() | calm.crash_ms.keys()) - calm.rejoin_ms.keys()
    living = [count for node, count in enumerate(result.counts) if node not in gone]
    if living:
        assert sum(living) == scene.partitions
        assert max(living) - min(living) <= 1


@pytest.mark.slow
@settings(max_examples=examples(40))
@given(
    st.lists(WHEN, min_size=1, max_size=2),
    st.dictionaries(st.integers(1, 3), WHEN),
    st.integers(0, 2**32),
)
def test_a_store_that_forgets_everything_is_told_again(flush_ms, crash_ms, seed):
    """Holders write anew what they hold, before anybody may take it: nothing moves that need not.
    A process that never saw the group before, and comes first, knows of no loss: see the notes."""
    troubles = Troubles(flush_ms=flush_ms, crash_ms=crash_ms, stall_ms={0: 100.0})
    result = safe(run(troubles, seed, nodes=4, partitions=9, periods=40))
    assert sum(result.counts) == 9
    if not crash_ms:
        assert (result.moves, result.unowned_ms_max) == (0, 0.0)


@pytest.mark.parametrize("leases", [0.5, 5.0])
def test_one_that_sleeps_loses_what_it_must_and_no_more(leases):
    """Half a lease time: nothing. Longer: its partitions run elsewhere in time, and it comes back
    to its share."""
    from_ms = 10 * PERIOD_MS
    pause_ms = {2: (from_ms, from_ms + leases * LEASE_MS)}
    result = safe(run(Troubles(pause_ms=pause_ms), nodes=4, partitions=12, periods=60))
    assert result.counts == (3, 3, 3, 3)
    assert result.moves == (0 if leases < 0.9 else 6)
    for tenures in result.tenures:
        for before, after in pairwise(tenures):
            assert (
                after.from_ms - before.entitled_to_ms < 1.1 * PERIOD_MS + LEASE_MS / 10 + WAITS_MS
            )


@pytest.mark.parametrize("outage_ms", [0.5 * LEASE_MS, 2.0 * LEASE_MS])
def test_a_store_that_is_away(outage_ms):
    """For less than a lease: nothing stops. For longer: all stops, and is taken up again within a
    period and the waits; each member says once that it is down, and once that it is back."""
    from_ms = 10 * PERIOD_MS
    troubles = Troubles(outage_ms=[(from_ms, from_ms + outage_ms)])
    result = safe(run(troubles, nodes=4, partitions=12, periods=40))
    for event in ("redis_down", "redis_up"):
        assert sorted(node for _, node, told, _ in result.told if told == event) == [0, 1, 2, 3]
    assert sum(result.counts) == 12
    if outage_ms < LEASE_MS:
        assert (result.moves, result.unowned_ms_max) == (0, 0.0)
    else:
        assert result.unowned_ms_max < outage_ms - 0.5 * LEASE_MS + 1.1 * PERIOD_MS + WAITS_MS


@pytest.mark.parametrize("nodes", [2, 4])
def test_the_dead_are_replaced_in_time(nodes):
    """Within maximum lease, one period and the waits, also where all messages are lost."""
    for seed, loss in enumerate([0.0, 1.0]):
        troubles = Troubles(crash_ms={1: 10.3 * PERIOD_MS}, loss=loss)
        result = safe(run(troubles, seed, nodes=nodes, partitions=4 * nodes, periods=30))
        assert result.moves == result.moves_min == 4
        assert result.unowned_ms_max < LEASE_MS + 1.1 * PERIOD_MS + WAITS_MS
        assert result.counts[1] == 0


def test_a_rolling_restart_lets_nothing_stand_still_for_long():
    """Each member drains and comes back; only what it had moves, at most the hand-over limit."""
    restarts = {node: (10 + 5 * node) * PERIOD_MS for node in range(4)}
    back = {node: ms + 20_000.0 for node, ms in restarts.items()}
    troubles = Troubles(drain_ms=restarts, rejoin_ms=back)
    result = safe(run(troubles, nodes=4, partitions=12, periods=60))
    assert result.counts == (3, 3, 3, 3)
    assert result.moves == result.moves_min == 24
    assert result.unowned_ms_max < TIMES.max_shutdown_ms
    released = [told for _, _, told, _ in result.told if told == "released"]
    assert len(released) == 24
