"""Members that start at a Redis of leases that refuses, which they say in one line with status 2;
or that is not there yet, which they say and wait for, until they are told to end.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from support.leases import redis_faults as faults


@pytest.fixture
def scene(redis_servers, redis_server, tmp_path):
    """A redis-server for each name, and a group that nobody is in yet:
    `async with scene({name: options}) as (servers, group)`."""

    @asynccontextmanager
    async def make(options, passwords=None):
        async with AsyncExitStack() as stack:
            found = {}
            for name, given in options.items():
                folder = tmp_path / name
                folder.mkdir()
                password = (passwords or {}).get(name)
                found[name] = stack.enter_context(
                    redis_servers.running(folder, *given, password=password)
                )
            group = faults.lease_members.Group(
                directory=tmp_path,
                url="",
                sink_url=redis_server.url,
                partitions=2,
                handler="idle",
            )
            await stack.enter_async_context(group)
            yield found, group

    return make


PROBLEMS = {"gone": "cannot be reached", "full": "cannot be reached", "loading": "not ready"}


@pytest.mark.usefixtures("redis_7")
def test_what_is_not_there_yet_is_waited_for(scene):
    """Nobody listens; too many others are connected; it still loads. Each is told, once, and those
    that are told to end do so with status 0; the others serve as soon as it can be."""

    async def main():
        async with scene(dict.fromkeys(PROBLEMS, ())) as (servers, group):
            begin_to_load(servers["loading"])
            servers["gone"].kill()
            with faults.client_of(servers["full"]) as client:
                client.config_set("maxclients", 1)
                for node, name in (("never", "gone"), *zip(PROBLEMS, PROBLEMS, strict=True)):
                    group.spawn(node, url=servers[name].url)
                await group.until(lambda: all_told(group, "redis_down"), 30.0, "redis_down")
                client.config_set("maxclients", 10_000)
            with faults.client_of(servers["loading"]) as client:
                client.config_set("key-load-delay", 0)
            group.terminate("never")
            assert await group.ended("never") == 0
            servers["gone"].restart()
            await group.until(lambda: set(group.counts().values()) == {2}, 30.0, "work")
            assert all_told(group, "redis_up")
            statuses = await asyncio.to_thread(group.close)
            assert not any(statuses.values())
            return group.members

    members = asyncio.run(main())
    for node, part in PROBLEMS.items():
        told = members[node].told("redis_down")
        assert len(told) == 1
        assert part in told[0].given["problem"]
    assert not any("Traceback" in member.log.read_text() for member in members.values())


def begin_to_load(server):
    faults.fill(server)
    server.client.save()
    server.kill()
    server.begin(*faults.SLOW_TO_LOAD, "--key-load-delay", "8000")  # till all have begun


def all_told(group, event):
    return all(member.told(event) for member in group.living.values())
