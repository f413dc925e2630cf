"""What each operation of a lease store does, on real Redis and in memory alike."""

from spillover.core.leases.records import Allocation, Registration
from spillover.model.lease_times import LeaseTimes
from spillover.policy.leases import EPOCH_MAX

TIMES = LeaseTimes()
T = 1_000_000
"""Where the store's clock stands at first, in ms."""


async def test_the_first_claim_wins_and_gets_the_clock_as_epoch(tell):
    """Grab, activate; the mark stays and blocks others."""
    async with tell(2) as (group, a, b, _):
        assert (await a.join(T)).ok
        assert (await b.join(T)).ok
        assert await a.grab(T, 0)
        assert not await b.grab(T, 0, TIMES.normal_lease_ms)
        assert (await b.activate(T, 0)).epoch is None
        answer = await a.activate(T + 3, 0)
        assert (answer.epoch, answer.free_in_ms) == (T + 3, 0.0)
        assert not await a.is_wanted(T + 4, 0, T + 3)
        assert (await a.renew(T + 4, (0, T + 3))).held == [(0, True, False)]
        survey = await a.survey(T + 4)
        assert (survey.free, survey.mine, survey.own) == ([1], [], [(0, T + 3)])
        # Until the mark is gone, nobody is told of it.
        assert (await b.survey(T + 4)).held == []
        gone = T + 3 + TIMES.min_grab_ms
        assert (await b.survey(gone)).held == [(0, "a", TIMES.min_grab_ms)]
        for now, marks in ((gone - 1, [0]), (gone, [])):
            await a.renew(now, (0, T + 3))
            assert list((await group.snapshot(now)).grabs) == marks


async def test_who_is_no_member_wins_nothing(tell):
    """Neither before it has joined nor after it counts as dead, until it renews."""
    async with tell(2) as (_group, a, _, __):
        assert not await a.grab(T, 0)
        await a.join(T)
        dead = T + TIMES.max_lease_ms
        assert await a.grab(dead - 1, 0)
        assert not await a.grab(dead, 1)
        await a.renew(dead)
        assert await a.grab(dead, 1)


async def test_stale_epochs_and_other_nodes_change_nothing(tell):
    """Renewing, draining, releasing, asking: nothing is stored differently afterwards."""
    async with tell(1) as (group, a, b, _):
        ((_, epoch),) = await a.start(T, 0)
        await b.join(T)
        await b.renew(T + 9)
        before = await group.snapshot(T + 9)
        for member, stale in ((a, epoch - 1), (b, epoch), (b, epoch - 1)):
            assert not await member.drain(T + 9, 0, stale)
            assert not await member.release(T + 9, 0, stale)
            assert not await member.is_wanted(T + 9, 0, stale)
        assert not await a.drain(T + 9, 0, epoch + 1)
        assert not await a.release(T + 9, 0, epoch + 1)
        assert (await b.renew(T + 9, (0, epoch), (0, epoch - 1))).held == [(0, False, False)] * 2
        after = await group.snapshot(T + 9)
        assert (after.allocations, after.grabs) == (before.allocations, before.grabs)


async def test_a_living_holder_is_asked_and_never_robbed(tell):
    """Won, drained, released, started: only then does the winner get an epoch."""
    async with tell(2) as (_group, a, b, c):
        held = await a.start(T, 0, 1)
        epoch = held[0][1]
        now = T + TIMES.normal_lease_ms
        await a.renew(now, *held)
        await b.join(now)
        assert not await a.is_wanted(now, 0, epoch)
        assert await b.grab(now, 0)
        assert not await c.grab(now, 0)
        assert await a.is_wanted(now, 0, epoch)
        assert (await a.renew(now, *held)).held == [(0, True, True), (1, True, False)]
        assert (await b.activate(now, 0)).free_in_ms == TIMES.max_lease_ms
        assert (await c.activate(now, 0)).free_in_ms == 0.0
        assert (await b.survey(now)).mine == [0]
        assert await a.drain(now, 0, epoch)
        assert await a.drain(now + 5, 0, epoch)
        assert (await b.activate(now + 5, 0)).free_in_ms == TIMES.max_shutdown_ms - 5
        assert await a.release(now + 6, 0, epoch)
        assert not await a.release(now + 6, 0, epoch)
        assert (await a.renew(now + 6, *held)).held[0] == (0, False, False)
        assert (await b.activate(now + 6, 0)).epoch == now + 6


