"""The lease store on a real Redis: one winner, one round trip, lost data. By Redis's own clock.

What each operation does is in tests/contract.
"""

import asyncio
from contextlib import asynccontextmanager

import pytest

from spillover.core.leases.records import Standing
from spillover.live.leases.store import RedisLeaseStore
from spillover.model.lease_times import LeaseTimes

TIMES = LeaseTimes()
PATIENT = TIMES.normal_lease_ms


@asynccontextmanager
async def stores_at(url, group, count, *, partitions=1, times=TIMES, **given):
    """As many stores as members, each with its own connections."""
    given = {"timeout_s": 10.0} | given
    stores = [RedisLeaseStore(url, group, partitions, times, **given) for _ in range(count)]
    try:
        yield stores
    finally:
        await asyncio.gather(*(store.close() for store in stores))


@pytest.fixture
def group(redis_servers):
    return redis_servers.new_name()


async def test_each_operation_is_one_round_trip(redis_server, group):
    async with stores_at(redis_server.url, group, 1, partitions=2) as (store,):
        await store.join("a", "i")
        operations = {
            "join": ("a", "i"),
            "grab": (0, "a", 0.0),
            "activate": (0, "a"),
            "renew": ("a", "i", [(0, 1), (1, 2)]),
            "is_wanted": (0, "a", 1),
            "drain": (0, "a", 1),
            "release": (0, "a", 1),
            "survey": ("a",),
            "publish_challenge": (0, 1),
            "publish_allocated": (0,),
            "leave": ("a", "i"),
        }
        for name, arguments in operations.items():
            redis_server.client.script_flush()
            before = store.round_trips
            await getattr(store, name)(*arguments)
            # In full once, after a try by its digest that was in vain.
            first = 1 if name.startswith("publish") else 2
            assert (store.round_trips - before, name) == (first, name)
            await getattr(store, name)(*arguments)
            assert (store.round_trips - before, name) == (first + 1, name)


async def own(store, name, redis_servers):
    """Join, win and activate as soon as may be; the epoch."""
    await store.join(name, "i")
    await redis_servers.until(lambda: grab(store, name))
    return await redis_servers.until(lambda: epoch_of(store, name))


async def grab(store, name):
    """As a living member."""
    await store.renew(name, "i", [])
    return await store.grab(0, name, PATIENT)


async def epoch_of(store, name):
    return (await store.activate(0, name)).epoch


async def test_a_restart_that_kept_its_data_changes_nothing_but_the_era(
    redis_servers, tmp_path, group
):
    """An append-only file, written at each change."""
    options = ("--appendonly", "yes", "--appendfsync", "always")
    with redis_servers.running(tmp_path, *options) as server:
        async with stores_at(server.url, group, 1) as (a,):
            epoch = await own(a, "a", redis_servers)
            before = await a.snapshot()
            server.restart()
            await a.close()
            assert (await a.snapshot()).allocations == before.allocations
            answer = await a.renew("a", "i", [(0, epoch)])
            assert answer.held == [(0, True, False)]
            assert answer.era != before.era


async def test_a_value_that_cannot_be_read_is_a_partition_never_served(redis_server, group):
    """Somebody wrote into the hashes."""
    tag = f"{{spillover:{group}}}"
    redis_server.client.hset(f"{tag}:allocation", mapping={"0": "n1", "x": "n1|1", "1": "|||"})
    redis_server.client.hset(f"{tag}:grab", mapping={"0": "a|b|c", "9": "n1|0|99999999999999"})
    redis_server.client.hset(f"{tag}:members", mapping={"n1": "soon"})
    async with stores_at(redis_server.url, group, 1, partitions=2) as (store,):
        await store.join("a", "i")
        assert (await store.survey("a")).free == [0, 1]
        for partition in (0, 1):
            assert await store.grab(partition, "a", 0.0)
            assert (await store.activate(partition, "a")).epoch is not None
        assert [partition for partition, _ in (await store.survey("a")).own] == [0, 1]


@pytest.mark.parametrize("value", ["9" * 16, "9" * 23, "9" * 400])
@pytest.mark.parametrize("balance", ["count", "load"])
async def test_numbers_that_nobody_here_wrote_count_for_nothing(
    redis_server, group, value, balance
):
    """An epoch from them would not grow any more, or fit nowhere; a lease would never end."""
    far = "9" * 15

    tag = f"{{spillover:{group}}}"
    put = redis_server.client.hset
    given = {"partitions": 4, "balance": balance}
    async with stores_at(redis_server.url, group, 1, **given) as (store,):
        await store.join("a", "i")
        put(f"{tag}:allocation", mapping={"0": f"a|{value}|1|{far}|0", "1": f"b|7|1|{value}|0"})
        put(f"{tag}:allocation", mapping={"2": f"a|7|{value}|{far}|0", "3": "b|7|1|0|0"})
        put(f"{tag}:grab", mapping={"1": f"b|1|{value}", "2": f"b|{value}|{far}"})
        put(f"{tag}:members", mapping={"b": f"{value}|j"})
        put(f"{tag}:load", mapping={"0": f"{value}|{far}", "1": f"1000|{value}"})
        survey = await store.survey("a")
        assert survey.standing == Standing({"a": 0}, {"a": 0}, 0)
        assert survey.free == [0, 1, 2, 3]
        for partition in range(4):
            assert await store.grab(partition, "a", 0.0)
            epoch = (await store.activate(partition, "a")).epoch
            assert 10**12 < epoch < 10**15
            assert (await store.renew("a", "i", [(partition, epoch)])).held[0][1]


async def test_fields_that_are_no_partition_and_no_member_count_for_nothing(redis_server, group):
    """Neither for a member that reads, nor for the scripts; also where lines are broken."""
    tag = f"{{spillover:{group}}}"
    put = redis_server.client.hset
    async with stores_at(redis_server.url, group, 1, partitions=2) as (store,):
        await store.join("a", "i")
        live = "a|7|1|999999999999999|0"
        odd = [
            "-1",
            "01",
            "+1",
            " 1",
            "1e0",
            "0x1",
            "0.5",
            "1_0",
            "\u0661",
            "",
            "5",
            "\n",
            "1\nx",
        ]
        put(f"{tag}:allocation", mapping=dict.fromkeys(odd, live) | {"0": live})
        put(f"{tag}:grab", mapping=dict.fromkeys(odd, "a|1|999999999999999"))
        put(
            f"{tag}:members",
            mapping=dict.fromkeys(["", "x y", "a|b", "\n"], "999999999999999|i"),
        )
        survey = await store.survey("a")
        assert survey.standing == Standing({"a": 1}, {"a": 0}, 0)
        assert (survey.own, survey.free) == ([(0, 7)], [1])
        assert await store.grab(1, "a", 0.0), "by count one more belongs to the only member"


async def test_what_nobody_here_wrote_is_not_cleared_away(redis_server, group):
    """Of the dead, a member that joins removes only what is one for sure."""
    odd = {"n1": "soon", "n2": "9" * 16 + "|i", "n3": "0|i|j", "x y": "1|i", "": "1|i"}

    key = f"{{spillover:{group}}}:members"
    redis_server.client.hset(key, mapping={**odd, "dead": "1|i", "gone": "0|"})
    async with stores_at(redis_server.url, group, 1) as (store,):
        await store.join("a", "i")
    assert set(redis_server.client.hkeys(key)) == {*odd, "a"}
