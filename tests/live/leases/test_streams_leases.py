"""Members of a lease group that consume streams: whole ones, on a real Redis, with the example."""

from __future__ import annotations

import asyncio

import pytest

from spillover.live.leases.group import LeaseGroup
from spillover.live.leases.streams import example
from spillover.model.lease_times import LeaseTimes

TIMES = LeaseTimes(
    normal_lease_ms=300,
    max_lease_ms=900,
    max_shutdown_ms=800,
    min_grab_ms=100,
    held_delay_ms=5,
)
PARTITIONS = 6
RECORDS = 12_000
LIMIT_S = 20.0


class Work:
    """Records that come in, members that apply them, and what was applied."""

    def __init__(self, server, group, handler):
        self.server, self.group, self.handler = server, group, handler
        self.counts = [0] * PARTITIONS
        self.events = []

    def member(self, node):
        return LeaseGroup(
            self.server.url,
            self.group,
            node=node,
            partitions=PARTITIONS,
            handler=self.handler,
            times=TIMES,
            on_event=self.events.append,
            seed=1,
        )

    async def fill(self):
        place = self.server.url, self.group, PARTITIONS, RECORDS
        counts = await asyncio.to_thread(example.fill, *place, first=self.counts[0])
        self.counts = [before + new for before, new in zip(self.counts, counts, strict=True)]

    def applied(self):
        return example.check(self.server.client, self.group, self.counts)

    async def is_complete(self):
        return all(one.is_complete for one in await asyncio.to_thread(self.applied))

    def of(self, *names):
        return {e["node"] for e in self.events if e["event"] in names}


@pytest.mark.parametrize("handler", [example.consume, example.consume_async])
def test_members_come_and_go_and_each_record_is_applied_once(
    redis_server, redis_servers, monkeypatch, handler
):
    """Two begin, one hands over in the middle: records come in all the while."""
    work = Work(redis_server, redis_servers.new_name(), handler)
    monkeypatch.setenv(example.REDIS, redis_server.url)
    monkeypatch.setenv(example.GROUP, work.group)

    async def main():
        await work.fill()
        async with work.member("b"):
            async with work.member("a"):
                await work.fill()
                await redis_servers.until(lambda: work.of("acquired") == {"a", "b"}, LIMIT_S)
            await work.fill()
            await redis_servers.until(work.is_complete, LIMIT_S)

    asyncio.run(asyncio.wait_for(main(), 3 * LIMIT_S))
    assert all(one.is_exactly_once for one in work.applied()), work.applied()
    assert not work.of("lost", "fenced")
