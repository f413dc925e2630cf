"""The entry of a member into its lease group and its end, reported to whoever waits, else to the
log, and at the latest to the caller that leaves its `with`."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from spillover.core.leases.machine import Phase
from spillover.live.handlers.calls import one_line
from spillover.live.process.logs import Message
from spillover.model.errors import InputError, RunError

_log = logging.getLogger(__name__)


class MemberFailed(RunError):
    """An error of Spillover's own ended the member; the log has it in full."""


class Completion:
    """The completion of one member, on its loop. A result that is set once stays."""

    def __init__(self, node: str) -> None:
        loop = asyncio.get_running_loop()
        self.future: asyncio.Future[RunError | None] = loop.create_future()
        """The error of its end; None where it has left as it was asked to."""
        self._entry: asyncio.Future[None] = loop.create_future()
        self._node = node
        self._waiting = 0
        self._is_raised = False

    def let_in(self) -> None:
        """It is a member, or has to wait for another one of its id."""
        if not self._entry.done():
            self._entry.set_result(None)

    def refuse(self, error: InputError) -> bool:
        """It cannot be one, for this reason. Returns whether that is told at entry."""
        if self._entry.done():
            return False
        self._entry.set_exception(error)
        self._entry.exception()  # seen, should nobody wait any more
        return True

    async def entered(self) -> None:
        """Wait until it was let in, or has ended before. Raises InputError if it was refused,
        RunError as `wait` does."""
        decided: list[asyncio.Future[Any]] = [self._entry, self.future]
        await asyncio.wait(decided, return_when=asyncio.FIRST_COMPLETED)
        if self._entry.done():
            self._entry.result()
        self.raise_unless_told()

    def left(self, problem: str | None = None) -> None:
        """Note that it has left: by itself for this problem, or without one because it was told to.
        The problem is logged if nobody waits for the end: it may be long until somebody does."""
        if self.future.done():
            return
        error = None if problem is None else RunError(f"{self._node}: {problem}")
        if error is not None and not self._waiting:
            _log.error(Message("member has given up", member=self._node, reason=problem))
        self.future.set_result(error)

    def failed(self, error: BaseException) -> None:
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
    """In the place of a machine that can be trusted no more: nothing is asked of it any longer but
    what it is doing."""

    state = Phase.FINISHED
    is_down = False

    def __init__(self, problem: str) -> None:
        self.problem: str | None = problem
