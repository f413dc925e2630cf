"""A server that has become read-only while many calls are under way: each says so, and none breaks
another."""

import asyncio
from importlib.util import find_spec

import pytest

from spillover.live.leases.streams.client import AsyncClient
from spillover.live.leases.streams.steps import Run
from spillover.live.redis.connection import RedisLink, Script
from spillover.model.errors import StoreRefused

pytestmark = pytest.mark.processes

TIMEOUT_S = 20.0
ROUNDS = 10
AT_ONCE = 24
SCRIPT = Script.of("return redis.call('set', KEYS[1], 1)")


@pytest.fixture
def replica(require, redis_servers, tmp_path):
    """A replica of nobody who answers."""
    require(find_spec("redis"), "the extra `leases`")
    with redis_servers.running(tmp_path) as server:
        server.client.replicaof("127.0.0.1", 1)
        yield server


def refused(ask, close):
    """What comes of many at once, again and again: connections are given up and made anew all the
    time."""

    async def main():
        for _ in range(ROUNDS):
            told = await asyncio.gather(*(ask() for _ in range(AT_ONCE)), return_exceptions=True)
            assert {type(one) for one in told} == {StoreRefused}, told
            assert all("is read-only" in str(one) for one in told)
        await close()

    asyncio.run(main())


def test_many_calls_of_a_link(replica):
    link = RedisLink(replica.url, TIMEOUT_S)
    refused(lambda: link.call("SET", "k", "v"), link.close)


def test_many_steps_of_a_reader(replica):
    def steps():
        return (yield Run(SCRIPT, ("k",), ()))

    client = AsyncClient(replica.url, TIMEOUT_S)
    refused(lambda: client.carry_out(steps()), client.close)


async def test_what_reads_meanwhile_is_answered(replica):
    link = RedisLink(replica.url, TIMEOUT_S)
    asked = ("XREAD", "BLOCK", "500", "STREAMS", "nothing", "0")
    waiting = asyncio.ensure_future(link.call(*asked))
    for _ in range(ROUNDS):
        with pytest.raises(StoreRefused, match="is read-only"):
            await link.call("SET", "k", "v")
        if waiting.done():
            break
    assert not await waiting
    await link.close()
