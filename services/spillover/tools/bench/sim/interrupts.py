"""Ctrl-C in stages that compute and never wait. What is computed is not known here."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from spillover.tools.bench.model import Stage

if TYPE_CHECKING:
    from spillover.tools.bench.session import Session


def interruptible(stage: Stage) -> Stage:
    """Returns the same stage, ended by Ctrl-C at once.

    asyncio cancels its task on the first Ctrl-C, which a task that does not wait hears at its end.
    Raised where it comes, KeyboardInterrupt leaves the task and the loop; asyncio then cancels what
    waits in them, child processes among it.
    """

    async def run(session: Session) -> None:
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            await stage.run(session)
        finally:
            signal.signal(signal.SIGINT, before)

    return Stage(stage.cases, run)
