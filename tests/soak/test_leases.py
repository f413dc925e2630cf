"""A lease group under faults drawn at random for as long as SPILLOVER_SOAK_S: members killed,
frozen, restarted, their renewals too, handlers that are busy or hang. After each fault is healed
the group is even again; in the end nothing was done twice, left out, or done too late.

SPILLOVER_SOAK_SEED repeats the draws of a run; what they meet is never quite the same.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from random import Random

import pytest

from support.leases import members as lease_members
from support.leases import reckoning as lease_reckoning

now_s = lease_members.now_s

NODES, PARTITIONS = "abcdef", 21
LEASE_S = lease_members.TIMES.max_lease_ms / 1000.0
LIMIT_S = 40.0
OPTIONS = ("--max-progress-ms", "1000", *lease_members.QUIET)


class Faults:
    """One at a time or a few together; each returns when it is healed."""

    def __init__(self, group, draw):
        self.group, self.draw = group, draw
        self.counts = Counter()
        self.kinds = (
            self.killed, self.restarted, self.frozen, self.frozen_whole, self.renewer_killed,
            self.renewer_frozen, self.busy, self.hung,
        )  # fmt: skip

    async def some(self):
        """Up to three of the nodes, at once."""
        nodes = self.draw.sample(NODES, self.draw.randint(1, 3))
        kinds = [self.draw.choice(self.kinds) for _ in nodes]
        self.counts.update(kind.__name__ for kind in kinds)
        print(f"  {now_s():.1f}", [(k.__name__, n) for k, n in zip(kinds, nodes, strict=True)])  # noqa: T201
        async with asyncio.TaskGroup() as tasks:
            for kind, node in zip(kinds, nodes, strict=True):
                tasks.create_task(kind(node))

    async def killed(self, node):
        self.group.kill(node)
        await asyncio.sleep(self.draw.uniform(0.0, 2.0) * LEASE_S)
        self.group.spawn(node)

    async def restarted(self, node):
        self.group.terminate(node)
        assert await self.group.ended(node, LIMIT_S) == 0
        self.group.spawn(node)

    async def frozen(self, node, *parts):
        self.group.freeze(node, *parts)
        await asyncio.sleep(self.draw.choice([0.2, 0.5, 0.9, 1.0, 1.1, 1.5, 3.0]) * LEASE_S)
        self.group.thaw(node)

    async def frozen_whole(self, node):
        await self.frozen(node, lease_members.MEMBER, lease_members.RENEWER)

    async def renewer_frozen(self, node):
        await self.frozen(node, lease_members.RENEWER)

    async def renewer_killed(self, node):
        for _ in range(self.draw.randint(1, 4)):
            pid = self.group.renewer(node)
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
            await asyncio.sleep(self.draw.uniform(0.0, 0.5) * LEASE_S)

    async def busy(self, node):
        held = list(self.group.held(node))
        if held:
            for_s = self.draw.uniform(0.5, 3.0) * LEASE_S
            what = self.draw.choice(["hold", "sleep"])
            self.group.order(node, self.draw.choice(held), what, for_s=for_s)
            await asyncio.sleep(for_s)

    async def hung(self, node):
        """It goes on after two leases, a second time at once."""
        held = list(self.group.held(node))
        if held:
            self.group.order(node, self.draw.choice(held), "hang", for_s=2.0 * LEASE_S)
            await asyncio.sleep(2.0 * LEASE_S)


@pytest.mark.timeout(0)
@pytest.mark.parametrize("handler", ["work", "work_async"])
def test_faults_drawn_at_random(handler, soak_s, redis_server, tmp_path):
    """Half of the time for handlers on threads, half for handlers on the loop."""
    seed = int(os.environ.get("SPILLOVER_SOAK_SEED", time.time()))
    print(f"\n{handler}, SPILLOVER_SOAK_SEED={seed}")  # noqa: T201 - to repeat it

    async def main():
        group = lease_members.Group(
            directory=tmp_path, url=redis_server.url, partitions=PARTITIONS, handler=handler,
            progress=True, options=OPTIONS, pace_s=0.05,
        )  # fmt: skip
        faults = Faults(group, Random(seed))
        async with lease_reckoning.judged(group, *NODES):
            to_s = now_s() + soak_s / 2.0
            worst_s = 0.0
            while now_s() < to_s:
                await faults.some()
                healed_s = now_s()
                await group.until_even(LIMIT_S)
                await group.until_served(since_s=now_s(), limit_s=LIMIT_S)
                worst_s = max(worst_s, now_s() - healed_s)
        print(f"  {dict(faults.counts)}; even again after {worst_s:.1f} s at most")  # noqa: T201

    asyncio.run(main())
