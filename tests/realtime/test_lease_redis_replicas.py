"""A Redis of leases that fails over: to a replica that lags, that has another clock, or while the
old primary goes on for some of the members. They reach it by an address that leads elsewhere then.
"""

import asyncio
from contextlib import asynccontextmanager

from support.leases import redis_faults as faults

endure = faults.endure
now_s = faults.now_s


HOUR_S = 3600.0


@asynccontextmanager
async def replica_of(world):
    """A replica that has everything, and the way by which it follows."""
    directory = world.directory / "replica"
    directory.mkdir(exist_ok=True)
    with world.servers.running(directory) as replica:
        async with world.servers.WayAside(world.server.port) as link:
            replica.follow(link.port)
            await world.group.until(
                lambda: replica.follows and world.stored(replica) == world.stored(), 10.0, "replica"
            )
            yield replica, link


def promote(world, replica):
    """The primary is gone, and its address leads to what was a replica."""
    world.server.kill()
    replica.client.execute_command("REPLICAOF", "NO", "ONE")
    world.way.target = replica.port
    world.way.cut()
    world.server = replica


def none_went_back(before, after):
    assert all(after[partition] >= before[partition] for partition in before), (before, after)


async def lag_of_leases(world):
    """What happened for longer than a lease is unknown to the new primary: who died, who took over,
    who came again. It is told by those who hold it."""
    async with replica_of(world) as (replica, link):
        link.freeze()
        await world.survives_a_death("while the replica lags")
        before = world.epochs()
        assert world.stored(replica) != world.stored()
        promote(world, replica)
        at_s = now_s()
        await world.recovers("promoted", at_s)
        none_went_back(before, world.epochs())
        assert world.moves(at_s) == []
        await world.survives_a_death("promoted before")


@faults.given(**faults.THREE)
async def lag_in_the_middle_of_moves(world):
    """The replica saw the beginning of a hand-over, a mark for instance, and not its end."""
    for turn in range(2):
        async with replica_of(world) as (replica, link):
            world.group.spawn("d") if turn == 0 else world.group.terminate("d")
            await asyncio.sleep(world.random.uniform(0.4, 1.2))
            link.freeze()
            await asyncio.sleep(world.random.uniform(0.1, 1.0))
            before = world.epochs()
            old, at_s = world.server, now_s()
            promote(world, replica)
            await world.recovers(f"promoted, turn {turn}", at_s)
            none_went_back(before, world.epochs())
            old.restart()
            world.way.target, world.server = old.port, old
            world.way.cut()
            await world.recovers(f"back again, turn {turn}", now_s())


def set_clock(world, server, offset_s):
    """As if that server's clock were off by so much, seen from the one that wrote its data: all
    instants in it are moved the other way. (libfaketime and Redis's allocator do not go together.)
    """
    places = {"allocation": (2, 3, 4), "grab": (1, 2), "members": (0,)}
    for name, instants in places.items():
        key = f"{{spillover:{world.group.name}}}:{name}"
        for field, value in server.client.hgetall(key).items():
            parts = value.split("|")
            for at in instants:
                if int(parts[at]):
                    parts[at] = str(int(parts[at]) - round(1000 * offset_s))
            server.client.hset(key, field, "|".join(parts))


def another_clock(offset_s):
    async def story(world):
        """The new primary's clock is off; a member dies with the old primary. Its partitions are
        taken over in time, and leases last as long as before."""
        async with replica_of(world) as (replica, _):
            before, mine = world.epochs(), world.group.held("b")
            world.group.kill("b")
            world.server.kill()
            replica.client.execute_command("REPLICAOF", "NO", "ONE")
            set_clock(world, replica, offset_s)
            promote(world, replica)
            at_s = now_s()
            await world.recovers("one died with it", at_s)
            after = world.epochs()
            none_went_back(before, after)
            assert all(after[partition] > epoch for partition, epoch in mine.items())
            world.group.spawn("b")
            await world.group.until(lambda: world.group.held("b"), faults.EVEN_S, "share of b")
            await world.group.until_even(faults.EVEN_S)

    return story


@faults.given(nodes=("b", "c"))
async def two_primaries(world):
    """One member still reaches the old one, the others the new one: both sides serve everything,
    and the sink takes only what is later. Once there is one again, there is one holder each."""
    world.overlap_max_s = float("inf")
    async with (
        world.servers.WayAside(world.server.port) as alone,
        replica_of(world) as (replica, link),
    ):
        world.group.spawn("a", url=alone.url)
        await world.group.until(lambda: world.group.held("a"), faults.EVEN_S, "share of a")
        await world.group.until_even(faults.EVEN_S)
        old = world.server
        link.freeze()
        replica.client.execute_command("REPLICAOF", "NO", "ONE")
        world.way.target, world.server = replica.port, replica
        world.way.cut()
        await asyncio.sleep(2.0 * world.lease_s)
        old.follow(replica.port)
        alone.target = replica.port
        over_s = now_s()
        await world.recovers("one again", over_s, more_s=world.lease_s)
        await asyncio.sleep(world.period_s)
        await world.group.until_even(faults.EVEN_S)
        assert {p: epoch for p, (_, epoch) in world.stored().items()} == world.epochs()


def test_promotion(endure):
    endure(
        {
            "lag of leases": lag_of_leases,
            "lag in moves": lag_in_the_middle_of_moves,
            "clock ahead": another_clock(HOUR_S),
            "clock behind": another_clock(-HOUR_S),
            "two primaries": two_primaries,
        }
    )
