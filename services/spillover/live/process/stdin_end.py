"""A process that ends with its standard input, which whoever started it holds open."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading

from spillover.live.process.own_threads import start_own

STDIN = 0


def on_stdin_end(end: asyncio.Event) -> None:
    """Set `end` when standard input ends. A thread waits for it, since an event loop can watch
    pipes but not files or devices, which standard input may be just as well."""
    loop = asyncio.get_running_loop()

    def wait() -> None:
        with contextlib.suppress(OSError):  # closed or unreadable: nobody holds it open
            while os.read(STDIN, 4096):
                pass
        with contextlib.suppress(RuntimeError):  # the loop is closed: the process has ended before
            loop.call_soon_threadsafe(end.set)

    start_own(threading.Thread(target=wait, name="stdin", daemon=True))
