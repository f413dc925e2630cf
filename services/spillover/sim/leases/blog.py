"""The store of the blog's rule in memory: two hashes, changed without a look at who stands there.

Its twin on Redis is `live.leases.blog_store`; the steps are in `core.leases.blog`.
"""

from __future__ import annotations


class BlogStore:
    """The two hashes, by partition; a value is the id of a node."""

    def __init__(self) -> None:
        self.allocation: dict[int, str] = {}
        self.grab: dict[int, str] = {}

    def set_grab_if_free(self, partition: int, node: str) -> str:
        """HSETNX on the grab hash; the winner that stands there after it."""
        return self.grab.setdefault(partition, node)

    def grabbed(self, partition: int) -> bool:
        return partition in self.grab

    def owner(self, partition: int) -> str | None:
        return self.allocation.get(partition)

    def allocate(self, partition: int, node: str) -> None:
        self.allocation[partition] = node

    def clear_grab(self, partition: int) -> None:
        self.grab.pop(partition, None)

    def clear_allocation(self, partition: int) -> None:
        self.allocation.pop(partition, None)

    def lose_all(self) -> None:
        self.allocation.clear()
        self.grab.clear()
