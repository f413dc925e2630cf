"""The memory that a member shares with the process that renews for it: a few words for each
partition.

Each word has one writer. The member writes what it holds, how far handlers are and that it runs;
the renewer writes until when leases were renewed and which are lost. Thus neither waits for the
other, a renewer that starts anew finds everything in place, and handlers see their deadline without
a message. Instants are of `clock`; a word is 8 bytes, written at once. No rules about leases here.
"""

from __future__ import annotations

import mmap
import os
import sys

THREAD, LOOP = 0, 1
"""A handler runs on a thread, or on the event loop."""

RUNTIMES = 2
_WORD_BYTES = 8
_HEADER_WORDS = 8
_SLOT_WORDS = 8

# Header: beat of each runtime, how long each has run, beat of the renewer.
_BEAT, _RAN, _RENEWER = 0, 2, 4
# Slot, of the member: epoch (0: not held), deadline by the grant, limit, progress, runtime.
_EPOCH, _GRANTED, _LIMIT, _PROGRESS, _RUNTIME = 0, 1, 2, 3, 4
# Slot, of the renewer: the epoch that the next word is of, deadline by renewals, epoch surely lost.
_RENEWED_EPOCH, _RENEWED, _LOST = 5, 6, 7


class LeaseMemory:
    """Mapped from a file that has no name. `fd` can be handed to another process, which maps the
    same; both sides give the same number of partitions."""

    def __init__(self, partitions: int, fd: int | None = None) -> None:
        size = (_HEADER_WORDS + _SLOT_WORDS * partitions) * _WORD_BYTES
        self.fd = _nameless_file(size) if fd is None else fd
        self.partitions = partitions
        words = memoryview(mmap.mmap(self.fd, size))
        self._integers = words.cast("q")
        self._reals = words.cast("d")
        if fd is None:
            for runtime in range(RUNTIMES):
                self._reals[_RAN + runtime] = 1.0  # so that no progress is reported at 0

    def close(self) -> None:
        """Close the file only: a handler that still has a lease may go on looking at it."""
        os.close(self.fd)

    # The member's side

    def grant(self, partition: int, epoch: int, to_s: float, runtime: int) -> None:
        """Note that this epoch is held from now on. The epoch is written last, for the renewer to
        see the rest."""
        at = _slot(partition)
        self._integers[at + _EPOCH] = 0
        self._reals[at + _GRANTED] = to_s
        self._reals[at + _LIMIT] = float("inf")
        self._reals[at + _PROGRESS] = 0.0
        self._integers[at + _RUNTIME] = runtime
        self._integers[at + _EPOCH] = epoch

    def limit(self, partition: int, to_s: float) -> None:
        """Whatever is renewed: the deadline is no later than this."""
        at = _slot(partition) + _LIMIT
        self._reals[at] = min(self._reals[at], to_s)

    def drop(self, partition: int) -> None:
        self._integers[_slot(partition) + _EPOCH] = 0

    def report_progress(self, partition: int) -> None:
        """Note progress by the time that the handler's runtime has run, so that waiting for a turn
        is free."""
        at = _slot(partition)
        self._reals[at + _PROGRESS] = self._reals[_RAN + self._integers[at + _RUNTIME]]

    def beat(self, runtime: int, now_s: float, gap_max_s: float) -> None:
        """Note that a runtime runs. A gap counts as `gap_max_s` at most: then it did not run."""
        before_s = self._reals[_BEAT + runtime]
        gap_s = min(now_s - before_s, gap_max_s) if before_s else gap_max_s
        self._reals[_RAN + runtime] += gap_s
        self._reals[_BEAT + runtime] = now_s

    @property
    def renewer_beat_s(self) -> float:
        return self._reals[_RENEWER]

    # The renewer's side

    def renewed(self, partition: int, epoch: int, to_s: float) -> None:
        at = _slot(partition)
        if self._integers[at + _RENEWED_EPOCH] != epoch:
            self._reals[at + _RENEWED] = 0.0
            self._integers[at + _RENEWED_EPOCH] = epoch
        self._reals[at + _RENEWED] = to_s

    def lose(self, partition: int, epoch: int) -> None:
        self._integers[_slot(partition) + _LOST] = epoch

    def beat_renewer(self, now_s: float) -> None:
        self._reals[_RENEWER] = now_s

    def held(self) -> list[tuple[int, int]]:
        """(partition, epoch) of all that the member holds."""
        epochs = self._integers[_HEADER_WORDS + _EPOCH :: _SLOT_WORDS].tolist()
        return [(partition, epoch) for partition, epoch in enumerate(epochs) if epoch]

    def idle_s(self, partition: int) -> float | None:
        """Returns how long the handler's runtime has run since the handler last told of progress;
        None if it never did."""
        at = _slot(partition)
        progress_s = self._reals[at + _PROGRESS]
        return (
            self._reals[_RAN + self._integers[at + _RUNTIME]] - progress_s if progress_s else None
        )

    def silent_s(self, partition: int, now_s: float) -> float:
        """Returns how long the handler's runtime has not run."""
        beat_s = self._reals[_BEAT + self._integers[_slot(partition) + _RUNTIME]]
        return now_s - beat_s if beat_s else 0.0

    # Both sides

    def epoch(self, partition: int) -> int:
        return self._integers[_slot(partition) + _EPOCH]

    def deadline_s(self, partition: int, epoch: int) -> float:
        """Returns the instant until which a holder of that epoch may act: 0 if it may not."""
        at = _slot(partition)
        if self._integers[at + _EPOCH] != epoch or self._integers[at + _LOST] == epoch:
            return 0.0
        to_s = self._reals[at + _GRANTED]
        if self._integers[at + _RENEWED_EPOCH] == epoch:
            to_s = max(to_s, self._reals[at + _RENEWED])
        return min(to_s, self._reals[at + _LIMIT])


def _slot(partition: int) -> int:
    return _HEADER_WORDS + _SLOT_WORDS * partition


def _nameless_file(size: int) -> int:
    if sys.platform == "linux":
        fd = os.memfd_create("spillover-leases")
    else:
        import tempfile  # noqa: PLC0415 - a megabyte that the renewer does without

        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, size)
    return fd
