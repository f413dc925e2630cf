"""Lease members, processes of this machine, against Redis in a container: they share, one is
killed, one hands over, Redis stands still and comes back empty.

What must hold whatever happens is in `support.leases.reckoning`.
"""

import asyncio

import pytest

from support.leases import members
from support.leases import reckoning as reckonings

IMAGE = "redis:7-bookworm"
SHORT_S = 1.0
"""Half a lease."""
LONG_S = 3.0
"""One and a half."""


@pytest.fixture(scope="module")
def redis_container(engine):
    """Published on loopback only."""
    from testcontainers.community.redis import RedisContainer

    redis = RedisContainer(IMAGE)
    redis.ports = dict.fromkeys(redis.ports, ("127.0.0.1", None))
    with redis:
        yield redis


@pytest.fixture(scope="module")
def url(redis_container):
    """Asked for while it runs: of a container that stands still it cannot be told."""
    port = redis_container.get_exposed_port(6379)
    return f"redis://{redis_container.get_container_host_ip()}:{port}/0"


def test_members_share_one_is_killed_one_hands_over(url, tmp_path):
    """In the time that leases take to run out, and at once."""

    async def scenario():
        group = members.Group(directory=tmp_path, url=url, partitions=9)
        async with reckonings.judged(group, "a", "b", "c"):
            assert sorted(group.counts().values()) == [3, 3, 3]
            lost, killed_s = group.held("a"), group.kill("a")
            took_s = await group.until_served(lost, since_s=killed_s)
            assert took_s <= reckonings.taken_over_s(group.times)
            await group.until_even()
            given, asked_s = group.held("b"), members.now_s()
            group.terminate("b")
            gave_s = await group.until_served(given, since_s=asked_s)
            assert await group.ended("b") == 0
            await group.until(lambda: group.counts() == {"c": 9}, 10.0, "all lines of c are read")
            print(f"\n  containers: killed, run elsewhere after {took_s:.2f} s; "  # noqa: T201
                  f"handed over in {gave_s:.2f} s")  # fmt: skip

    asyncio.run(scenario())


def test_redis_stands_still(redis_container, url, tmp_path):
    """For less than a lease, when nothing is lost, and for longer, when all is, and comes back."""
    container = redis_container.get_wrapped_container()

    async def scenario():
        group = members.Group(directory=tmp_path, url=url, partitions=6, times=members.TIMES)
        async with reckonings.judged(group, "a", "b"):
            for still_s in (SHORT_S, LONG_S):
                await _still(group, container, still_s)
                await group.until_even()
                await group.until_served(since_s=members.now_s())

    asyncio.run(scenario())


async def _still(group, container, for_s):
    began_s = members.now_s()
    await asyncio.to_thread(container.pause)
    try:
        still_s = members.now_s()
        await group.until(lambda: members.now_s() > still_s + for_s, 2 * for_s, "time")
    finally:
        ended_s = members.now_s()
        await asyncio.to_thread(container.unpause)
    if for_s > group.times.max_lease_ms / 1e3:
        group.black_out(still_s, ended_s)
    assert began_s < still_s
