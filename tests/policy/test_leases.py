"""Partition leases: the five times, the waits, who may take what, epochs and the fewest moves."""

from itertools import pairwise, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillover.model.errors import InputError
from spillover.model.lease_times import LeaseTimes
from spillover.policy import leases as leasing

COUNTS = st.lists(st.integers(0, 12), min_size=1, max_size=6)


def fewest_moves_by_trying(counts, alive):
    """Over all ways to give the living even shares: what must leave where it is."""
    living = [count for count, lives in zip(counts, alive, strict=True) if lives]
    share, larger = divmod(sum(counts), len(living))
    shares = [share + (i < larger) for i in range(len(living))]
    return sum(counts) - max(
        sum(map(min, living, targets)) for targets in set(permutations(shares))
    )


def target_counts(counts, alive):
    """What each node has after the fewest moves: the larger shares stay with those that hold most,
    the first of equals first."""
    ranked = sorted((i for i in range(len(counts)) if alive[i]), key=lambda i: -counts[i])
    targets = [0] * len(counts)
    for rank, node in enumerate(ranked):
        share, larger = divmod(sum(counts), len(ranked))
        targets[node] = share + (rank < larger)
    return targets


@given(COUNTS, st.data())
def test_fewest_moves_by_brute_force(counts, data):
    """The closed form, the targets and trying all assignments agree."""
    alive = data.draw(st.lists(st.booleans(), min_size=len(counts), max_size=len(counts)))
    targets = target_counts(counts, alive)
    moves = leasing.minimum_moves(counts, alive)
    if not any(alive):
        assert (moves, set(targets)) == (0, {0})
        return
    assert moves == fewest_moves_by_trying(counts, alive)
    assert moves == sum(max(0, h - t) for h, t in zip(counts, targets, strict=True))
    living = [target for target, lives in zip(targets, alive, strict=True) if lives]
    assert max(living) - min(living) <= 1
    assert sum(targets) == sum(counts)


