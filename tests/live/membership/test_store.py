"""The configuration in a real Redis: compare-and-set, what is heard of it, and Redis away."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from spillover.inputs.topology_file import short_text
from spillover.live.membership import store as store_module
from spillover.live.membership.store import AWAY, ConfigurationStore
from spillover.model.configuration import Configuration, Stamp, of_file
from spillover.model.errors import StoreRefused, StoreUnreachable
from spillover.model.ids import ClusterId
from spillover.model.topology import Cluster, Topology
from support.loop import until

PLAIN = Topology(name="plain", clusters=(Cluster(id=ClusterId("a"), servers=1),))


def next_of(before: Configuration, by: str, max_hops: int) -> Configuration:
    topology = replace(PLAIN, max_hops=max_hops)
    return before.next((by, 1), topology, short_text(topology))


FIRST = next_of(of_file(PLAIN), "a", 3)


@asynccontextmanager
async def with_store(url, federation):
    store = ConfigurationStore(url, federation)
    try:
        async with asyncio.timeout(20.0):
            yield store
    finally:
        await store.close()


async def test_one_of_two_is_kept_and_the_other_learns_of_it(redis_server, redis_servers):
    async with with_store(redis_server.url, redis_servers.new_name()) as store:
        assert await store.get() is None
        rival = next_of(of_file(PLAIN), "b", 4)
        puts = [store.put(one, Stamp(0)) for one in (FIRST, rival)]
        answers = await asyncio.gather(*puts)
        assert answers.count(None) == 1
        kept = (FIRST, rival)[answers.index(None)]
        assert await store.get() == kept
        assert kept in answers
        built = next_of(kept, "b", 5)
        assert await store.put(built, kept.stamp) is None
        assert await store.put(FIRST, Stamp(0)) == built
        other = ConfigurationStore(redis_server.url, redis_servers.new_name())
        assert await other.get() is None, "federations share a Redis"
        await other.close()


async def test_what_is_kept_is_heard_at_once_and_also_what_was_kept_before(
    redis_server, redis_servers, monkeypatch
):
    monkeypatch.setattr(store_module, "POLL_S", 3600.0)  # so that nothing else brings it

    async with with_store(redis_server.url, redis_servers.new_name()) as store:
        heard: list[Configuration] = []
        assert await store.put(FIRST, Stamp(0)) is None
        listening = asyncio.create_task(store.listen(heard.append))
        await until(lambda: heard == [FIRST])
        second = next_of(FIRST, "b", 4)
        assert await store.put(second, FIRST.stamp) is None
        await until(lambda: heard[-1] == second)
        listening.cancel()
        await asyncio.wait([listening])


DEEP = '{"stamp":[9,"z",9],"topology":"","more":' + "[" * 100_000


@pytest.mark.parametrize("body", ["nonsense", b"\xff\xfe", DEEP], ids=["words", "binary", "deep"])
async def test_what_is_none_counts_as_nothing(redis_server, redis_servers, body):
    name = redis_servers.new_name()
    key = f"{{spillover:{name}}}:configuration"
    redis_server.client.hset(key, mapping={"stamp": "9 z 9", "body": body})

    async with with_store(redis_server.url, name) as store:
        assert await store.get() is None
        assert await store.put(FIRST, Stamp(0)) is None
        assert await store.get() == FIRST


async def test_redis_goes_and_comes_back(redis_servers, tmp_path, caplog):
    with redis_servers.running(tmp_path) as server, caplog.at_level(logging.INFO):
        async with with_store(server.url, "f") as store:
            heard: list[Configuration] = []
            listening = asyncio.create_task(store.listen(heard.append))
            assert await store.put(FIRST, Stamp(0)) is None
            await until(lambda: heard)
            server.kill()
            with pytest.raises(StoreUnreachable):
                await store.put(next_of(FIRST, "b", 4), FIRST.stamp)
            await until(lambda: store.failures > 1)
            await asyncio.to_thread(server.restart)
            heard.clear()
            second = next_of(FIRST, "b", 5)
            assert await store.put(second, FIRST.stamp) is None, "it has lost all"
            await until(lambda: heard and heard[-1] == second)
            assert store.failures == 0
            listening.cancel()
            await asyncio.wait([listening])
    said = [record.getMessage().partition(" reason=")[0] for record in caplog.records]
    assert said == [AWAY, "the store of the configuration can be read again"]


async def test_who_listens_to_what_cannot_be_read_says_so_and_tries_again(
    redis_server, redis_servers, caplog, monkeypatch
):
    monkeypatch.setattr(store_module._log, "filters", [])  # other tests may just have said the same
    name = redis_servers.new_name()
    key = f"{{spillover:{name}}}:configuration"
    redis_server.client.set(key, "no configuration is kept so")

    with caplog.at_level(logging.INFO):
        async with with_store(redis_server.url, name) as kept:
            heard: list[Configuration] = []
            listening = asyncio.create_task(kept.listen(heard.append))
            await until(lambda: kept.failures >= 3)
            with pytest.raises(StoreRefused, match="WRONGTYPE"):
                await kept.put(FIRST, Stamp(0))
            assert heard == []
            redis_server.client.delete(key)
            assert await kept.put(FIRST, Stamp(0)) is None
            await until(lambda: heard)
            assert (heard[-1], kept.failures) == (FIRST, 0)
            listening.cancel()
            await asyncio.wait([listening])
            assert listening.cancelled()
    said = [record.getMessage().partition(" reason=")[0] for record in caplog.records]
    assert said == [AWAY, "the store of the configuration can be read again"]
    assert "WRONGTYPE" in caplog.records[0].getMessage()
