"""Broken ways to the Redis of leases: connections that are silent, answers that get lost, channels
that lose, repeat, reorder and forge, or that are not to be had at all.
"""

import asyncio

from support.leases import redis_faults as faults
from support.waiting import slack

endure = faults.endure
now_s = faults.now_s


async def silent_channels(world):
    """Half-open subscriptions: nobody is told, everything goes on by looking; then they are made
    anew."""
    at_s, before = now_s(), world.way.subscribed
    assert world.way.silence(subscribers_only=True) == len(world.nodes)
    assert faults.subscribers(world.server, world.group.name) == len(world.nodes)
    await world.survives_a_death("channels silent")
    await world.group.until(
        lambda: world.way.subscribed >= before + len(world.nodes), 10.0, "new subscriptions"
    )
    assert world.is_quiet(at_s)


async def silent_connections(world):
    """All connections there are become half-open, again and again: each is replaced before a lease
    is lost."""
    at_s = now_s()
    for _ in range(3):
        assert world.way.silence() >= 3 * len(world.nodes)
        await asyncio.sleep(world.random.uniform(0.5, 1.0) * world.lease_s)
    await world.group.until_served(since_s=now_s(), limit_s=faults.slack_s())
    assert not [line for line in world.moves(at_s) if line.event in {"lost", "fenced"}]
    await world.survives_a_death("connections silent")


async def silent_way(world):
    """Nothing gets through, new connections neither, and none is closed."""
    before, at_s = world.epochs(), now_s()
    world.way.freeze()
    await world.sees_outage()
    await asyncio.sleep(at_s + 2.0 * world.lease_s - now_s())
    over_s = now_s()
    world.group.black_out(at_s, over_s)
    world.way.thaw()
    await world.recovers("thawed", over_s)
    await world.is_over(at_s)
    after = world.epochs()
    assert all(after[partition] > before[partition] for partition in before)


@faults.given(**faults.THREE)
async def lost_answers(world):
    """Everything is carried out, and nobody hears of it; the way breaks each time. What was granted
    unheard is given back."""
    for _ in range(3):
        world.group.kill("c")
        world.group.spawn("c")
        await asyncio.sleep(world.random.uniform(0.2, 0.9))
        world.way.is_deaf = True
        await asyncio.sleep(world.random.uniform(0.1, 0.8))
        world.way.cut()
        world.way.is_deaf = False
    await world.recovers("heard again", now_s())


@faults.given(**faults.THREE)
async def jumbled_channels(world):
    """Lost, repeated and late messages, and forged ones, rubbish among them, many a second: members
    come and go as before, and nothing moves that should not."""
    jumble = world.way.jumble = faults.Jumble(world.random)
    name, at_s = world.group.name, now_s()
    forging = asyncio.create_task(faults.forge(world.server, name, world.random, 8.0, 200.0, 50))
    await world.stays(1.5 * world.lease_s, at_s)
    await world.survives_a_death("jumbled")
    await forging
    assert min(jumble.counts.values()) > 0, jumble.counts
    await world.group.until(
        lambda: faults.subscribers(world.server, name) == len(world.nodes), 10.0, "who listens"
    )
    # What is late on a busy machine is taken for half-open, and made anew.
    assert world.way.subscribed <= (len(world.nodes) + 1) * slack()


async def forbidden_channels(world):
    """Users may neither publish nor subscribe."""
    client = world.server.client
    client.execute_command("ACL", "SETUSER", "default", "-subscribe", "-publish")
    client.client_kill_filter(_type="pubsub")
    await world.stays(world.lease_s, now_s())
    assert faults.subscribers(world.server, world.group.name) == 0
    await world.survives_a_death("without channels")
    world.group.terminate("a")
    assert await world.group.ended("a") == 0
    await world.group.until_even(faults.EVEN_S)
    for member in world.group.living.values():
        said = member.log.read_text()
        assert "no messages on the group's channels" in said, said


def test_connections_and_channels(endure):
    endure(
        {
            "silent channels": silent_channels,
            "silent connections": silent_connections,
            "silent way": silent_way,
            "lost answers": lost_answers,
            "jumbled": jumbled_channels,
            "forbidden": forbidden_channels,
        }
    )
