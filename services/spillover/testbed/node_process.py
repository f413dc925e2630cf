"""One node of a testbed: its process, where it can be called, and how it ended. When one is started
again is not known here.
"""

from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass
from pathlib import Path

from spillover.live.overflow.ending import DRAINED, ENDING
from spillover.model.ids import ClusterId
from spillover.testbed.last_words import last_words, tail_of


@dataclass(slots=True)
class NodeProcess:
    """One running node."""

    cluster: ClusterId
    """The cluster; of one node of several its name, which has the number behind a slash."""
    url: str
    process: asyncio.subprocess.Process
    log: Path
    log_began_at: int
    """Where in the file its own words begin: those in whose place it is wrote there too."""
    started_s: float
    """The instant of its start, on the monotonic clock."""
    starts_again_in_s: float | None = None
    """Once it has ended: when another one takes its place; None if nobody will, unasked."""
    is_returning: bool = False
    """Started in the place of another one, and has not answered yet."""
    problem: str = ""
    """Why no other one could be started in its place."""

    def last_words(self) -> str:
        """Returns the last line with words in it that it wrote, for one-line reports."""
        return last_words(self.log, self.log_began_at)

    def words_on_ending(self) -> str | None:
        """Returns what it said last of what it waits for at its end, or has lost."""
        lines = tail_of(self.log, self.log_began_at)
        said = [line.partition(ENDING)[2] for line in lines if ENDING in line]
        return said[-1] if said else None

    @property
    def was_drained(self) -> bool:
        """Returns whether an operator had drained it before it ended: its exit status and what it
        said tell."""
        lines = tail_of(self.log, self.log_began_at)
        return self.process.returncode == 0 and any(ENDING + DRAINED in line for line in lines)

    @property
    def was_killed(self) -> bool:
        """Returns whether a signal has killed it, so that what it said last has nothing to do with
        its end."""
        code = self.process.returncode
        return code is not None and code < 0

    def end_of_life(self) -> str:
        """Returns how it ended, in words."""
        code = self.process.returncode
        if self.problem:
            return f"no other one can be started: {self.problem}"
        if code is None:
            return "running"
        if code < 0:
            return f"killed by {signal.Signals(-code).name}"
        return f"exit status {code}"
