"""Who runs which partition, by what the handlers themselves say. No processes, no clock."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Report:
    """A handler has begun, or has ended; `at_s` of a clock that all processes share."""

    at_s: float
    node: str
    partition: int
    runs: bool


class Ownership:
    """Of a fixed number of partitions among these nodes."""

    def __init__(self, partitions: int, nodes: Iterable[str]) -> None:
        self.owners: list[set[str]] = [set() for _ in range(partitions)]
        self.counts = dict.fromkeys(nodes, 0)
        self.moves = 0
        """From one node to another; first claims are none."""
        self.even_since_s: float | None = None
        """Since when each partition runs at one node, and none has two more than another."""
        self._last: dict[int, str] = {}
        self._alone = 0

    def note(self, report: Report) -> None:
        owners = self.owners[report.partition]
        if (report.node in owners) == report.runs or report.node not in self.counts:
            return
        self._alone -= len(owners) == 1
        if report.runs:
            owners.add(report.node)
            before = self._last.get(report.partition, report.node)
            self.moves += before != report.node
            self._last[report.partition] = report.node
        else:
            owners.remove(report.node)
        self._alone += len(owners) == 1
        self.counts[report.node] += 1 if report.runs else -1
        if not self._is_even():
            self.even_since_s = None
        elif self.even_since_s is None:
            self.even_since_s = report.at_s

    def held_by(self, node: str) -> list[int]:
        return [partition for partition, owners in enumerate(self.owners) if node in owners]

    @property
    def served_once(self) -> int:
        """Returns how many partitions run at one node and at no other."""
        return self._alone

    def _is_even(self) -> bool:
        if self._alone < len(self.owners):
            return False
        return max(self.counts.values()) - min(self.counts.values()) <= 1


def replayed(reports: Iterable[Report], partitions: int, nodes: Iterable[str]) -> Ownership:
    """Returns the ownership as it was, from reports of several processes in whatever order they
    came."""
    ownership = Ownership(partitions, nodes)
    for report in sorted(reports, key=lambda report: report.at_s):
        ownership.note(report)
    return ownership
