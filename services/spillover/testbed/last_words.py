"""The last words of a process in its log, for one-line reports."""

from __future__ import annotations

import os
from pathlib import Path

TAIL_BYTES = 4096


def tail_of(log: Path, began_at: int = 0) -> list[str]:
    """Returns the last lines of a log from that place on; none if somebody has cleaned up."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(began_at, size - TAIL_BYTES))
            return file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return []


def last_words(log: Path, began_at: int = 0) -> str:
    """Returns the last line with words in it."""
    said = [line.strip() for line in tail_of(log, began_at) if any(map(str.isalpha, line))]
    return said[-1] if said else "it said nothing"
