"""What Redis has done and used up, asked of itself; and what processes of ours have.

A round trip is one read of Redis from a client's connection (`total_reads_processed`): one call of
a script, one command, or one pipeline, whatever happens inside. Messages that Redis sends to
subscribers are none. Each reading is one too, and is taken off.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psutil

from spillover.model.errors import RunError
from spillover.tools.bench.usage import cpu_s

if TYPE_CHECKING:
    from redis.asyncio import Redis

GONE_WITHIN_S = 5.0


@dataclass(frozen=True, slots=True)
class Reading:
    """Sums since the server's start, or what was between two of them. Rates are of the latter: see
    `since`."""

    at_s: float
    round_trips: int
    cpu_s: float
    in_bytes: int
    out_bytes: int
    calls: dict[str, int]
    """Of each command, those within scripts included."""

    @property
    def trips_per_s(self) -> float:
        """Returns round trips a second."""
        return self.round_trips / self.at_s

    @property
    def cpu_percent(self) -> float:
        """Returns the CPU time of Redis, in % of a core."""
        return self.cpu_s / self.at_s * 100.0

    @property
    def moved_kb_per_s(self) -> float:
        """Returns what Redis was sent and has sent, together."""
        return (self.in_bytes + self.out_bytes) / self.at_s / 1000.0

    def since(self, before: Reading) -> Reading:
        """Returns the difference; `at_s` is then how long it took."""
        calls = {name: count - before.calls.get(name, 0) for name, count in self.calls.items()}
        return Reading(
            self.at_s - before.at_s,
            self.round_trips - before.round_trips - 1,
            self.cpu_s - before.cpu_s,
            self.in_bytes - before.in_bytes,
            self.out_bytes - before.out_bytes,
            calls,
        )


async def read_redis(client: Redis) -> Reading:
    """Reads one INFO. Raises RunError for a server too old to count."""
    told: dict[str, Any] = await client.info("all")
    if "total_reads_processed" not in told:
        raise RunError("expected Redis 6 or later: this one does not count its reads")
    calls = {
        name.removeprefix("cmdstat_"): int(stats["calls"])
        for name, stats in told.items()
        if name.startswith("cmdstat_")
    }
    return Reading(
        time.monotonic(),
        int(told["total_reads_processed"]),
        float(told["used_cpu_user"]) + float(told["used_cpu_sys"]),
        int(told["total_net_input_bytes"]),
        int(told["total_net_output_bytes"]),
        calls,
    )


def trees_cpu_s(pids: Iterable[int]) -> float:
    """Returns the CPU time of these processes and of all that they have started and that still
    run."""
    total_s = 0.0
    for pid in pids:
        total_s += cpu_s(pid)
        for process in descendants(pid):
            with suppress(RunError):
                total_s += cpu_s(process.pid)
    return total_s


def descendants(pid: int) -> list[psutil.Process]:
    """Returns what the process has started, directly or not; nothing if it is gone."""
    try:
        found: list[psutil.Process] = psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []
    return found


def see_off(processes: list[psutil.Process]) -> None:
    """Wait until they are gone: renewers end by themselves once their members have. Raises
    RunError for one that does not."""
    _, alive = psutil.wait_procs(processes, timeout=GONE_WITHIN_S)
    if alive:
        raise RunError(f"{len(alive)} processes of a member outlived it")
