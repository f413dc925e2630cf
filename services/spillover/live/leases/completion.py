"""How a member of a lease group has ended, and who is told: whoever waits for it, else the log, and
at the latest whoever leaves its `with`. When it ends is decided elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
import math
from typing import Any

from spillover.core.leases.machine import Phase
from spillover.live.handlers.calls import one_line
from spillover.live.process.logs import Message
from spillover.model.errors import RunError

_log = logging.getLogger(__name__)


class MemberFailed(RunError):
    """An error of Spillover's own ended the member; the log has it in full."""


class Completion:
    """Of one member, on its loop. What is set once stays."""

    def __init__(self, node: str) -> None:
        self.future: asyncio.Future[RunError | None] = asyncio.get_running_loop().create_future()
        """None: it has left as it was told to."""
        self._node = node
        self._waiting = 0
        self._is_raised = False

    def is_there(self) -> bool:
        return self.future.done()

    def left(self, problem: str | None = None) -> None:
        """By itself, or because it was told to: then there is no problem. One is logged if nobody
        waits for the end, who would be told: it may be long until somebody does."""
        if self.future.done():
            return
        error = None if problem is None else RunError(f"{self._node}: {problem}")
        if error is not None and not self._waiting:
            _log.error(Message("member has given up", member=self._node, reason=problem))
        self.future.set_result(error)

    def failed(self, error: Exception) -> None:
        """Always logged: only there it says where."""
        failed = Message("member has failed, and serves nothing", member=self._node)
        _log.error(failed, exc_info=error)
        if not self.future.done():
            said = f"{self._node}: it has failed by an error of its own: {one_line(error)}"
            self.future.set_result(MemberFailed(said))

    async def wait(self) -> None:
        """Raises RunError unless it left as it was told to."""
        self._waiting += 1
        try:
            await asyncio.shield(self.future)
        finally:
            self._waiting -= 1
        self._raise()

    def raise_unless_told(self) -> None:
        """The same, if it is known and nobody has got it yet."""
        if self.future.done() and not self._is_raised:
            self._raise()

    def _raise(self) -> None:
        error = self.future.result()
        if error is not None:
            self._is_raised = True
            raise type(error)(str(error))


class FailedMachine:
    """In the place of a machine that can be trusted no more: it has finished, and does nothing."""

    state = Phase.FINISHED
    is_down = False

    def __init__(self, problem: str) -> None:
        self.problem: str | None = problem

    def handle(self, event: Any, now_s: float) -> list[Any]:
        del event, now_s
        return []

    def next_deadline(self) -> float:
        return math.inf
