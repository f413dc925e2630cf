"""Fenced calls over HTTP: two headers that say on whose behalf, and a checker for the server.

The client sends `epoch_headers(lease)` with each call that writes or deletes, and gives the answer
to `raise_if_fenced`. The server asks its `EpochGate` before it does anything, and answers 412 with
`Spillover-Epoch: <the latest>` to what comes from an older epoch. No HTTP library is needed, and
any will do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from spillover.live.leases.sinks.held import HeldPartition, fenced_by

EPOCH_HEADER = "Spillover-Epoch"
PARTITION_HEADER = "Spillover-Partition"
STALE_STATUS = 412
"""The status for an older epoch: Precondition failed."""


def epoch_headers(lease: HeldPartition) -> dict[str, str]:
    """Returns the headers of a call on the lease's behalf; raises Fenced if it is over. Ask anew
    for each call."""
    lease.check()
    return {PARTITION_HEADER: str(lease.partition), EPOCH_HEADER: str(lease.epoch)}


def raise_if_fenced(lease: HeldPartition, status: int, headers: Mapping[str, str]) -> None:
    """Raise Fenced if the server has refused the call for its epoch."""
    latest = _header(headers, EPOCH_HEADER)
    if status == STALE_STATUS and latest.isascii() and latest.isdigit():
        fenced_by(lease, int(latest))


@dataclass(frozen=True, slots=True)
class Verdict:
    """The duty of the server: none if `status` is 0, else to answer with that status and
    `headers`."""

    status: int
    problem: str
    headers: dict[str, str]

    @property
    def admitted(self) -> bool:
        return self.status == 0


class EpochGate:
    """The highest epoch seen for each of so many partitions; may be asked from any thread.

    It forgets when its server ends: give it `seen`, what was stored, and have `keep` store each
    new epoch before the call is let in. A server that writes to a database does better with
    `sql_sink` there, since between this check and a write a process can stand still.
    """

    def __init__(
        self,
        partitions: int,
        seen: Mapping[int, int] | None = None,
        keep: Callable[[int, int], None] = lambda _partition, _epoch: None,
    ) -> None:
        self._partitions = partitions
        self._seen = dict(seen or {})
        self._keep = keep
        self._lock = threading.Lock()

    def judge(self, headers: Mapping[str, str]) -> Verdict:
        """Returns a verdict: 412 for an older epoch, 400 for headers that are not there, are no
        numbers or name no partition."""
        numbers = []
        for name in (PARTITION_HEADER, EPOCH_HEADER):
            text = _header(headers, name)
            if not (text.isascii() and text.isdigit() and len(text) < 20):
                return Verdict(400, f"{name}: expected a number, got {text[:40]!r}", {})
            numbers.append(int(text))
        partition, epoch = numbers
        if partition >= self._partitions:
            expected = f"expected less than {self._partitions}, got {partition}"
            return Verdict(400, f"{PARTITION_HEADER}: {expected}", {})
        with self._lock:
            latest = self._seen.get(partition, -1)
            if epoch > latest:
                self._keep(partition, epoch)
                self._seen[partition] = epoch
        if epoch < latest:
            problem = f"partition {partition}: epoch {epoch} is over, the latest is {latest}"
            return Verdict(STALE_STATUS, problem, {EPOCH_HEADER: str(latest)})
        return Verdict(0, "", {})


def _header(headers: Mapping[str, str], name: str) -> str:
    """Returns the header, whatever the case of its letters; libraries differ."""
    found = headers.get(name)
    if found is None:
        found = next((headers[key] for key in headers if key.lower() == name.lower()), "")
    return found
