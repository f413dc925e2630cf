"""Whatever somebody writes into Redis in the place of a group's records, no script of a group
breaks, no other record is lost, and a member finds its way once it is gone. Likewise where the
readers of streams go on, and the federation's configuration. As long as tests/apps/
test_fuzzed_peers.py says."""

import os
import time
from contextlib import suppress
from dataclasses import fields
from random import Random

import pytest

from spillover.core.leases.records import Allocation, Grab, Registration, StoredLoad
from spillover.live.leases.redis_values import GroupKeys
from spillover.live.leases.renewal.lease import Fenced
from spillover.live.leases.store import RedisLeaseStore
from spillover.live.leases.streams.keys import StreamKeys
from spillover.live.leases.streams.lags import read_lags
from spillover.live.leases.streams.reader import StreamReader
from spillover.live.leases.streams.records import Checkpoint, CheckpointMoved
from spillover.live.leases.streams.writer import StreamWriter
from spillover.live.membership.store import ConfigurationStore
from spillover.live.membership.wire import ConfigurationBody
from spillover.model.errors import InputError, StoreRefused
from spillover.model.lease_times import LeaseTimes
from support.fuzzed import Fuzzed

FIRST = int(os.environ.get("SPILLOVER_SEED", "1"))
SOAK_S = float(os.environ.get("SPILLOVER_SOAK_S", "0"))
COUNT = int(os.environ.get("SPILLOVER_MESSAGES", "600"))
AT_ONCE = 40
PARTITIONS = 8
TIMES = LeaseTimes()
NODE = "n1"
UNREADABLE = "CHECKPOINT of partition 0 cannot be read"

TEXTS = (
    *("n1", "n2", "n3", "x" * 63, "x" * 64, "", " ", "a|b", "a\nb", "a\r\nb", "\u00e9", "\ud800"),
    *("x" * 10_000, "%d", "nan", "\x00", "0-0", "1-1", "18446744073709551615-18446744073709551615"),
    *("18446744073709551616-0", "9" * 25 + "-1", "1-", "-1"),
)
NUMBERS = (
    *("0", "1", "2", "-1", "1.5", "1e3", "1e999", "inf", "nan", "0x10", " 1", "01", "1_0", ""),
    *("9" * 15, "9" * 14, "1" + "0" * 15, "9007199254740993", "9" * 400, "1" + "0" * 5000),
)  # fmt: skip
KEYS = (*map(str, range(PARTITIONS)), "8", "-1", "01", "1e0", "x", "", "9" * 30, "n1", "n2", "\n")


class Records:
    """What is written in their place: fields as they are declared, most of them spoiled."""

    def __init__(self, seed, now_ms):
        self.draw = Random(seed)
        self._now_ms = now_ms

    def value(self, kind):
        """Of a hash."""
        told = [self._part(one.type) for one in fields(kind)]
        draw = self.draw
        if draw.random() < 0.1:
            told.append(draw.choice(NUMBERS))
        if draw.random() < 0.1:
            del told[draw.randrange(len(told))]
        return "|".join(told).encode("utf-8", "surrogatepass")

    def _part(self, kind):
        draw = self.draw
        if kind == "str":
            return draw.choice(TEXTS[:3] if draw.random() < 0.8 else TEXTS)
        if draw.random() < 0.6:
            return str(self._now_ms + draw.choice((-50_000, -1, 0, 1, 500, 60_000)))
        return draw.choice(NUMBERS)

    def key(self):
        return self.draw.choice(KEYS)


def seeds():
    end_s, seed = time.monotonic() + SOAK_S, FIRST
    yield seed
    while time.monotonic() < end_s:
        seed += 1
        yield seed


