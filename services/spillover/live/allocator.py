"""What the C library's allocator does with memory that was freed. Nothing is measured here."""

from __future__ import annotations

import ctypes
import sys

M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
"""Of <malloc.h>."""

KEPT_BYTES = 16 * 1024 * 1024
"""Free memory at the end of the heap that is not given back to the system."""

MAPPED_BYTES = 4 * 1024 * 1024
"""From here on memory is asked of the system, and given back, piece by piece."""


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
