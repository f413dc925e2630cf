"""Output of the commands: it can have all characters, whatever the locale says."""

from __future__ import annotations

import io
import sys


def take_all_characters() -> None:
    """Have files and pipes take UTF-8, which is what others read there. A terminal keeps its own
    encoding, and shows what that lacks by its code."""
    for stream in (sys.stdout, sys.stderr):
        if not isinstance(stream, io.TextIOWrapper):
            continue
        encoding = None if stream.isatty() else "utf-8"
        stream.reconfigure(encoding=encoding, errors="backslashreplace")


def tell(line: str) -> None:
    """Write a line of ours to standard error."""
    sys.stderr.write(f"spillover: {line}\n")
    sys.stderr.flush()
