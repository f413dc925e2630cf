"""Members on a real Redis that are evened out by what their handlers report, not by counts."""

from __future__ import annotations

import asyncio
import signal
import time

import pytest

from spillover.live.leases.renewal.lease import current_lease
from spillover.model.errors import InputError
from spillover.model.lease_times import LeaseTimes

TIMES = LeaseTimes(
    normal_lease_ms=300,
    max_lease_ms=3000,
    max_shutdown_ms=300,
    min_grab_ms=100,
    held_delay_ms=5,
)
HEAVY = 0
LOADS = {HEAVY: 900.0, **dict.fromkeys(range(1, 7), 100.0)}
"""Work per second."""


@pytest.fixture
def group(redis_servers, redis_server):
    """`group(node, balance)`: a member of a group that no other test has."""
    from spillover.live.leases.group import LeaseGroup

    name = redis_servers.new_name()

    def make(node, handler, *, balance="load", url=redis_server.url):
        return LeaseGroup(
            url,
            name,
            node=node,
            partitions=len(LOADS),
            handler=handler,
            times=TIMES,
            balance=balance,
            seed=1,
        )

    make.loads_key = f"{{spillover:{name}}}:load"
    return make


def runs(main):
    async def limited():
        async with asyncio.timeout(40):
            await main()

    asyncio.run(limited())


def works(partition, epoch, stop_event):
    """Reports as much as it would have done in that time."""
    del epoch
    lease, since_s = current_lease(), time.monotonic()
    while not stop_event.wait(0.02):
        now_s = time.monotonic()
        lease.report_load(LOADS[partition] * (now_s - since_s))
        since_s = now_s


def test_a_store_that_is_away_is_no_failure_of_handlers(group, redis_servers, tmp_path):
    """They are told to stop while their leases last, and do: nothing is kept away from them when
    the store is back."""

    async def main():
        with redis_servers.running(tmp_path) as server:
            async with group("a", works, url=server.url) as member:
                await redis_servers.until(lambda: len(member.held) == len(LOADS))
                server.stop(signal.SIGKILL)
                await redis_servers.until(lambda: not member.held)
                assert member.machine.holdings.failures == {}
                server.restart()
                await redis_servers.until(lambda: len(member.held) == len(LOADS))

    runs(main)


def test_what_is_no_load_is_refused():
    """The sum stays one; nothing reported is not nothing done."""
    from spillover.live.leases.renewal.lease import Lease
    from spillover.live.leases.renewal.memory import LeaseMemory

    lease = Lease(LeaseMemory(1), 0, 1, lambda _: None)
    assert lease.work is None
    for bad in (-1.0, float("nan"), float("inf"), "5", None):
        with pytest.raises(InputError, match="report_load: expected a number of at least 0"):
            lease.report_load(bad)
    assert lease.work is None
    lease.report_load(0)
    assert lease.work == 0.0
    lease.report_load(2.5)
    lease.report_load(1.5)
    assert lease.work == 4.0
    lease.report_load(1.7e308)
    lease.report_load(1.7e308)
    assert lease.work == 1.7e308
