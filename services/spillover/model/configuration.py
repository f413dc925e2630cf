"""A configuration of a federation: its topology, and the stamp that says how new it is (decision
0040). The order of their stamps alone says which of two configurations counts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from spillover.model.ranges import VERSION_MAX, WHOLE_MAX
from spillover.model.topology import CLUSTER_ID, Topology

LINEAGE_MAX = 32
"""A configuration remembers so many stamps of those that it is built on."""

STAMP_LENGTH_MAX: Final = 128
"""The longest text of a stamp."""

NUMBER_DIGITS_MAX: Final = len(str(WHOLE_MAX))


class Stamp(NamedTuple):
    """How new a configuration is, and which cluster's node took it, in which life. The higher one
    counts, by version, then by the cluster's id, then by the `epoch` of that life: a node that
    forgot what it took, and takes another one, gives it another stamp. `cluster` is empty where it
    was read from a file."""

    version: int
    cluster: str = ""
    epoch: int = 0

    @classmethod
    def read(cls, told: str) -> Stamp | None:
        """Returns the stamp that is told; None where it is none."""
        parts = told[: STAMP_LENGTH_MAX + 1].split(" ")
        if len(told) > STAMP_LENGTH_MAX or len(parts) != 3:
            return None
        version, cluster, epoch = parts
        if not (_is_number(version) and _is_number(epoch)):
            return None
        if cluster and not CLUSTER_ID.fullmatch(cluster):
            return None
        return cls(int(version), cluster, int(epoch)) if int(version) <= VERSION_MAX else None

    @property
    def told(self) -> str:
        return f"{self.version} {self.cluster} {self.epoch}"

    def __str__(self) -> str:
        return f"{self.version} of {self.cluster}" if self.cluster else f"{self.version}"


@dataclass(frozen=True, slots=True)
class Configuration:
    """The configuration that all nodes of a federation share. `text` is the topology as it travels,
    and `lineage` the stamps that it is built on, newest first."""

    stamp: Stamp
    topology: Topology
    text: str = ""
    lineage: tuple[Stamp, ...] = ()

    def with_version(self) -> Topology:
        return replace(self.topology, version=self.stamp.version)

    def builds_on(self, stamp: Stamp) -> bool:
        """Returns whether it is the one of this stamp, or has come of it by changes, as far as it
        remembers: what is older than all that it remembers is taken to be in it."""
        if stamp == self.stamp or stamp in self.lineage:
            return True
        return len(self.lineage) == LINEAGE_MAX and stamp.version < self.lineage[-1].version

    def next(self, by: tuple[str, int], topology: Topology, text: str = "") -> Configuration:
        """Returns the one that a node makes of it, by its cluster and epoch."""
        stamp = Stamp(self.stamp.version + 1, *by)
        return Configuration(stamp, topology, text, (self.stamp, *self.lineage)[:LINEAGE_MAX])


def _is_number(text: str) -> bool:
    is_one = text.isascii() and text.isdecimal() and len(text) <= NUMBER_DIGITS_MAX
    return is_one and int(text) <= WHOLE_MAX


def of_file(topology: Topology, text: str = "") -> Configuration:
    """Returns what a node that has heard of nothing else goes by."""
    return Configuration(Stamp(topology.version), topology, text)
