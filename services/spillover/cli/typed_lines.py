"""Lines that a user types at the terminal while a command runs; the command knows their meaning.

What they mean is known to the command.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

LOOK_AGAIN_S = 1.0
READ_BYTES = 4096


@contextmanager
def typed_lines(on_line: Callable[[str], None]) -> Iterator[bool]:
    """Read lines for the length of a `with`, in a running loop: `on_line` gets each line, without
    blanks around it. Yields whether there is a terminal to type at."""
    terminal = _terminal()
    if terminal is None:
        yield False
        return
    reader = _TerminalReader(terminal, on_line)
    reader.listen()
    try:
        yield True
    finally:
        reader.close()


class _TerminalReader:
    """A reader of typed lines. It reads as long as the command is in the foreground: reading from
    behind another one would stop the process."""

    def __init__(self, terminal: int, on_line: Callable[[str], None]) -> None:
        self._terminal = terminal
        self._on_line = on_line
        self._loop = asyncio.get_running_loop()
        self._later: asyncio.TimerHandle | None = None

    def listen(self) -> None:
        self._later = None
        self._loop.add_reader(self._terminal, self._read)

    def close(self) -> None:
        self._loop.remove_reader(self._terminal)
        if self._later is not None:
            self._later.cancel()

    def _read(self) -> None:
        if not _in_foreground(self._terminal):
            self._loop.remove_reader(self._terminal)
            self._later = self._loop.call_later(LOOK_AGAIN_S, self.listen)
            return
        try:
            typed = os.read(self._terminal, READ_BYTES)
        except OSError:
            typed = b""  # the terminal has gone
        if not typed:
            self._loop.remove_reader(self._terminal)
        for line in typed.decode("utf-8", "replace").splitlines():
            self._on_line(line.strip())


def _terminal() -> int | None:
    with suppress(AttributeError, OSError, ValueError):  # stdin may be closed, or no file
        descriptor = sys.stdin.fileno()
        return descriptor if os.isatty(descriptor) else None
    return None


def _in_foreground(terminal: int) -> bool:
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return True  # not the terminal of this session: there are no jobs to be behind
