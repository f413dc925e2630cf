"""What a process has used: CPU time and memory, asked of the system from outside.

A process that is gone is a RunError: what it was to be measured for has failed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

import psutil

from spillover.model.errors import RunError

SCHEDULED = 2
"""CPUCLOCK_SCHED of Linux: what the scheduler has given all threads of a process."""


def cpu_s(pid: int) -> float:
    """Returns user and system CPU time of the process since its start, in s. Linux tells it to the
    ns; others count in steps, some of 10 ms: measure over a second or more there, in one piece or
    in several. A node at rest uses less than a step in that time."""
    if sys.platform == "linux":
        with suppress(OSError):  # it is gone: told below
            return time.clock_gettime(~pid << 3 | SCHEDULED)  # clock_getcpuclockid(3)
    with _looking_at(pid) as process:
        times = process.cpu_times()
    return float(times.user + times.system)


class CpuUse:
    """CPU time of kinds of processes, from when it is made on."""

    def __init__(self, processes: Mapping[str, Sequence[int]]) -> None:
        self._processes = processes
        self._before_s = self._all_s()

    def used_s(self) -> dict[str, float]:
        """Returns what those of each kind have used together."""
        return {kind: now_s - self._before_s[kind] for kind, now_s in self._all_s().items()}

    def _all_s(self) -> dict[str, float]:
        return {kind: sum(map(cpu_s, pids)) for kind, pids in self._processes.items()}


def resident_bytes(pid: int) -> int:
    """Returns how much memory of the process is in RAM now."""
    with _looking_at(pid) as process:
        memory = process.memory_info()
    return int(memory.rss)


@contextmanager
def _looking_at(pid: int) -> Iterator[psutil.Process]:
    try:
        yield psutil.Process(pid)
    except psutil.Error as error:
        raise RunError(f"a process that is measured cannot be looked at: {error}") from error
