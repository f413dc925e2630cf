"""A Redis of leases that answers, and says no: read-only, of another password, without scripts, out
of memory, full, loading. Members that run say that it is down, and go on when it is willing again;
those that start are told in one line, or wait where that helps.
"""

from __future__ import annotations

import asyncio

import pytest

from support.leases import redis_faults as faults

pytestmark = pytest.mark.usefixtures("redis_7")

endure = faults.endure
now_s = faults.now_s


def refuse(client, reason):
    """From now on, with connections that are open as well."""
    match reason:
        case "read-only":
            client.replicaof("127.0.0.1", 1)
        case "password":
            client.config_set("requirepass", "sesame")
            client.client_kill_filter(skipme=True)
        case "permissions":
            client.execute_command("ACL", "SETUSER", "default", "-eval", "-evalsha")
        case "OOM":
            client.config_set("maxmemory", 1)
        case "max number":
            client.config_set("maxclients", 1)
            client.client_kill_filter(skipme=True)


def be_willing(client, reason):
    match reason:
        case "read-only":
            client.execute_command("REPLICAOF", "NO", "ONE")
        case "password":
            client.config_set("requirepass", "")
        case "permissions":
            client.execute_command("ACL", "SETUSER", "default", "+eval", "+evalsha")
        case "OOM":
            client.config_set("maxmemory", 0)
        case "max number":
            client.config_set("maxclients", 10_000)


def refused(reason, said):
    @faults.given(serves=True)
    async def story(world):
        """It is told why, once; nobody works beyond the lease; then all goes on."""
        before = world.epochs()
        with faults.client_of(world.server) as client:
            refuse(client, reason)
            at_s = now_s()
            await world.sees_outage()
            await asyncio.sleep(at_s + 1.5 * world.lease_s - now_s())
            over_s = now_s()
            world.group.black_out(at_s, over_s)
            state = await asyncio.to_thread(faults.state_of, world.group.members[world.nodes[-1]])
            assert not state["redis"]["up"]
            assert said in state["redis"]["problem"]
            be_willing(client, reason)
        await world.recovers("willing", over_s)
        await world.is_over(at_s)
        after = world.epochs()
        assert all(after[partition] > before[partition] for partition in before)

    return story


async def loading(world):
    """Restarted with much to read: not ready for longer than a lease."""
    before = world.epochs()
    faults.fill(world.server)
    world.server.client.save()
    world.server.kill()
    at_s = now_s()
    world.server.begin(*faults.SLOW_TO_LOAD)
    await world.sees_outage()
    with faults.client_of(world.server) as client:
        await world.group.until(lambda: has_loaded(client), 20.0, "loaded")
    over_s = now_s()
    assert over_s - at_s > world.lease_s
    world.group.black_out(at_s, over_s)
    await world.recovers("loaded", over_s)
    await world.is_over(at_s)
    after = world.epochs()
    assert all(after[partition] > before[partition] for partition in before)


def has_loaded(client):
    return not client.info("persistence")["loading"]


def test_refusals(endure):
    endure(
        {
            "read-only": refused("read-only", "READONLY"),
            "password": refused("password", "uthentication required"),
            "no scripts": refused("permissions", "permissions"),
            "no memory": refused("OOM", "maxmemory"),
            "full": refused("max number", "reached"),
            "loading": loading,
        }
    )
