"""The command line, the only place that wires the rest together. `commands` lists the commands.

Exit status: 0 done, 1 the run failed, 2 bad usage or input, 130 interrupted.
"""

from __future__ import annotations

import sys

EXIT_INTERRUPTED = 130

SERVICES = (["node"], ["up"], ["queue"], ["lease", "run"])
"""Commands that go on until they are stopped, and do not end by SIGHUP."""


def main(argv: list[str] | None = None) -> int:
    """Run the command named in `argv`, and return its exit status. All that this takes is imported
    within, so that Ctrl-C ends it without a traceback from the first moment on."""
    try:
        if argv is None:
            from spillover.live.process.beginning import begin

            begin()
            if any(sys.argv[1 : 1 + len(words)] == words for words in SERVICES):
                return _run_service()
        from spillover.cli.commands import run_command

        return run_command(sys.argv[1:] if argv is None else [*argv])
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _run_service() -> int:
    """Run a command that goes on; the process ends soon after it, whatever users' code leaves
    behind."""
    from spillover.live.process.early_hangup import hold_hangups

    hold_hangups()
    from spillover.cli.commands import run_command
    from spillover.live.process.stopping import bound_this_process, has_returned

    bound_this_process()
    status = EXIT_INTERRUPTED
    try:
        status = run_command(sys.argv[1:])
    finally:
        has_returned(status)
    return status
