"""Worker processes that never outlive the node, not even one that was killed.

What runs inside the processes is here too, so that a worker process imports next to nothing.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from concurrent.futures import ProcessPoolExecutor


def make_process_pool(processes: int) -> ProcessPoolExecutor:
    """A pool of at most `processes`, started when first needed."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(processes, mp_context=context, initializer=_begin)


def _begin() -> None:
    """First thing in each worker process: leave Ctrl-C to the node, and end when it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)
