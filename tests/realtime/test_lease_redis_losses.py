"""A Redis of leases that forgets: flushed, killed and back with nothing or with what once was.

Epochs grow all the same, and who holds a lease goes on and has it written down again.
"""

import asyncio

from support.leases import redis_faults as faults

endure = faults.endure
now_s = faults.now_s


def grew(before, after):
    return all(after[partition] > epoch for partition, epoch in before.items())


async def is_written_down(world, before):
    """What the members hold stands in Redis again, under the epochs that they have."""
    await world.group.until(
        lambda: {p: epoch for p, (_, epoch) in world.stored().items()} == before,
        world.period_s + faults.slack_s(),
        "registered anew",
    )


async def flushed(world):
    """Nothing moves, twice; also a member that dies just then leaves nothing behind for good."""
    before, at_s = world.epochs(), now_s()
    for _ in range(2):
        world.server.client.flushall()
        await is_written_down(world, before)
    await world.stays(world.lease_s, at_s)
    assert world.epochs() == before
    world.server.client.flushall()
    await world.survives_a_death("flushed, one killed")
    world.server.client.flushall()
    await world.survives_a_death("again")


async def back_with_nothing(world):
    """Soon: nothing moves. After two leases: all have fenced themselves, and begin with later
    epochs."""
    before, at_s = world.epochs(), now_s()
    world.server.restart()
    await is_written_down(world, before)
    await world.stays(world.lease_s, at_s)
    assert world.epochs() == before
    world.server.kill()
    at_s = now_s()
    await world.sees_outage()
    await asyncio.sleep(at_s + 2.0 * world.lease_s - now_s())
    world.group.black_out(at_s, now_s())
    world.server.restart()
    await world.recovers("empty", now_s())
    await world.is_over(at_s)
    assert grew(before, world.epochs())


async def back_with_old_data(world):
    """A copy of long ago, and one of a moment ago, each from before much has changed hands."""
    for age, what in ((1.2 * world.lease_s, "long ago"), (0.0, "a moment ago")):
        first = world.epochs()
        world.server.client.save()
        world.group.terminate("b")
        assert await world.group.ended("b") == 0
        await world.group.until_even()
        world.group.spawn("b")
        await world.group.until(lambda: world.group.held("b"), faults.EVEN_S, "share of b")
        await world.group.until_even()
        await asyncio.sleep(age)
        before = world.epochs()
        assert before != first
        world.server.restart()
        over_s = now_s()
        await world.recovers(what, over_s)
        await is_written_down(world, world.epochs())
        after = world.epochs()
        assert all(after[partition] >= before[partition] for partition in before)


@faults.given(**faults.THREE, options=("--appendonly", "yes", "--appendfsync", "always"))
async def killed_again_and_again(world):
    """At any moment, in the middle of whatever is going on, with all data kept; then it stays."""
    group = world.group
    for turn in range(4):
        await asyncio.sleep(world.random.uniform(0.05, 1.2))
        if turn % 2:
            group.kill("c")
            group.spawn("c")
        world.server.kill()
        await asyncio.sleep(world.random.uniform(0.0, 0.5))
        world.server.restart()
    await world.recovers("killed 4 times", now_s())


@faults.given(same_sink=True, options=("--appendonly", "yes", "--appendfsync", "always"))
async def one_for_all(world):
    """What handlers write is in the very Redis that fails: they fail with it, and go on."""
    world.server.pause()
    at_s = now_s()
    await asyncio.sleep(1.5 * world.lease_s)
    over_s = now_s()
    world.server.resume()
    world.group.black_out(at_s, over_s)
    await world.recovers("resumed", over_s)
    world.server.kill()
    await asyncio.sleep(0.3 * world.lease_s)
    world.server.restart()
    # Who failed stays away for a while, a lease at the longest.
    await world.recovers("restarted", now_s(), more_s=world.lease_s)


async def without_scripts(world):
    """Scripts that Redis forgets between any two calls are sent again; nobody notices."""
    client, at_s = world.server.client, now_s()
    flushing = asyncio.create_task(_flush_scripts(client))
    await world.stays(world.lease_s, at_s)
    await world.survives_a_death("scripts flushed")
    flushing.cancel()
    assert world.is_quiet(at_s)


async def _flush_scripts(client):
    while True:
        client.script_flush()
        await asyncio.sleep(0.005)


def test_loss(endure):
    endure(
        {
            "flushed": flushed,
            "nothing kept": back_with_nothing,
            "old data": back_with_old_data,
            "killed at random": killed_again_and_again,
            "one for all": one_for_all,
            "scripts flushed": without_scripts,
        }
    )
