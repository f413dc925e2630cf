"""A lease member for code that never awaits: `group` on an event loop in a thread of its own.

Nothing of leases is here; only how a caller's thread and that loop meet.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from typing import Any, Self

from spillover.live.leases.completion import MemberFailed
from spillover.live.leases.group import LeaseGroup
from spillover.live.process.logs import Message
from spillover.live.process.own_threads import start_own
from spillover.live.redis.rotation import RedisUrl
from spillover.model.errors import RunError

_log = logging.getLogger(__name__)


class LeaseGroupThread:
    """One member while `with` lasts; it then hands everything over and leaves.

    Takes what `LeaseGroup` takes, and raises what it raises, here or at entry, in the caller's
    thread. While Redis is away, entry waits for it. Handlers run on threads of theirs (async ones
    on the member's loop), and `on_event` is called in the member's thread. Ctrl-C interrupts any
    wait; a second one, while it hands over, leaves at once: then leases run out by themselves.
    What ended it early is raised by `wait`, or at the end of `with` if nothing else was.
    """

    def __init__(self, url: RedisUrl, group: str, **settings: Any) -> None:
        self._member = LeaseGroup(url, group, **settings)
        self._entered = threading.Event()
        self._ended = threading.Event()
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._error: BaseException | None = None
        self._waiting = 0
        self._is_raised = False
        self._thread = threading.Thread(target=self._run, name="lease-member", daemon=True)

    def __enter__(self) -> Self:
        start_own(self._thread)
        try:
            self._entered.wait()
        except BaseException:
            self._abandon()
            raise
        self._raise()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.drain()
        except BaseException:
            self._abandon()
            raise
        if kind is None and not self._is_raised:
            self._raise()

    @property
    def held(self) -> dict[int, int]:
        """Returns the partitions that are held, and their epochs."""
        return self._member.held

    @property
    def state(self) -> str:
        """Returns what the member is doing, in words."""
        return self._member.state

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until the member has left, and returns whether it did so by itself, within that
        time. Raises RunError if it gave up, and says why.
        """
        self._waiting += 1
        try:
            ended = self._ended.wait(timeout_s)
        finally:
            self._waiting -= 1
        if ended:
            self._raise()
        return ended

    def drain(self) -> None:
        """Hand everything over, and leave. It takes as long as handlers take to stop, no longer
        than two maximum shutdown times."""
        self._member.drain_soon()
        self._ended.wait()
        self._thread.join()

    def _run(self) -> None:
        try:
            with asyncio.Runner() as runner:
                self._loop = runner.get_loop()
                runner.run(self._live())
        except BaseException as error:  # noqa: BLE001 - for the caller's thread to raise
            self._error = error
        finally:
            self._ended.set()
            self._entered.set()

    async def _live(self) -> None:
        self._task = asyncio.current_task()
        async with self._member:
            self._entered.set()
            try:
                await self._member.wait()
            except RunError as error:
                if not (self._waiting or isinstance(error, MemberFailed)):
                    _log.error(Message("member has ended", reason=str(error)))
                raise

    def _raise(self) -> None:
        error = self._error
        self._is_raised = error is not None
        if isinstance(error, asyncio.CancelledError):
            raise RunError(f"{self._member.node}: it was left at once")
        if error is not None:
            raise error

    def _abandon(self) -> None:
        """Have it end soon, without a wait for anything."""
        self._member.drain_soon()
        task, loop = self._task, self._loop
        if task is not None and loop is not None:
            with contextlib.suppress(RuntimeError):  # its loop has ended
                loop.call_soon_threadsafe(task.cancel)
