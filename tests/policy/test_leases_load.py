"""Load-weighted leases: moves lessen the imbalance, come to an end, and noise moves nothing."""

from hypothesis import given
from hypothesis import strategies as st

from spillover.policy.leases import (
    LOAD_DAMPING,
    LOAD_LEAST,
    best_shift,
    fair_load,
    load_band,
    may_shift_load,
    may_take_load,
    smoothed_load,
    told_load,
)

LOADS = st.lists(st.integers(0, 100).map(float), min_size=1, max_size=20)
FLOOR = 1.0


def totals(loads, where, nodes):
    return [
        sum(load for load, node in zip(loads, where, strict=True) if node == n)
        for n in range(nodes)
    ]


def shift_once(loads, where, nodes, floor=FLOOR):
    """The least loaded node takes from the most loaded that will give; whether it did."""
    held = totals(loads, where, nodes)
    mean = sum(held) / nodes
    band = load_band(mean, floor)
    receiver = held.index(min(held))
    for giver in sorted(range(nodes), key=lambda node: -held[node]):
        mine = [p for p in range(len(loads)) if where[p] == giver]
        chosen = best_shift(
            [loads[p] for p in mine], held[giver], held[receiver], mean, band, min(held)
        )
        if chosen >= 0:
            where[mine[chosen]] = receiver
            return True
    return False


@given(LOADS, st.integers(1, 5), st.randoms(use_true_random=False))
def test_moves_lessen_the_imbalance_and_come_to_an_end(loads, nodes, random):
    """The spread never grows, and partitions without load stay where they are."""
    where = [random.randrange(nodes) for _ in loads]
    first = list(where)
    held = totals(loads, where, nodes)
    for _ in range(10 * len(loads) + 1):
        squares = sum(total**2 for total in held)
        if not shift_once(loads, where, nodes):
            break
        before, held = held, totals(loads, where, nodes)
        assert sum(total**2 for total in held) < squares
        assert max(held) <= max(before) + 1e-9
    else:
        raise AssertionError("it goes on moving")
    assert all(where[p] == first[p] for p, load in enumerate(loads) if load == 0.0)


@given(*[st.integers(0, 100).map(float)] * 6)
def test_what_may_move_evens_out_and_is_not_given_back(giver, receiver, load, mean, floor, least):
    """After the move the receiver has less than the giver had, and does not give it back."""
    band = load_band(mean, floor)
    if may_shift_load(giver, receiver, load, mean, band, least):
        assert load > 0.0
        assert max(giver - load, receiver + load) < giver
        assert not may_shift_load(receiver + load, giver - load, load, mean, band, least)
        assert load <= LOAD_DAMPING * (giver - receiver)


@given(LOADS, *[st.floats(0.0, 200.0)] * 4)
def test_the_best_shift_is_the_best_of_all(loads, giver, receiver, mean, least):
    """Against trying each."""
    band = load_band(mean, FLOOR)
    gaps = {
        i: abs((giver - load) - (receiver + load))
        for i, load in enumerate(loads)
        if may_shift_load(giver, receiver, load, mean, band, least)
    }
    chosen = best_shift(loads, giver, receiver, mean, band, least)
    if not gaps:
        assert chosen == -1
    else:
        assert abs(gaps[chosen] - min(gaps.values())) < 1e-9


@given(
    st.floats(1.0, 1e9),
    st.lists(st.floats(-0.11, 0.11), min_size=1, max_size=30),
)
def test_bounded_noise_changes_no_load_that_is_told(load, wrong):
    """Measured up to 11 % wrong, told the same from the first time on."""
    smoothed = told = first = load * (1.0 + wrong[0])
    for share in wrong:
        smoothed = smoothed_load(smoothed, load * (1.0 + share))
        told = told_load(told, smoothed)
    assert told == first


def test_a_load_that_changes_is_told_anew():
    """Up and down; but not where all of it is hardly anything."""
    assert told_load(100.0, 126.0) == 126.0
    assert told_load(100.0, 74.0) == 74.0
    assert told_load(100.0, 124.0) == told_load(100.0, 76.0) == 100.0
    assert told_load(LOAD_LEAST, LOAD_LEAST + 0.9) == LOAD_LEAST


@given(st.lists(st.integers(0, 100), min_size=1, max_size=20), st.integers(1, 6))
def test_what_fills_a_node_does_not_count_for_the_others(loads, nodes):
    """Against taking the heaviest away one by one."""
    rest, left = sorted(loads, reverse=True), nodes
    while rest and left > 1 and rest[0] > sum(rest) / left:
        del rest[0]
        left -= 1
    assert fair_load(loads, nodes) == sum(rest) / left
    assert fair_load(loads, nodes) <= sum(loads) / nodes


def test_who_may_take_what_is_free():
    """Whoever it leaves within the band, the least loaded, and in the end anyone."""
    free = {"mean": 10.0, "band": 1.0, "patience_ms": 60.0}
    assert may_take_load(6.0, 0.0, 5.0, free_for_ms=0.0, **free)
    assert not may_take_load(6.1, 0.0, 5.0, free_for_ms=59.0, **free)
    assert may_take_load(6.1, 6.1, 50.0, free_for_ms=0.0, **free)
    assert may_take_load(99.0, 0.0, 5.0, free_for_ms=60.0, **free)


def test_one_hot_partition_has_a_node_to_itself():
    """The others leave it, until what is left cannot be evened out."""
    loads = [30.0] + [10.0] * 6
    where = [0, 0, 0, 1, 1, 2, 2]
    while shift_once(loads, where, 3):
        pass
    assert sorted(totals(loads, where, 3)) == [30.0, 30.0, 30.0]
    assert where.count(where[0]) == 1


def test_with_little_to_do_nothing_moves():
    """The band has a floor."""
    loads = [0.3, 0.3, 0.0, 0.0]
    where = [0, 0, 1, 1]
    assert not shift_once(loads, where, 2)
    assert shift_once([30.0, 30.0, 0.0, 0.0], where, 2)
