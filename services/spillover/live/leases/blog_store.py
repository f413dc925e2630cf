"""The two hashes as the source document uses them in its steps 3 to 6, with plain commands.

For comparison only (`rule: blog`). Values are the bare names of nodes, nobody compares who stands
there, and a late holder clears away its successor: as written. The guarded rule's store is in
`live.leases.store`, which has the channels and the members for both.
"""

from __future__ import annotations

from spillover.live.leases.redis_values import GroupKeys
from spillover.live.redis.connection import RedisLink
from spillover.live.redis.rotation import RedisAddress, RedisUrl


class RedisBlogStore:
    """The same operations as `sim.leases.blog.BlogStore`, one round trip each. They raise
    StoreUnreachable and StoreRefused."""

    def __init__(self, url: RedisUrl | RedisAddress, group: str, *, timeout_s: float = 5.0) -> None:
        self._keys = GroupKeys.of(group)
        self._link = RedisLink(url, timeout_s)

    @property
    def round_trips(self) -> int:
        return self._link.round_trips

    async def set_grab_if_free(self, partition: int, node: str) -> str:
        """Step 3: HSETNX on the grab hash; the winner that stands there after it."""
        key = self._keys.grab
        is_set, winner = await self._link.calls(
            ("HSETNX", key, partition, node), ("HGET", key, partition)
        )
        # Cleared between the two: it was won all the same by whoever stood there.
        return node if is_set else str(winner or "")

    async def grabbed(self, partition: int) -> bool:
        """Step 1: whether the partition has a winner."""
        return bool(await self._link.call("HEXISTS", self._keys.grab, partition))

    async def owner(self, partition: int) -> str | None:
        """Step 4: who serves the partition."""
        owner: str | None = await self._link.call("HGET", self._keys.allocation, partition)
        return owner

    async def allocate(self, partition: int, node: str) -> None:
        """Step 5: whoever stands there."""
        await self._link.call("HSET", self._keys.allocation, partition, node)

    async def clear_grab(self, partition: int) -> None:
        """Step 6."""
        await self._link.call("HDEL", self._keys.grab, partition)

    async def clear_allocation(self, partition: int) -> None:
        """Step 3, for a holder that has stopped."""
        await self._link.call("HDEL", self._keys.allocation, partition)

    async def clear_both(self, partition: int) -> None:
        """Step 1, for a partition of which no challenge was heard for long; one way for both."""
        keys = self._keys
        await self._link.calls(("HDEL", keys.allocation, partition), ("HDEL", keys.grab, partition))

    async def owners(self) -> dict[int, str]:
        """Returns the whole allocation hash, for whoever shows it."""
        stored = await self._link.call("HGETALL", self._keys.allocation)
        return {int(partition): node for partition, node in stored.items()}

    async def winners(self) -> dict[int, str]:
        """Returns the whole grab hash, likewise."""
        stored = await self._link.call("HGETALL", self._keys.grab)
        return {int(partition): node for partition, node in stored.items()}

    async def close(self) -> None:
        await self._link.close()
