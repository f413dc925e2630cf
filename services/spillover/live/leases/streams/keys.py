"""How the keys of a group's streams are called, and which partition a record's key belongs to."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from spillover.live.leases.redis_values import GroupKeys
from spillover.model.errors import InputError

SOURCE = "lease streams"


@dataclass(frozen=True, slots=True)
class StreamKeys:
    """The keys of one group, all under its hash tag, so that one script may touch any of them."""

    tag: str
    checkpoints: str
    """Hash by partition: epoch|id|passed|skipped|set aside, see `records.Checkpoint`."""
    facts: str
    """Hash: the number of partitions, if no lease group of that name says it."""
    allocation: str
    group: str

    @classmethod
    def of(cls, group: str) -> StreamKeys:
        """Raises InputError for a name that cannot stand in a hash tag."""
        leases = GroupKeys.of(group)
        tag = leases.group.removesuffix(":group")
        return cls(tag, f"{tag}:checkpoints", f"{tag}:streams", leases.allocation, leases.group)

    def stream(self, partition: int) -> str:
        return f"{self.tag}:stream:{partition}"

    def set_aside(self, partition: int) -> str:
        """Returns the stream of records that no attempt could handle."""
        return f"{self.tag}:aside:{partition}"

    def sink(self, name: str) -> str:
        """Returns what effects touch; no name leads to a key of the leases or the streams."""
        return f"{self.tag}:sink:{name}"

    def writer(self, name: str) -> str:
        """Returns the number of a writer's last batch."""
        return f"{self.tag}:writer:{name}"


def partition_of(key: bytes, partitions: int) -> int:
    """CRC-32 modulo the count: the same for every writer, process and language."""
    return zlib.crc32(key) % partitions


def check_partition(partition: int, partitions: int | None = None) -> None:
    """Raises InputError."""
    if partition < 0 or (partitions is not None and partition >= partitions):
        expected = "at least 0" if partitions is None else f"0 to {partitions - 1}"
        raise InputError(SOURCE, "partition", f"expected {expected}, got {partition}")
