"""Starting a thread that a service cannot do without, where the system may have no room for it."""

from __future__ import annotations

import threading

from spillover.model.errors import RunError


def start_own(thread: threading.Thread) -> None:
    """Start it. Raises RunError, one line, where no more threads may be started."""
    try:
        thread.start()
    except RuntimeError as error:
        expected = "expected room for more threads (ulimit -u, pids.max, memory)"
        raise RunError(f"the thread {thread.name!r} cannot be started: {expected}") from error
