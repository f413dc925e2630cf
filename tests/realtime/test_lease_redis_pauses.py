"""A Redis of leases that stands still, or is slow, for less and for more than a lease lasts."""

from __future__ import annotations

import asyncio

from spillover.model.lease_times import LeaseTimes
from support.leases import redis_faults as faults

endure = faults.endure
now_s = faults.now_s


async def paused_for_half_a_lease(world):
    """It costs nothing: no lease moves, no epoch changes."""
    before, at_s = world.epochs(), now_s()
    world.server.pause()
    await asyncio.sleep(0.5 * world.lease_s)
    world.server.resume()
    await world.stays(2.0 * world.period_s, at_s)
    assert world.epochs() == before


def paused(leases):
    async def story(world):
        """All fence themselves, and have everything again, later epochs all."""
        before = world.epochs()
        world.server.pause()
        at_s = now_s()
        await world.sees_outage()
        await asyncio.sleep(at_s + leases * world.lease_s - now_s())
        over_s = now_s()
        world.group.black_out(at_s, over_s)
        assert world.epochs() == {}
        world.server.resume()
        await world.recovers("resumed", over_s)
        await world.is_over(at_s)
        after = world.epochs()
        assert all(after[partition] > before[partition] for partition in before)

    return story


async def ended_while_paused(world):
    """Whoever is told to end does so, with status 0, though nobody can be told; the others take
    over when that can be known."""
    group = world.group
    world.server.pause()
    at_s = now_s()
    await asyncio.sleep(0.2)
    group.terminate("b")
    # Twice the shutdown time for saying so, then what is under way is given up.
    limit_s = 2.0 * group.times.max_shutdown_ms / 1000.0 + 2.0 + faults.slack_s()
    assert await group.ended("b", limit_s) == 0
    await asyncio.sleep(max(0.0, at_s + world.lease_s - now_s()))
    world.server.resume()
    await world.recovers("one less", now_s())


UNHURRIED = faults.given(
    times=LeaseTimes(
        normal_lease_ms=1000,
        max_lease_ms=4000,
        max_shutdown_ms=1200,
        min_grab_ms=400,
        held_delay_ms=5,
    )
)
"""Where answers come nearly too late: the way adds to that whenever the machine is busy, being one
thread among many. Two renewals in a row that come too late by it would cost the leases."""


@UNHURRIED
async def slow_but_in_time(world):
    """Every answer takes nearly as long as may be: members share with a newcomer all the same."""
    at_s = now_s()
    world.way.delay_s = 0.4 * world.renewal_limit_s
    await world.stays(world.period_s, at_s)
    world.group.spawn("c")
    await world.group.until(lambda: world.group.held("c"), faults.EVEN_S, "share of c")
    await world.group.until_even(faults.EVEN_S)
    assert not [line for line in world.moves(at_s) if line.event in {"lost", "fenced"}]


@UNHURRIED
async def too_slow_for_all_but_renewals(world):
    """Leases are kept, nothing else gets an answer in time, and that is told."""
    before, at_s = world.epochs(), now_s()
    world.way.delay_s = 0.6 * world.renewal_limit_s
    assert world.way.delay_s > world.period_s / 2.0
    await world.sees_outage()
    await world.stays(1.5 * world.lease_s, at_s)
    world.way.delay_s = 0.0
    await world.is_over(at_s)
    assert world.epochs() == before


async def too_slow(world):
    """Renewals that are carried out, and whose answers come too late, keep nothing."""
    before = world.epochs()
    world.way.delay_s = 1.5 * world.renewal_limit_s
    at_s = now_s()
    await world.sees_outage()
    await asyncio.sleep(at_s + 1.5 * world.lease_s - now_s())
    over_s = now_s()
    world.group.black_out(at_s, over_s)
    world.way.delay_s = 0.0
    await world.recovers("fast again", over_s)
    await world.is_over(at_s)
    after = world.epochs()
    assert all(after[partition] > before[partition] for partition in before)


@faults.given(options=("--enable-debug-command", "yes"))
async def asleep_now_and_then(world):
    """Sleeps below what renewals wait for cost nothing, for all clients or for those that write;
    one that outlasts leases costs them."""
    client, at_s = world.server.client, now_s()
    for call in ("sleep", "all", "write", "sleep", "all"):
        for_s = 0.7 * world.renewal_limit_s
        if call == "sleep":
            await asyncio.to_thread(client.execute_command, "DEBUG", "SLEEP", for_s)
        else:
            client.client_pause(int(1000 * for_s), all=call == "all")
            await asyncio.sleep(for_s)
        await asyncio.sleep(world.random.uniform(0.1, 0.4))
    await world.stays(0.0, at_s)
    at_s = now_s()
    client.client_pause(int(1500 * world.lease_s), all=False)
    await asyncio.sleep(1.5 * world.lease_s)
    assert [line for line in world.moves(at_s) if line.event in {"fenced", "released"}]
    await world.recovers("awake", now_s())
    await world.is_over(at_s)


def test_standing_still_and_slowness(endure):
    endure(
        {
            "half a lease": paused_for_half_a_lease,
            "1.5 leases": paused(1.5),
            "5 leases": paused(5.0),
            "ended meanwhile": ended_while_paused,
            "in time": slow_but_in_time,
            "renewals in time": too_slow_for_all_but_renewals,
            "too slow": too_slow,
            "asleep": asleep_now_and_then,
        }
    )
