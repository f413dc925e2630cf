"""The fate of messages on their way over one direction of a link.

All that leaves for a neighbor (forwards, answers, cancels, reports) keeps its order, as on
connections of TCP.

- *Delay* and *jitter*: a message takes the delay and a part of the jitter, evenly distributed, and
  is never there before one that was sent earlier. What is under way keeps its time.
- *Loss*: with this probability a message is lost, at the time at which it should be there. Its
  connection breaks then: a forward is of unknown fate, an answer breaks off.
- *Cut*: what is due waits. Once healed, all of it leaves in order; what has waited for
  GIVEN_UP_AFTER_S is lost, as the kernel gives up a connection on which nothing is acknowledged.
- A message that does not wait (a report: the next one is better) is lost where another would wait
  for a healed link.

The rules stand here; `live.overflow.emulated_link` carries them out in real time, and
`sim.overflow.network` in virtual time. What a message is, and who is told of its end, is known to
them and to those who send it.
"""

from __future__ import annotations

from enum import Enum
from random import Random

from spillover.model.faults import GIVEN_UP_AFTER_S


class Fate(Enum):
    """The fate of a message that is due."""

    ARRIVES = "arrives"
    LOST = "lost"
    HELD = "held"
    """The message waits until the link is whole, or is given up."""


class Transit:
    """One direction of a link; `random` draws what is lost, and how late what is not."""

    def __init__(
        self, random: Random, delay_s: float, given_up_after_s: float = GIVEN_UP_AFTER_S
    ) -> None:
        self._random = random
        self._given_up_after_s = given_up_after_s
        self.last_due_s = 0.0
        """The time when the last message that was sent is due."""
        self.delay_s = delay_s
        self.jitter_s = 0.0
        self.loss = 0.0
        self.cut = False

    def due_s(self, now_s: float) -> float:
        due_s = now_s + self.delay_s
        if self.jitter_s:
            due_s += self._random.random() * self.jitter_s
        self.last_due_s = max(self.last_due_s, due_s)
        return self.last_due_s

    def fate(self, *, waits: bool = True, may_be_lost: bool = True) -> Fate:
        """Returns the fate of a message that is due, or that was held until now."""
        if self.cut:
            return Fate.HELD if waits else Fate.LOST
        if may_be_lost and self.loss > 0.0 and self._random.random() < self.loss:
            return Fate.LOST
        return Fate.ARRIVES

    def given_up_s(self, due_s: float) -> float:
        """Returns when a message that was due at `due_s`, and is held, is lost."""
        return due_s + self._given_up_after_s
