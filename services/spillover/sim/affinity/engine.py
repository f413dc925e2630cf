"""An inference engine in virtual time: it reads one prompt after the other, and writes the answers
to all those that it has read together, each a little slower than alone.

Prompts are served in the order in which they come and later ones hold up no earlier one's first
token, so that all that happens to a prompt until then is known when it comes. It is worked out at
once, without a queue of events, and the state at any time before can be asked for: that is how
reports are as old as their way is long.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from spillover.model.prompt import Prompt
from spillover.sim.affinity.cache import PrefixCache

BUSY_WINDOW_S = 30.0
"""The time over which an engine averages how much of it reading takes."""


@dataclass(frozen=True, slots=True)
class EngineKind:
    """What an engine can do."""

    read_tokens_per_s: float = 8_000.0
    slots: int = 16
    """The number of prompts that are read or answered at the same time."""
    cache_tokens: int = 400_000
    token_s: float = 0.020
    """The time that a token of an answer takes, of an engine that writes none."""
    token_each_s: float = 0.001
    """The time that each answer under way adds to that."""


class EngineState(NamedTuple):
    """What an engine tells of itself."""

    wait_s: float
    """The expected time until a prompt that comes now begins to be read."""
    requests: int
    """The number of requests that wait or run."""
    busy: float
    """The share of the last time in which prompts were read."""
    taken_tokens: float
    """The number of tokens in all that were read, or are expected to be of what waits."""


class PromptPrefill(NamedTuple):
    """What becomes of a prompt."""

    begins_s: float
    first_token_s: float
    found_tokens: int


class Engine:
    """One engine. Prompts come in order of time."""

    def __init__(self, kind: EngineKind) -> None:
        self.kind = kind
        self.cache = PrefixCache(kind.cache_tokens)
        self.written = 0
        """The number of answers that are complete, as far as it is worked out."""
        self._come_s: list[float] = []
        self._begins_s: list[float] = []
        self._ends_s: list[float] = []
        self._busy: list[float] = []
        self._expected = [0.0]
        self._read = [0]
        self._done_s: list[float] = []
        self._residence_s = 0.0
        self._writing: list[tuple[float, float]] = []
        self._now_s = 0.0
        self._progress = 0.0

    def take(self, prompt: Prompt, now_s: float, expected_tokens: float) -> PromptPrefill:
        """Takes a prompt in, of which so many tokens are expected to be read."""
        begins_s = self.free_s(now_s)
        self._write_until(begins_s)
        found = self.cache.found(prompt.blocks, prompt.tokens)
        read = prompt.tokens - found
        ends_s = begins_s + read / self.kind.read_tokens_per_s
        self.cache.enter(prompt.blocks)
        self._busy.append(self._busy_at(begins_s))
        self._come_s.append(now_s)
        self._begins_s.append(begins_s)
        self._ends_s.append(ends_s)
        self._expected.append(self._expected[-1] + expected_tokens)
        self._read.append(self._read[-1] + read)
        self._write_until(ends_s)
        heappush(self._writing, (self._progress + prompt.answer_tokens - 1, begins_s))
        return PromptPrefill(begins_s, ends_s, found)

    def leave(self, taken: PromptPrefill, now_s: float) -> None:
        """Frees the slot of a prompt that nobody waits for any more. It is read all the same: that
        was worked out when it came."""
        self._write_until(now_s)
        for place, (_, begun_s) in enumerate(self._writing):
            if begun_s == taken.begins_s:
                del self._writing[place]
                heapify(self._writing)
                self._done_s.append(self._now_s)
                break

    def free_s(self, now_s: float) -> float:
        """Returns when a prompt that comes now begins to be read."""
        free_s = max(now_s, self._ends_s[-1] if self._ends_s else 0.0)
        self._write_until(free_s)
        if len(self._writing) < self.kind.slots:
            return free_s
        return self._next_done_s()

    def state(self, at_s: float) -> EngineState:
        """Returns what the engine knows of itself at a time that has come."""
        self._write_until(at_s)
        come = bisect_right(self._come_s, at_s)
        begun = bisect_right(self._begins_s, at_s, 0, come)
        requests = come - bisect_right(self._done_s, at_s)
        waiting = self._expected[come] - self._expected[begun]
        rest_s = max(0.0, self._ends_s[begun - 1] - at_s) if begun else 0.0
        beyond = max(0, requests + 1 - self.kind.slots)
        return EngineState(
            wait_s=max(
                rest_s + waiting / self.kind.read_tokens_per_s,
                beyond * self._residence_s / self.kind.slots,
            ),
            requests=requests,
            busy=self._busy_at(at_s, begun),
            taken_tokens=self._read[begun] + waiting,
        )

    def _busy_at(self, at_s: float, begun: int | None = None) -> float:
        """Returns the moving share of time that reading took, of prompts that had begun."""
        count = len(self._begins_s) if begun is None else begun
        if not count:
            return 0.0
        began_s = self._begins_s[count - 1]
        ended_s = min(self._ends_s[count - 1], at_s)
        busy = 1.0 - (1.0 - self._busy[count - 1]) * math.exp((began_s - ended_s) / BUSY_WINDOW_S)
        return busy * math.exp((ended_s - at_s) / BUSY_WINDOW_S)

    def _next_done_s(self) -> float:
        tokens = max(0.0, self._writing[0][0] - self._progress)
        return self._now_s + tokens * self._pace_s()

    def _pace_s(self) -> float:
        return self.kind.token_s + self.kind.token_each_s * len(self._writing)

    def _write_until(self, at_s: float) -> None:
        """Lets the answers under way go on."""
        while self._writing and (done_s := self._next_done_s()) <= at_s:
            self._progress, begun_s = heappop(self._writing)
            self._now_s = done_s
            self._done_s.append(done_s)
            self.written += 1
            spent_s = done_s - begun_s
            self._residence_s += (spent_s - self._residence_s) / min(self.written, 100)
        if at_s > self._now_s:
            if self._writing:
                self._progress += (at_s - self._now_s) / self._pace_s()
            self._now_s = at_s
