"""The C library's allocator, and memory that was freed.

Blocks below MAPPED_BYTES lie in a heap of which only the end goes back to the system by itself.
After a flood of payloads some small block pins that end, and all that is free before it stays: 600
MiB of payloads of 256 KiB left 560 MiB taken when all were answered. So once much less is held than
before, all pages without a used block are given back. A lower MAPPED_BYTES would do the same for
payloads of that size, but for half as much processor time again for each of them.
"""

from __future__ import annotations

import ctypes
import math
import sys

M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
"""The constant of <malloc.h>."""

GIVEN_BACK_BYTES = 64 * 1024 * 1024
"""So much less must be held than before, for freed memory to be given back."""

GIVE_BACK_S = 1.0
"""At most so often: it takes some 0.1 ms for each MiB."""

KEPT_BYTES = 16 * 1024 * 1024
"""Free memory at the end of the heap that is not given back to the system."""

MAPPED_BYTES = 4 * 1024 * 1024
"""Pieces of memory from this size on are asked of the system, and given back, one by one."""


def keep_freed_memory() -> bool:
    """Have up to KEPT_BYTES of freed memory kept for what comes next; whether that could be had.

    glibc gives back what is free beyond 128 KiB, so that each body of some 64 KiB is given back
    when it has been answered, and fetched again, page by page, for the next one.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    kept = mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
    return bool(kept and mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES))


class FreedMemory:
    """Gives freed memory back to the system after a flood."""

    def __init__(self) -> None:
        self.most_bytes = 0
        """The most that was held since memory was given back."""
        self._given_back_s = -math.inf

    def note(self, held_bytes: int) -> None:
        self.most_bytes = max(self.most_bytes, held_bytes)

    def give_back(self, held_bytes: int, now_s: float) -> bool:
        """Do so if much less is held than before; whether it was done."""
        if self.most_bytes - held_bytes < GIVEN_BACK_BYTES:
            return False
        if now_s < self._given_back_s + GIVE_BACK_S:
            return False
        self.most_bytes = held_bytes
        self._given_back_s = now_s
        try:
            ctypes.CDLL(None).malloc_trim(KEPT_BYTES)
        except (OSError, AttributeError):  # another C library
            return False
        return True
