"""One lease group on real Redis, and one in memory, that are asked alike and answer alike.

Both go by the clock that a test hands in: in the scripts, the one line that asks Redis for its time
is replaced. That line and everything else that needs a real clock is tested in tests/live.
"""

import asyncio
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import fields, replace

import pytest

from spillover.core.leases.records import Joined, Renewed, Snapshot, Survey
from spillover.live.leases.store import RedisLeaseStore, load_scripts
from spillover.live.redis.connection import Script
from spillover.model.lease_times import LeaseTimes
from spillover.sim.leases.store_twin import LeaseTwin

ASKS_TIME = "redis.call('TIME')"
CLOCK = "clock-of-tests"


def with_clock_of_tests(script):
    assert script.text.count(ASKS_TIME) == 1
    return Script.of(script.text.replace(ASKS_TIME, f"redis.call('HMGET', '{CLOCK}', 's', 'us')"))


class TwinGroup:
    """The twin. Answers are copies, as they would be from afar."""

    def __init__(self, partitions, times, balance="count"):
        self.twin = LeaseTwin(partitions, times, balance=balance)

    async def do(self, now_ms, _, operation, *arguments):
        return deepcopy(getattr(self.twin, operation)(now_ms, *arguments))

    async def snapshot(self, now_ms):
        return deepcopy(self.twin.snapshot(now_ms))

    async def put(self, allocations, grabs, members, loads=None):
        """Have this stored, from wherever it came."""
        self.twin.loads = deepcopy(loads or {})
        self.twin.allocations = deepcopy(allocations)
        self.twin.grabs = deepcopy(grabs)
        self.twin.members = deepcopy(members)

    async def lose_all(self):
        self.twin.lose_all()

    async def move(self):
        self.twin.move()

    async def close(self):
        pass


class RedisGroup:
    """A group on Redis: one store for each node, since each member has its own."""

    def __init__(self, server, name, partitions, times, balance="count"):
        self._client = server.client
        self._tag = f"{{spillover:{name}}}"
        self._make = lambda: RedisLeaseStore(server.url, name, partitions, times, balance=balance)
        loaded = load_scripts(balance)
        self._scripts = {name: with_clock_of_tests(script) for name, script in loaded.items()}
        self._stores = {}
        self._eras = {"": ""}

    def store(self, node):
        if node not in self._stores:
            self._stores[node] = self._make()
            self._stores[node]._scripts = self._scripts
        return self._stores[node]

    async def do(self, now_ms, node, operation, *arguments):
        self._set_clock(now_ms)
        answer = await getattr(self.store(node), operation)(*arguments)
        return self._with_numbered_era(answer)

    async def snapshot(self, now_ms):
        self._set_clock(now_ms)
        return self._with_numbered_era(await self.store("observer").snapshot())

    async def put(self, allocations, grabs, members, loads=None):
        hashes = {"allocation": allocations, "grab": grabs, "members": members, "load": loads or {}}
        for name, values in hashes.items():
            key = f"{self._tag}:{name}"
            self._client.delete(key)
            for field, value in values.items():
                written = "|".join(str(getattr(value, part.name)) for part in fields(value))
                self._client.hset(key, field, written)

    async def lose_all(self):
        self._client.flushall()

    async def move(self):
        """As another server would find it: with the id of the one before."""
        if self._client.exists(f"{self._tag}:group"):
            self._client.hset(f"{self._tag}:group", "server", "another")

    async def close(self):
        await asyncio.gather(*(store.close() for store in self._stores.values()))

    def _set_clock(self, now_ms):
        seconds, ms = divmod(int(now_ms), 1000)
        self._client.hset(CLOCK, mapping={"s": seconds, "us": ms * 1000})

    def _with_numbered_era(self, answer):
        """Eras are drawn; the twin numbers them."""
        if not isinstance(answer, Joined | Renewed | Survey | Snapshot):
            return answer
        era = self._eras.setdefault(answer.era, f"era{len(self._eras)}")
        return replace(answer, era=era)


class Member:
    """A member of either group; the first argument is always the store's clock."""

    def __init__(self, group, node, incarnation="i1"):
        self.group = group
        self.node = node
        self.incarnation = incarnation

    def _do(self, now_ms, operation, *arguments):
        return self.group.do(now_ms, self.node, operation, *arguments)

    def join(self, now_ms):
        return self._do(now_ms, "join", self.node, self.incarnation)

    def leave(self, now_ms):
        return self._do(now_ms, "leave", self.node, self.incarnation)

    def renew(self, now_ms, *held):
        return self._do(now_ms, "renew", self.node, self.incarnation, held)

    def grab(self, now_ms, partition, free_for_ms=0.0):
        return self._do(now_ms, "grab", partition, self.node, free_for_ms)

    def activate(self, now_ms, partition):
        return self._do(now_ms, "activate", partition, self.node)

    def is_wanted(self, now_ms, partition, epoch):
        return self._do(now_ms, "is_wanted", partition, self.node, epoch)

    def drain(self, now_ms, partition, epoch):
        return self._do(now_ms, "drain", partition, self.node, epoch)

    def release(self, now_ms, partition, epoch):
        return self._do(now_ms, "release", partition, self.node, epoch)

    def survey(self, now_ms, *loads):
        return self._do(now_ms, "survey", self.node, *([loads] if loads else ()))

    async def start(self, now_ms, *partitions):
        """Join, win and activate; the (partition, epoch) pairs."""
        assert (await self.join(now_ms)).ok
        held = []
        for partition in partitions:
            assert await self.grab(now_ms, partition, LeaseTimes().normal_lease_ms)
            held.append((partition, (await self.activate(now_ms, partition)).epoch))
        return held


@pytest.fixture
def new_redis_group(redis_server, redis_servers):
    def make(partitions, times, balance="count"):
        return RedisGroup(redis_server, redis_servers.new_name(), partitions, times, balance)

    return make


@pytest.fixture
def new_twin_group():
    return TwinGroup


@pytest.fixture
def member_of():
    return Member


@pytest.fixture(params=[pytest.param("redis", marks=pytest.mark.processes), "twin"])
def tell(request):
    """A group of so many partitions and three members, for `async with`."""
    new_group = request.getfixturevalue(f"new_{request.param}_group")

    @asynccontextmanager
    async def telling(partitions, times=None, balance="count"):
        group = new_group(partitions, times or LeaseTimes(), balance)
        try:
            yield group, *(Member(group, node) for node in "abc")
        finally:
            await group.close()

    return telling
