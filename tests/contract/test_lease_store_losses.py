"""What a lease store does after data were lost, on real Redis and in memory alike."""

import pytest

from spillover.core.leases.records import Allocation
from spillover.model.lease_times import LeaseTimes

TIMES = LeaseTimes()
T = 1_000_000
PATIENT = TIMES.normal_lease_ms


async def test_holders_say_first_what_they_hold(tell):
    """All data lost: same epochs again for who holds, and no grabs for one maximum lease."""
    async with tell(4) as (group, a, b, c):
        held_a = await a.start(T, 0, 1)
        held_b = await b.start(T, 2)
        era = (await b.renew(T + 5, *held_b)).era
        await group.lose_all()
        now = T + 10
        answer = await a.renew(now, *held_a)
        assert answer.era != era
        assert answer.held == [(0, True, False), (1, True, False)]
        assert (await c.join(now)).era == answer.era
        for member in (a, c):
            assert not await member.grab(now + TIMES.max_lease_ms - 1, 2, PATIENT)
        assert (await b.renew(now + 7, *held_b)).held == [(2, True, False)]
        after = now + TIMES.max_lease_ms
        await a.renew(after - 1, *held_a)
        await b.renew(after - 1, *held_b)
        await c.renew(after - 1)
        assert (await c.survey(after)).held == [
            (0, "a", after - T),
            (1, "a", after - T),
            (2, "b", after - T),
        ]
        assert (await c.survey(after)).free == [3]
        assert await c.grab(after, 3, PATIENT)


async def test_who_is_new_and_first_at_a_promoted_replica_begins_the_grace_as_well(tell):
    """It never saw the group, but finds another server's era: the replica may not have heard of
    what a holds."""
    async with tell(2) as (group, a, b, c):
        held = await a.start(T, 0)
        await group.put({}, {}, {})
        await group.move()
        now = T + 10
        assert (await c.join(now)).ok
        assert not await c.grab(now, 0, PATIENT)
        assert (await a.renew(now + 1, *held)).held == [(0, True, False)]
        assert (await b.join(now + 2)).ok
        over = now + TIMES.max_lease_ms
        await a.renew(over - 1, *held)
        await c.renew(over - 1)
        assert not await c.grab(over - 1, 1, PATIENT)
        assert (await c.survey(over)).held == [(0, "a", over - T)]
        assert await c.grab(over, 1, PATIENT)


async def test_a_store_that_went_back_to_older_data_learns_of_later_epochs(tell):
    """A replica that had not heard of the last owner believes it, and not the one before."""
    async with tell(1) as (group, a, b, _):
        ((_, epoch),) = await a.start(T, 0)
        await b.join(T)
        await group.move()
        later = epoch + 500
        assert (await b.renew(T + 600, (0, later))).held == [(0, True, False)]
        assert (await a.renew(T + 601, (0, epoch))).held == [(0, False, False)]
        assert not await a.release(T + 602, 0, epoch)
        assert (await a.survey(T + 602)).standing.held == {"a": 0, "b": 1}


async def test_leases_that_only_older_data_take_for_over_go_on(tell):
    """A snapshot older than the leases: who holds goes on; what was released does not."""
    async with tell(2) as (group, a, _b, _):
        held = await a.start(T, 0, 1)
        era = (await a.renew(T, *held)).era
        assert await a.release(T + 1, *held[1])
        now = T + 2 * TIMES.max_lease_ms
        await group.move()
        answer = await a.renew(now, *held)
        assert answer.era != era
        assert answer.held == [(0, True, False), (1, False, False)]
        assert not await a.grab(now, 1, PATIENT)


@pytest.mark.parametrize("moved", [True, False])
async def test_a_clock_that_is_behind_keeps_nobody_alive_for_longer(tell, moved):
    """A promoted replica's, or one that was set back: the dead are dead, marks are over and may
    move what there is, within one maximum lease. Holders keep their epochs."""
    max_lease = TIMES.max_lease_ms
    async with tell(4) as (group, a, b, c):
        held = await a.start(T, 0, 1, 2)
        ((_, epoch),) = await b.start(T, 3)
        await c.join(T)
        assert await c.grab(T + TIMES.min_residency_ms, 0)
        if moved:
            await group.move()
        back = T - 900_000
        assert (await a.renew(back, *held)).held == [
            (0, True, True),
            (1, True, False),
            (2, True, False),
        ]
        snapshot = await group.snapshot(back)
        assert [one.lease_to_ms for _, one in sorted(snapshot.allocations.items())] == [
            back + max_lease
        ] * 4
        assert all(one.since_ms == back for one in snapshot.allocations.values())
        assert snapshot.grabs[0].to_ms <= back + max_lease
        assert [one.alive_to_ms for one in snapshot.members.values()] == [back + max_lease] * 3
        over = back + max_lease
        await a.renew(over - 1, *held)
        survey = await a.survey(over)
        assert (survey.standing.held, survey.free) == ({"a": 3}, [3])
        assert await a.grab(over, 3)
        assert (await a.activate(over, 3)).epoch == epoch + 1


async def test_who_was_to_stop_by_a_clock_that_was_ahead_has_no_longer_than_a_lease(tell):
    """Also where all else that is stored lies within one."""
    max_lease = int(TIMES.max_lease_ms)
    async with tell(4) as (group, a, *_):
        ((_, epoch),) = await a.start(T, 0)
        held = Allocation("a", epoch, T, T + max_lease, T + 10 * max_lease)
        await group.put({0: held}, {}, (await group.snapshot(T)).members)
        await group.move()
        assert (await a.renew(T, (0, epoch))).held == [(0, True, False)]
        assert (await group.snapshot(T)).allocations[0].stop_to_ms == T + max_lease
