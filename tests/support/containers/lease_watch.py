"""The lease members of the compose testbed as they show themselves: by /state, again and again, and
by the lines that they say; and what must not be among it.

What breaks is in the tests. Instants are of the wall clock, which the containers share with this
machine.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

PARTITIONS = 32
LOOK_S = 0.2
STATE_S = 1.0
ENDS = {"released", "lost", "fenced"}


@dataclass(frozen=True, slots=True)
class Tenure:
    """One partition under one epoch, from its first line to its last. `to_s` is inf while held."""

    partition: int
    epoch: int
    node: str
    from_s: float
    to_s: float


@dataclass
class LeaseWatch:
    """`with LeaseWatch(beds, bed) as watch`: looks at all members until the end. `held` has what
    each last said of itself, and nothing for those that did not answer."""

    beds: Any
    bed: Any
    held: dict[str, dict[int, int]] = field(default_factory=dict)
    looks: int = 0
    wrongs: list[str] = field(default_factory=list)
    silences: list[tuple[str, float, float]] = field(default_factory=list)
    """When a member was frozen or dead, as the test did it: it acted on nothing then."""

    def __post_init__(self) -> None:
        self._holder: dict[tuple[int, int], str] = {}
        self._latest: dict[int, int] = defaultdict(int)
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=self._watch, args=one) for one in self.bed.member_urls.items()
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _watch(self, node: str, url: str) -> None:
        while not self._ended.wait(LOOK_S):
            try:
                state = self.beds.get(f"{url}/state", limit_s=STATE_S)
            except (OSError, ValueError):
                self.held.pop(node, None)
                continue
            self.looks += 1
            held = {int(partition): epoch for partition, epoch in state["held"].items()}
            self.held[node] = held
            self._judge_held(node, held)

    def _judge_held(self, node: str, held: dict[int, int]) -> None:
        """Nobody ever has an epoch that another has or had."""
        for key in held.items():
            holder = self._holder.setdefault(key, node)
            if holder != node:
                self.wrongs.append(f"partition and epoch {key} held by {holder} and {node}")

    # --- waiting ------------------------------------------------------------------------------

    def is_all_held(self, *nodes: str) -> bool:
        """These and nobody else have all partitions, each once."""
        held = dict(self.held)
        all_of_them = sorted(partition for each in held.values() for partition in each)
        return set(held) == set(nodes) and all_of_them == list(range(PARTITIONS))

    def is_shared(self, *nodes: str) -> bool:
        """And each as many as the others."""
        counts = [len(held) for held in dict(self.held).values()]
        return self.is_all_held(*nodes) and max(counts) - min(counts) <= 1

    def until_all_held(self, *nodes: str, limit_s: float) -> float:
        """How long it took."""
        what = f"{nodes} hold all partitions"
        return float(self.beds.until(lambda: self.is_all_held(*nodes), limit_s, what))

    def until_shared(self, *nodes: str, limit_s: float) -> float:
        """How long it took."""
        what = f"{nodes} share all partitions"
        return float(self.beds.until(lambda: self.is_shared(*nodes), limit_s, what))

    # --- the account --------------------------------------------------------------------------

    def tenures(self) -> list[Tenure]:
        """Of all members, by what they said since they were made, through all their lives."""
        found = []
        for node in self.bed.member_urls:
            open_ones: dict[int, tuple[int, float]] = {}
            for line in self.lines(node):
                event, partition = line["event"], line.get("partition")
                if event == "serving":  # another life
                    found += self._dead(node, open_ones)
                elif event == "acquired":
                    open_ones[partition] = line["epoch"], line["at_s"]
                elif event in ENDS and partition in open_ones:
                    epoch, from_s = open_ones.pop(partition)
                    to_s = self._acted_until(node, from_s, line["at_s"])
                    found.append(Tenure(partition, epoch, node, from_s, to_s))
            for partition, (epoch, from_s) in open_ones.items():
                found.append(Tenure(partition, epoch, node, from_s, float("inf")))
        return found

    def lines(self, node: str) -> list[dict[str, Any]]:
        lines = []
        for text in self.bed.lines(node):
            with suppress(ValueError):
                lines.append(json.loads(text))
        return lines

    def _dead(self, node: str, open_ones: dict[int, tuple[int, float]]) -> list[Tenure]:
        """What it held when it was killed; nothing is left open."""
        found = []
        for partition, (epoch, from_s) in open_ones.items():
            to_s = self._acted_until(node, from_s, time.time())
            found.append(Tenure(partition, epoch, node, from_s, to_s))
        open_ones.clear()
        return found

    def _acted_until(self, node: str, from_s: float, to_s: float) -> float:
        """Its last deed under a lease that it had from then to then, at the latest."""
        began = [at_s for one, at_s, _ in self.silences if one == node and from_s < at_s < to_s]
        return min([to_s, *began])

    def wrongs_of_tenures(self) -> list[str]:
        """Who comes later has a later epoch, and comes when the one before has ended."""
        of_partition: dict[int, list[Tenure]] = defaultdict(list)
        for tenure in self.tenures():
            of_partition[tenure.partition].append(tenure)
        wrongs = []
        for tenures in of_partition.values():
            for one, later in itertools.pairwise(sorted(tenures, key=lambda each: each.from_s)):
                if later.epoch <= one.epoch:
                    wrongs.append(f"{later} has no later epoch than {one}")
                if later.from_s < one.to_s:
                    wrongs.append(f"{later} began before the end of {one}")
        return wrongs