@pytest.mark.parametrize("balance", ["count", "load"])
async def test_no_script_of_a_group_breaks_by_what_stands_in_its_records(
    redis_server, redis_servers, balance
):
    client = redis_server.client
    for seed in seeds():
        group = redis_servers.new_name()
        keys, records = GroupKeys.of(group), Records(seed, int(time.time() * 1e3))
        kinds = {keys.allocation: Allocation, keys.grab: Grab, keys.members: Registration}
        kinds[keys.load] = StoredLoad

        store = RedisLeaseStore(redis_server.url, group, PARTITIONS, TIMES, balance=balance)
        held = {}
        try:
            for _ in range(COUNT // AT_ONCE):
                with client.pipeline(transaction=False) as pipeline:
                    for _ in range(AT_ONCE):
                        key = records.draw.choice(list(kinds))
                        pipeline.hset(key, records.key(), records.value(kinds[key]))
                    odd = records.draw.choice(NUMBERS)
                    pipeline.hset(keys.group, "grace_to_ms", odd)
                    pipeline.execute()
                await ask_all(store, held, records.draw)
            client.delete(*kinds)
            client.hdel(keys.group, "grace_to_ms")
            await serve_again(store)
        finally:
            await store.close()
        client.delete(*kinds, keys.group)


async def ask_all(store, held, draw):
    """Each operation of a store, as a member asks. It is displaced where a record says so."""
    partition = draw.randrange(PARTITIONS)
    await store.join(NODE, "i1")
    await store.renew(NODE, "i1", list(held.items()))
    told = [(partition, epoch, 2000) for partition, epoch in held.items()]
    survey = await store.survey(NODE, told if store._balance == "load" else ())
    assert len(survey.own) + len(survey.held) + len(survey.free) <= PARTITIONS
    await store.snapshot()
    await store.grab(partition, NODE, draw.choice((0.0, 1e6)))
    epoch = (await store.activate(partition, NODE)).epoch
    if epoch is not None:
        held[partition] = epoch
        assert await store.is_wanted(partition, NODE, epoch) in {True, False}
        # What was given can be read by all: nobody else is given it.
        assert (partition, epoch) in (await store.survey(NODE)).own
    for operation in (store.drain, store.release):
        if held and draw.random() < 0.3:
            one, epoch = held.popitem()
            await operation(one, NODE, epoch)
    if draw.random() < 0.1:
        await store.leave(NODE, "i1")


async def serve_again(store):
    """Once nothing of it is left a member has its share."""
    assert (await store.join(NODE, "i1")).ok
    assert await store.grab(0, NODE, 1e6)
    assert (await store.activate(0, NODE)).epoch is not None


def test_a_checkpoint_that_is_none_costs_no_other_partition(redis_server, redis_servers):
    """It is told as such by whoever claims its partition; its lag counts from the beginning."""
    client = redis_server.client
    for seed in seeds():
        group = redis_servers.new_name()
        keys, records = StreamKeys.of(group), Records(seed, int(time.time() * 1e3))
        with StreamWriter(redis_server.url, group, PARTITIONS) as writer:
            for number in range(2 * PARTITIONS):
                writer.append(str(number), partition=number % PARTITIONS)
        for _ in range(COUNT // AT_ONCE):
            with client.pipeline(transaction=False) as pipeline:
                for _ in range(AT_ONCE):
                    pipeline.hset(keys.checkpoints, records.key(), records.value(Checkpoint))
                    pipeline.hset(keys.allocation, records.key(), records.value(Allocation))
                pipeline.execute()
            lags = read_lags(redis_server.url, group, PARTITIONS)
            assert [lag.length for lag in lags] == [2] * PARTITIONS
            assert all(0 <= lag.records <= 2 for lag in lags)
            with StreamReader(redis_server.url, group, 0, 2**62) as reader:
                refused = UNREADABLE
                try:
                    reader.read(0.0)
                except StoreRefused as error:
                    refused = str(error)
                except (Fenced, CheckpointMoved):
                    pass
                assert UNREADABLE in refused
        client.delete(keys.checkpoints, keys.allocation)


async def test_a_configuration_that_is_none_is_told_and_the_next_one_heard(
    redis_server, redis_servers, caplog
):
    client = redis_server.client
    for seed in seeds():
        name = redis_servers.new_name()
        fuzz = Fuzzed(seed)
        key = f"{{spillover:{name}}}:configuration"

        store = ConfigurationStore(redis_server.url, name)
        try:
            for _ in range(COUNT // 4):
                client.hset(key, "body", fuzz.message(ConfigurationBody))
                client.hset(key, "stamp", fuzz.odd_text().encode("utf-8", "surrogatepass"))
                with suppress(InputError):
                    await store.get()
        finally:
            await store.close()
        client.delete(key)
