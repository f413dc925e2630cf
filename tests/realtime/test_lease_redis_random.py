"""Everything that a Redis and the way to it can do wrong, in any order, while members die as well:
for SPILLOVER_SOAK_S seconds, drawn from SPILLOVER_TEST_SEED, which each failure tells.
"""

import asyncio
import contextlib
import os

import pytest

from support.leases import redis_faults as faults

endure = faults.endure
now_s = faults.now_s

SOAK_S = float(os.environ.get("SPILLOVER_SOAK_S", "0"))
WORLDS = 2
HARMS_MAX = 3
"""So many, one upon the other, before all must be well."""


async def pause(world, for_s):
    world.server.pause()
    await asyncio.sleep(for_s)
    world.server.resume()


async def empty(world, for_s):
    world.server.kill()
    await asyncio.sleep(for_s)
    world.server.restart()


async def flush(world, for_s):
    world.server.client.flushall()
    await asyncio.sleep(for_s)


async def forget(world, for_s):
    """Back to what was, some time ago."""
    world.server.client.save()
    await asyncio.sleep(for_s)
    world.server.restart()
    (world.directory / "dump.rdb").unlink()


async def forget_scripts(world, for_s):
    until_s = now_s() + for_s
    while now_s() < until_s:
        world.server.client.script_flush()
        await asyncio.sleep(0.01)


async def silence(world, for_s):
    world.way.silence()
    await asyncio.sleep(for_s)


async def freeze(world, for_s):
    world.way.freeze()
    await asyncio.sleep(for_s)
    world.way.thaw()


async def cut(world, for_s):
    world.way.cut()
    await asyncio.sleep(for_s)


async def be_deaf(world, for_s):
    world.way.is_deaf = True
    await asyncio.sleep(for_s)
    world.way.cut()
    world.way.is_deaf = False


async def be_slow(world, for_s):
    world.way.delay_s = world.random.uniform(0.0, 2.0 * world.renewal_limit_s)
    await asyncio.sleep(for_s)
    world.way.delay_s = 0.0


async def jumble(world, for_s):
    world.way.jumble = faults.Jumble(world.random)
    with contextlib.suppress(OSError):
        await faults.forge(world.server, world.group.name, world.random, for_s, 100.0)
    world.way.jumble = None


async def lose_channels(world, for_s):
    world.way.has_no_channels = True
    world.way.cut()
    await asyncio.sleep(for_s)
    world.way.has_no_channels = False


async def be_read_only(world, for_s):
    world.server.client.replicaof("127.0.0.1", 1)
    await asyncio.sleep(for_s)
    world.server.client.execute_command("REPLICAOF", "NO", "ONE")


async def have_no_room(world, for_s):
    world.server.client.config_set("maxmemory", 1)
    await asyncio.sleep(for_s)
    world.server.client.config_set("maxmemory", 0)


HARMS = (
    pause, empty, flush, forget, forget_scripts, silence, freeze, cut, be_deaf, be_slow, jumble,
    lose_channels, be_read_only, have_no_room,
)  # fmt: skip


async def whatever(world):
    """Harm upon harm, some while a member dies; then all is well within the bound."""
    until_s = now_s() + SOAK_S
    turns = 0
    while now_s() < until_s:
        harms = world.random.sample(HARMS, world.random.randint(1, HARMS_MAX))
        lengths = [world.random.choice((0.2, 0.6, 1.5)) * world.lease_s for _ in harms]
        dies = world.random.choice((None, None, *world.nodes))
        told = [f"{h.__name__} {s:.1f} s" for h, s in zip(harms, lengths, strict=True)]
        print(world.name, turns, told, dies, flush=True)  # noqa: T201 - somebody waits
        for harm, for_s in zip(harms, lengths, strict=True):
            if dies is not None and world.random.random() < 0.5:
                world.group.kill(dies)
                world.group.spawn(dies)
            await harm(world, for_s)
        await world.recovers(f"turn {turns}: {told}", now_s())
        turns += 1


@pytest.mark.skipif(not SOAK_S, reason="SPILLOVER_SOAK_S is not set")
@pytest.mark.timeout(SOAK_S + 300.0)
def test_whatever(endure):
    endure({f"world {number}": whatever for number in range(WORLDS)})
