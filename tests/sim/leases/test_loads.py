"""Leases by load in virtual time: evened out as far as single moves can, and then sticky."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillover.core.leases.records import LOAD_MAX, LOAD_UNIT
from spillover.model.errors import InputError
from spillover.model.lease_times import LeaseTimes
from spillover.policy.leases import best_shift, fair_load, load_band
from spillover.sim.leases.loads import check_loads, skewed_loads
from spillover.sim.leases.run import LeaseScene, run_leases
from spillover.sim.leases.world import Troubles
from support.few import examples

PERIOD_MS = LeaseTimes().normal_lease_ms
STALLED = Troubles(stall_ms={0: 500.0})


def run(seed=1, troubles=None, **scene):
    scene = {"balance": "load"} | scene
    return run_leases(LeaseScene(troubles=troubles or Troubles(), **scene), seed)


def still_after(result, periods):
    """Whether the last move was within so many periods."""
    return not result.moves_ms or result.moves_ms[-1] < periods * PERIOD_MS


def owners(result):
    return [tenures[-1].node for tenures in result.tenures]


def shifts_left(loads, where, nodes):
    """What could still move, as the rule has it, if loads were known exactly."""
    held = [sum(x for x, node in zip(loads, where, strict=True) if node == n) for n in range(nodes)]
    mean = fair_load(loads, nodes)
    band = load_band(mean, 0.5)
    for giver in range(nodes):
        mine = [x for x, node in zip(loads, where, strict=True) if node == giver]
        for receiver in range(nodes):
            if best_shift(mine, held[giver], held[receiver], mean, band, min(held)) >= 0:
                yield giver, receiver


@pytest.mark.slow
@settings(max_examples=examples(30), deadline=None)
@given(
    loads=st.lists(st.integers(1, 100), min_size=2, max_size=10),
    nodes=st.integers(2, 4),
    start=st.sampled_from(["balanced", "one-node", "empty"]),
    noise=st.sampled_from([0.0, 0.05, 0.1]),
    stalled=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_moves_end_and_noise_moves_nothing(loads, nodes, start, noise, stalled, seed):
    """Constant loads, measured up to 10 % wrong: after convergence not a single move; and with
    exact measurements nothing is left that may move."""
    result = run(
        seed,
        STALLED if stalled else Troubles(),
        nodes=nodes,
        partitions=len(loads),
        periods=100,
        start=start,
        loads=[float(load) for load in loads],
        load_noise=noise,
    )
    assert still_after(result, 40)
    assert result.double_entitled_ms == 0.0
    assert None not in owners(result)
    if not noise:
        assert list(shifts_left(loads, owners(result), nodes)) == []


@pytest.mark.slow
@pytest.mark.parametrize(("start", "noise"), [("balanced", 0.1), ("one-node", 0.3)])
def test_skewed_loads_are_evened_out_and_stay(start, noise):
    """32 partitions by Zipf's law on 4 nodes: within a tenth of the mean, and still thereafter."""
    scene = {"nodes": 4, "partitions": 32, "loads": skewed_loads(32), "start": start}
    by_count = run(balance="count", periods=60, **scene)
    result = run(periods=200, load_noise=noise, **scene)
    assert by_count.load_over_mean_max > 1.5
    assert result.load_over_mean_max < 1.1 + noise
    late = [ms for ms in result.moves_ms if ms > 60 * PERIOD_MS]
    assert len(late) <= (0 if noise < 0.3 else 10)
    assert result.double_entitled_ms == 0.0


def test_who_dies_and_who_joins():
    """A dead holder's loads stand until the next one has measured; a newcomer gets its part."""
    result = run(
        nodes=4,
        partitions=24,
        periods=80,
        start="empty",
        loads=skewed_loads(24),
        load_noise=0.1,
        troubles=Troubles(crash_ms={1: 20 * PERIOD_MS}, join_ms={3: 40 * PERIOD_MS}),
    )
    assert result.counts[1] == 0
    assert result.load_over_mean_max < 1.25
    assert still_after(result, 65)


def test_loads_from_none_to_the_most_and_any_share_of_noise_are_taken():
    check_loads([0.0, 0.2, LOAD_MAX / LOAD_UNIT], 0.0, 3)
    check_loads([0.2], 0.3, 1)
    check_loads([0.2], 1.0, 1)


@pytest.mark.parametrize(
    ("loads", "noise", "told"),
    [
        ([1.0], 0.1, "loads: expected one for each of 2 partitions, got 1"),
        ([1.0, -0.1], 0.1, "loads: expected numbers of 0 to .*, got -0.1"),
        ([1.0, 1.1 * LOAD_MAX / LOAD_UNIT], 0.1, "loads: expected numbers of 0 to "),
        ([1.0, float("nan")], 0.1, "got nan"),
        ([1.0, 1.0], -0.1, "load_noise: expected a share of 0..1, got -0.1"),
        ([1.0, 1.0], 1.1, "load_noise: expected a share of 0..1, got 1.1"),
    ],
)
def test_loads_that_make_no_sense_are_refused(loads, noise, told):
    with pytest.raises(InputError, match=told):
        check_loads(loads, noise, 2)
