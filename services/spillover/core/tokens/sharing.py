"""The virtual clock of one server under processor sharing: its jobs share it evenly.

With n jobs each gets a share of rate / n, so that all have had equally much of it since any
instant. Virtual time is what a job would have had that was there all along: a job's work is the
difference between two readings, and it ends when that is what it has to do. Whoever asks says what
time it is.
"""

from __future__ import annotations

import heapq
import math


class SharedServer:
    """One server of this rate: a job of `work` takes work / rate seconds alone. Jobs are named by
    refs. Times that lie before one told earlier count as that one."""

    def __init__(self, rate: float, now_s: float = 0.0) -> None:
        self.rate = rate
        self._since: dict[int, tuple[float, float]] = {}
        """The virtual times at which each job came and will end, by ref."""
        self._ends: list[tuple[float, int]] = []
        """A heap of the latter, with refs, among them of jobs that have left."""
        self._virtual = 0.0
        self._last_s = now_s

    def __len__(self) -> int:
        return len(self._since)

    def add(self, ref: int, now_s: float, work: float = math.inf) -> None:
        """A job comes; with no `work`, it ends when it is removed."""
        self.advance(now_s)
        end = self._virtual + work
        self._since[ref] = self._virtual, end
        if work < math.inf:
            heapq.heappush(self._ends, (end, ref))

    def remove(self, ref: int, now_s: float) -> float:
        """Returns how much work the job has had, which leaves."""
        self.advance(now_s)
        had = self._virtual - self._since.pop(ref)[0]
        if not self._since:
            # Differences of readings are the more exact the smaller they are.
            self._virtual = 0.0
            self._ends.clear()
        return had

    def had(self, ref: int, now_s: float) -> float:
        """Returns how much work the job has had until now."""
        since = self._since[ref][0]
        later_s = max(0.0, now_s - self._last_s)
        return self._virtual + later_s * self.rate / len(self._since) - since

    def next_end(self) -> tuple[float, int] | None:
        """Returns when the next job ends if none comes or goes before, and which; None where no job
        has an end. That job is still there: `remove` it, at that time."""
        while self._ends:
            end, ref = self._ends[0]
            there = self._since.get(ref)
            if there is not None and there[1] == end:
                left = max(0.0, end - self._virtual)
                return self._last_s + left * len(self._since) / self.rate, ref
            heapq.heappop(self._ends)
        return None

    def advance(self, now_s: float) -> None:
        """Let the jobs have what is theirs until now, before the rate changes."""
        if now_s > self._last_s:
            if self._since:
                self._virtual += (now_s - self._last_s) * self.rate / len(self._since)
            self._last_s = now_s
