"""The leases that a member holds, as its machine has it: granted, stopped, fenced and dropped. They
lie in the memory, where whatever renews finds them; who renews them is not said here.
"""

from __future__ import annotations

import threading

from spillover.live.leases.renewal.lease import Lease
from spillover.live.leases.renewal.memory import THREAD, LeaseMemory


class HeldLeases:
    """The leases that are held, by partition, for any thread. All instants are of
    `clock.lease_now_s`."""

    def __init__(self, partitions: int) -> None:
        self._memory = LeaseMemory(partitions)
        self._leases: dict[int, Lease] = {}
        self._lock = threading.RLock()

    def grant(self, partition: int, epoch: int, to_s: float, runtime: int = THREAD) -> Lease:
        """Hold a partition, so far up to `to_s`; `runtime`: what its handler runs on."""
        with self._lock:
            self._memory.grant(partition, epoch, to_s, runtime)
            lease = self._leases[partition] = Lease(
                self._memory, partition, epoch, self._lease_is_over
            )
        return lease

    def stop(self, partition: int, epoch: int, by_s: float) -> None:
        """Have the handler stop; it may act up to `by_s`, and its lease is kept up to then."""
        with self._lock:
            lease = self._lease(partition, epoch)
            if lease is not None:
                self._memory.limit(partition, by_s)
                lease.tell_to_stop()

    def fence(self, partition: int, epoch: int) -> None:
        """Let the handler act no more from now on."""
        lease = self._lease(partition, epoch)
        if lease is not None:
            lease.fence()

    def drop(self, partition: int, epoch: int) -> None:
        """Hold this no more: its handler has ended, or is fenced."""
        with self._lock:
            lease = self._lease(partition, epoch)
            if lease is not None:
                lease.fence()
                del self._leases[partition]
                self._memory.drop(partition)

    def deadline_s(self, partition: int, epoch: int) -> float:
        """Returns the instant until which a holder of that epoch may act, as last renewed; 0 if it
        may not."""
        return self._memory.deadline_s(partition, epoch)

    def work(self) -> list[tuple[int, int, float | None]]:
        """(partition, epoch, what its handler has reported) of all that is held; see
        `Lease.report_load`."""
        return [(lease.partition, lease.epoch, lease.work) for lease in self._all()]

    def _fence_all(self) -> None:
        for lease in self._all():
            lease.fence()

    def _all(self) -> list[Lease]:
        with self._lock:
            return list(self._leases.values())

    def _lease(self, partition: int, epoch: int) -> Lease | None:
        lease = self._leases.get(partition)
        return lease if lease is not None and lease.epoch == epoch else None

    def _lease_is_over(self, lease: Lease) -> None:
        with self._lock:
            if self._lease(lease.partition, lease.epoch) is lease:
                self._memory.limit(lease.partition, 0.0)
