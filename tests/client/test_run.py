"""`AsyncSpillover.run` with whole nodes on real sockets, in one loop."""

import asyncio
import importlib.util
from contextlib import asynccontextmanager

import pytest

from spillover.client import (
    AsyncSpillover,
    Cancelled,
    InputError,
)
from support.loop import until

LONG = {"service_ms": 60_000}


@asynccontextmanager
async def a_client(nodes, *ids, retries=None, **topology):
    federation = nodes.Federation(nodes.topology_of(*(ids or "a"), **topology))
    async with federation:
        urls = [federation[cluster].url for cluster in ids or "a"]
        async with AsyncSpillover(urls, retries=retries) as client:
            yield client, federation


async def test_an_answer_has_all_that_its_node_tells(nodes):
    async with a_client(nodes) as (client, _):
        answer = await client.run({"service_ms": 3})
        assert (answer.result, answer.cluster, answer.path) == ({"service_ms": 3.0}, "a", ("a",))
        assert (answer.hops, answer.replayed, len(answer.id)) == (0, False, 24)
        assert answer.timing_ms["service"] == answer.timing_ms["total"] == 3.0
        assert set(answer.timing_ms) == {"queued", "network", "service", "return", "total"}
        assert client.stats == (1, 1, 0, 0, 0, 0)


async def test_a_request_nobody_waits_for_is_cancelled_wherever_it_is(nodes):
    """At its home, in the queue, and at a neighbor."""
    full = {"a": {"queue_limit": 2}, "b": {"servers": 9}}
    async with a_client(nodes, "a", "b", clusters=full) as (client, federation):
        running = [asyncio.create_task(client.run(LONG)) for _ in range(4)]
        home = federation["a"].ledger.home
        await until(lambda: home["accepted"] == 4 and home["away"] == 1)
        for task in running:
            task.cancel()
        await asyncio.wait(running)
        assert all(task.cancelled() for task in running)
        await until(lambda: home["cancelled"] == 4)
        assert client.stats.called_off == 4


async def test_what_has_its_users_key_goes_on(nodes):
    async with a_client(nodes) as (client, federation):
        running = asyncio.create_task(client.run({"service_ms": 200}, key="mine"))
        home = federation["a"].ledger.home
        await until(lambda: home["running"] == 1)
        running.cancel()
        await asyncio.wait([running])
        assert (await client.run({"service_ms": 200}, key="mine")).replayed
        assert (home["accepted"], home["done"], home["cancelled"]) == (1, 1, 0)
        assert client.stats.called_off == 0


async def test_a_closed_client_ends_what_is_under_way_and_takes_no_more(nodes):
    async with a_client(nodes) as (client, federation):
        running = asyncio.create_task(client.run(LONG))
        home = federation["a"].ledger.home
        await until(lambda: home["running"] == 1)
        await client.close()
        with pytest.raises(Cancelled, match="closed"):
            await running
        await until(lambda: home["cancelled"] == 1)
        with pytest.raises(RuntimeError, match="closed"):
            await client.run(None)
        await client.close()


def test_what_is_missing_to_read_redis_is_told_with_how_to_get_it(monkeypatch):
    def found(package):
        return None if package == "redis" else importlib.util.find_spec(package)

    monkeypatch.setattr("spillover.model.extras.find_spec", found)
    with pytest.raises(InputError, match="redis: redis_url needs the extra `leases`"):
        AsyncSpillover("http://x", redis_url="redis://127.0.0.1", federation="f", follow=True)