@given(COUNTS, st.integers(0, 8), st.randoms(use_true_random=False))
def test_whatever_is_granted_is_one_of_the_fewest_moves(counts, free, random):
    """Challenges and first claims in any order end even after exactly the fewest moves."""
    partitions, nodes = sum(counts) + free, len(counts)
    alive = [True] * nodes
    if not partitions:
        return
    fewest = leasing.minimum_moves([*counts, free], [*alive, False]) - free
    moves = 0
    while True:
        above = sum(count > partitions // nodes for count in counts)
        held = [
            (i, j)
            for i in range(nodes)
            for j in range(nodes)
            if leasing.may_grab_held(counts[i], counts[j], above, partitions, nodes, 1.0, 1.0, 0, 1)
        ]
        claims = [
            (-1, j)
            for j in range(nodes)
            if free and leasing.may_grab_free(counts[j], above, partitions, nodes, 0.0, 1.0)
        ]
        assert claims or not free
        if not held and not claims:
            break
        giver, taker = random.choice(held + claims)
        if giver < 0:
            free -= 1
        else:
            assert counts[giver] - counts[taker] >= 2
            counts[giver] -= 1
            moves += 1
        counts[taker] += 1
    assert moves == fewest
    assert counts == target_counts(counts, alive)


def test_what_a_newcomer_may_claim():
    """Its share of the free, not more; all of them if nobody else takes them for long."""
    # Four partitions, a peer with one, three free (the Kinesis library's case).
    assert leasing.may_grab_free(0, 0, 4, 2, 0.0, 60.0)
    assert leasing.may_grab_free(1, 0, 4, 2, 0.0, 60.0)
    assert not leasing.may_grab_free(2, 0, 4, 2, 59.0, 60.0)
    assert leasing.may_grab_free(2, 0, 4, 2, 60.0, 60.0)


def test_a_held_partition_is_guarded_in_every_way():
    """Stored counts two apart, residency over, budget left: each alone refuses."""
    granted = (6, 2, 1, 16, 4, 30.0, 30.0, 0, 1)
    assert leasing.may_grab_held(*granted)
    for place, value in ((0, 3), (1, 4), (5, 29.0), (7, 1)):
        refused = [*granted]
        refused[place] = value
        assert not leasing.may_grab_held(*refused)


def test_waits_of_the_second_step():
    """Blog's rule at 100 ms: a tie at one apart, the rival first at two apart, last at none."""
    assert leasing.holder_wait_ms(4, 100.0) == 350.0
    assert [leasing.rival_wait_ms(c, 100.0) for c in (2, 3, 4)] == [250.0, 350.0, 450.0]
    assert leasing.spread_wait_ms(3, 100.0, 30_000.0) == 350.0
    assert leasing.spread_wait_ms(1_000, 100.0, 30_000.0) == 30_000.0
    for reading in ("sentences", "parentheses"):
        less, more = leasing.WAIT_READINGS[reading]
        holder_ms = leasing.holder_wait_ms(4, 100.0, less)
        assert holder_ms + 50.0 == leasing.rival_wait_ms(3, 100.0, more)
        assert holder_ms - 50.0 == leasing.rival_wait_ms(2, 100.0, more)


@given(st.lists(st.integers(-(10**12), 10**13), min_size=1, max_size=20))
def test_epochs_only_grow(clock_ms):
    """However the store's clock jumps; and past what was lost once the clock has gone on."""
    epochs = [0]
    for now_ms in clock_ms:
        epochs.append(leasing.next_epoch(epochs[-1], now_ms))
    assert all(earlier < later for earlier, later in pairwise(epochs))
    assert leasing.next_epoch(0, epochs[-1] + 1) > epochs[-1]


def test_the_budget_grows_with_the_share():
    """One at least; a quarter of an even share, so that every size evens out in four periods."""
    assert [leasing.move_budget(p, 4) for p in (1, 16, 17, 64, 1_000)] == [1, 1, 2, 4, 63]


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"max_lease_ms": 179_999.0}, "at least three renewals.* would lose partitions"),
        ({"normal_lease_ms": 60_001.0}, "max_lease_ms: expected at least three renewals"),
        ({"min_grab_ms": 60_000.0}, "less than normal_lease_ms 60000, .*next challenge is due"),
        ({"held_delay_ms": 5_000.0}, "less than min_grab_ms 5000, .*mark of the winner is gone"),
        ({"max_shutdown_ms": 180_000.0}, "less than max_lease_ms 180000, .*taken for dead"),
        ({"held_delay_ms": 0.0}, "held_delay_ms: expected ms above 0, 1000000000 at most, got 0"),
        ({"normal_lease_ms": 9.9}, "at least 10, got 9.9: members would ask Redis faster than"),
        ({"normal_lease_ms": 10.0, "max_lease_ms": 49.0}, "at least 50, .*before its renewal is"),
        ({"max_lease_ms": float("inf")}, "ms above 0, 1000000000 at most, got inf"),
        ({"max_lease_ms": 1.1e9}, "ms above 0, 1000000000 at most, got 1100000000"),
        (
            {"normal_lease_ms": float("nan")},
            "normal_lease_ms: expected ms above 0, 1000000000 at most",
        ),
    ],
)
def test_times_that_break_a_relation_are_refused(changed, told):
    """The message names the field, what was expected, and what would happen."""
    with pytest.raises(InputError, match=told):
        LeaseTimes(**changed)


def test_what_follows_from_the_times():
    """The default times; three renewals in 3 s are just enough."""
    times = LeaseTimes()
    assert times.fence_margin_ms < times.max_lease_ms - 2 * times.renewal_period_ms
    assert times.renewal_period_ms < times.grab_limit_ms <= times.max_lease_ms
    quick = LeaseTimes(
        normal_lease_ms=1_000, max_lease_ms=3_000, max_shutdown_ms=900, min_grab_ms=200
    )
    assert quick.renewal_period_ms == 1_000
    assert quick.grab_limit_ms == 2_900


def test_the_shortest_times():
    """Those of the document, a thousandth each, are some; so are the least."""
    for normal_ms, max_ms in ((60, 180), (10, 50)):
        times = LeaseTimes(
            normal_lease_ms=normal_ms, max_lease_ms=max_ms, max_shutdown_ms=10, min_grab_ms=5,
            held_delay_ms=0.1,
        )  # fmt: skip
        assert times.fence_margin_ms >= 5
