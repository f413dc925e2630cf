"""Lines for whoever reads standard output, written in a thread: a reader that has stopped reading
does not stop the program, and one that has gone does not end it.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque

from spillover.live.process.logs import Message
from spillover.live.process.own_threads import start_own

LINES_MAX = 10_000
"""Unwritten. Beyond it lines are dropped, and how many is told in the log."""

CLOSE_S = 1.0

_log = logging.getLogger(__name__)


class LineWriter:
    """Writes lines to one file descriptor; None: to nowhere. `write` never waits, and may be called
    from any thread; `close` waits CLOSE_S at most."""

    def __init__(self, fd: int | None) -> None:
        self._fd = fd
        self._lines: deque[str] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._dropped = 0
        self._thread = threading.Thread(target=self._run, name="lines", daemon=True)
        start_own(self._thread)

    def write(self, line: str) -> None:
        """One line, without its end."""
        with self._changed:
            if len(self._lines) < LINES_MAX:
                self._lines.append(line)
            else:
                self._dropped += 1
            self._changed.notify()

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(CLOSE_S)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lines or self._closing)
                lines = list(self._lines)
                self._lines.clear()
                dropped, self._dropped = self._dropped, 0
            if dropped:
                _log.warning(Message("nobody reads the lines", dropped=dropped))
            if not lines:
                return
            self._put("".join(f"{line}\n" for line in lines).encode())

    def _put(self, data: bytes) -> None:
        while data and self._fd is not None:
            try:
                data = data[os.write(self._fd, data) :]
            except OSError as error:
                self._fd = None
                _log.warning(Message("lines cannot be written any more", reason=error.strerror))