async def test_a_holder_that_never_stops_loses_it_at_the_limit_and_a_dead_winner_too(tell):
    """Renewals do not put off the shutdown limit; the mark of a winner has its own."""
    async with tell(2) as (_group, a, b, c):
        held = await a.start(T, 0, 1)
        now = T + TIMES.normal_lease_ms
        await a.renew(now, *held)
        await b.join(now)
        assert await b.grab(now, 0)
        assert await a.drain(now, *held[0])
        over = now + TIMES.max_shutdown_ms
        assert (await a.renew(over - 1, held[0])).held == [(0, True, True)]
        assert (await a.renew(over, held[0])).held == [(0, False, False)]
        freed = now + TIMES.grab_limit_ms
        await c.join(freed)
        assert not await c.grab(freed - 1, 0)
        assert (await c.survey(freed)).free == [0]
        assert await c.grab(freed, 0)
        assert (await b.activate(freed, 0)).epoch is None
        assert (await c.activate(freed, 0)).epoch == freed


async def test_a_lease_that_is_not_renewed_ends_and_its_epoch_is_remembered(tell):
    """The last holder cannot renew it then. A clock that was set back gives a later epoch, too."""
    async with tell(1) as (_group, a, b, _):
        ((_, epoch),) = await a.start(T, 0)
        over = T + TIMES.max_lease_ms
        assert (await b.survey(over - 1)).free == []
        assert (await b.survey(over)).free == [0]
        assert (await a.renew(over, (0, epoch))).held == [(0, False, False)]
        await b.join(over)
        assert await b.grab(over, 0)
        assert await a.release(over, 0, epoch) is False
        assert (await b.activate(over, 0)).epoch == over
        assert await b.release(over, 0, over)
        later = over + TIMES.grab_limit_ms
        await a.renew(later)
        assert await a.grab(later, 0, TIMES.normal_lease_ms)
        assert (await a.activate(over - 100, 0)).epoch == over + 1


async def test_two_processes_of_one_id(tell, member_of):
    """The second waits for the first to count as dead; the first is displaced then."""
    async with tell(1) as (group, a, b, _):
        ((_, epoch),) = await a.start(T, 0)
        rival = member_of(group, "a", "i2")
        assert (await a.join(T + 5)).ok
        joined = await rival.join(T + 5)
        assert (joined.ok, joined.other_alive_ms) == (False, TIMES.max_lease_ms)
        assert (await rival.renew(T + 5)).displaced
        await rival.leave(T + 5)
        assert set((await group.snapshot(T + 5)).members) == {"a"}, "it was no member"
        assert (await a.renew(T + 6, (0, epoch))).held == [(0, True, False)]
        dead = T + 6 + TIMES.max_lease_ms
        assert (await rival.join(dead)).ok
        answer = await a.renew(dead, (0, epoch))
        assert (answer.displaced, answer.held) == (True, [(0, False, False)])
        await a.leave(dead)
        assert set((await group.snapshot(dead)).members) == {"a"}, "it is one no more"
        assert not (await rival.renew(dead)).displaced
        await rival.leave(dead)
        assert (await b.survey(dead)).standing.held == {}


async def test_who_joins_clears_the_dead_away(tell, member_of):
    """Ids that are used once do not pile up; those that live stay, and one of the dead that was
    only frozen is a member again with its next renewal."""
    async with tell(1) as (group, a, b, c):
        await a.join(T)
        pods = [member_of(group, f"pod-{number}") for number in range(5)]
        for pod in pods:
            await pod.join(T)
        await b.join(T + 1)
        dead = T + TIMES.max_lease_ms
        assert not (await member_of(group, "b", "i2").join(dead)).ok
        assert len((await group.snapshot(dead)).members) == 7
        assert (await c.join(dead)).ok
        assert set((await group.snapshot(dead)).members) == {"b", "c"}
        assert not await a.grab(dead, 0)
        assert not (await a.renew(dead)).displaced
        assert await a.grab(dead, 0)
        assert (await pods[0].join(dead + 1)).ok
        assert set((await group.snapshot(dead)).members) == {"a", "c", "pod-0"}


async def test_behind_the_last_epoch_that_can_be_read_they_begin_anew(tell):
    """As what somebody wrote there has it: the one behind it would be read by nobody, and a
    partition that is served would count as free."""
    async with tell(2) as (group, a, _, __):
        await a.join(T)
        await group.put(
            {0: Allocation("b", EPOCH_MAX, T, 0, 0)}, {}, {"a": Registration(T + 1, "i1")}
        )
        assert await a.grab(T, 0, TIMES.normal_lease_ms)
        assert (await a.activate(T, 0)).epoch == T
        assert (await a.survey(T)).own == [(0, T)]
