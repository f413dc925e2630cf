"""Locks that the kernel lets go of however their holder ends. What is locked is not known here."""

from __future__ import annotations

import fcntl


def try_lock(descriptor: int) -> bool:
    """Lock what the descriptor is open for, and return whether that worked: nobody else holds it.

    Raises OSError where there are no locks.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
