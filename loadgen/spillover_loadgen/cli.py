"""The command `spillover-loadgen` from its first moment on. What it does is in `commands`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status (`spillover.cli`). All that this
    takes is imported within, so that Ctrl-C ends it without a traceback from the start."""
    try:
        if argv is None:
            from spillover.live.process.beginning import begin

            begin()
        from spillover_loadgen.commands import run_command

        return run_command(sys.argv[1:] if argv is None else argv)
    except KeyboardInterrupt:
        return INTERRUPTED
