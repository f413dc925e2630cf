"""A handler's lease: until when it may act, whether it should stop, and how to report progress.

`check` asks no server: the deadline lies in memory, written by the process that renews. It is not
enough for what must never happen twice: between a check and its effect a process can stand still.
That is what the epoch is for, see `live.leases.sinks`.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar

from spillover.live.leases.renewal.clock import lease_now_s
from spillover.live.leases.renewal.memory import LeaseMemory
from spillover.model.errors import InputError, SpilloverError

_CURRENT: ContextVar[Lease] = ContextVar("spillover-lease")


class Fenced(SpilloverError):
    """The holder may act no more: its lease is over, or a later one has been seen. Whatever it was
    about to do was not done."""

    def __init__(self, partition: int, epoch: int, why: str) -> None:
        self.partition = partition
        self.epoch = epoch
        super().__init__(f"partition {partition}, epoch {epoch}: {why}")


class StopEvent(threading.Event):
    """A threading.Event that coroutines can wait for, too."""

    def __init__(self) -> None:
        super().__init__()
        self._wakes: list[Callable[[], object]] = []

    def set(self) -> None:
        super().set()
        for wake in self._wakes.copy():
            with contextlib.suppress(RuntimeError):  # its loop has been closed
                wake()

    async def wait_async(self) -> None:
        """Wait until it is set."""
        loop = asyncio.get_running_loop()
        done = asyncio.Event()

        def wake() -> None:
            loop.call_soon_threadsafe(done.set)

        self._wakes.append(wake)
        try:
            if not self.is_set():
                await done.wait()
        finally:
            self._wakes.remove(wake)


class Lease:
    """The lease of one partition at one epoch. All of it may be called from any thread."""

    def __init__(
        self,
        memory: LeaseMemory,
        partition: int,
        epoch: int,
        on_fenced: Callable[[Lease], None],
    ) -> None:
        """`on_fenced` is called once, by the first thread that sees that the lease is over."""
        self.partition = partition
        self.epoch = epoch
        self.stop_event = StopEvent()
        self._memory = memory
        self._on_fenced = on_fenced
        self._lock = threading.Lock()
        self._is_over = False
        self.was_told = False
        """True where the handler should stop: the lease is handed over, about to end, or over. That
        the handler ends then is no failure."""
        self._work: float | None = None

    def __repr__(self) -> str:
        return f"Lease(partition={self.partition}, epoch={self.epoch}, left_s={self.left_s:.3f})"

    @property
    def deadline_s(self) -> float:
        """Returns the deadline by `clock.lease_now_s`; 0 once the lease is over."""
        return 0.0 if self._is_over else self._memory.deadline_s(self.partition, self.epoch)

    @property
    def left_s(self) -> float:
        """Returns for how many seconds the holder may act, if nothing is renewed; 0 once it is
        over."""
        return max(0.0, self.deadline_s - lease_now_s())

    @property
    def is_over(self) -> bool:
        """Returns whether it is over: then it stays over, even if a late answer of Redis would have
        kept it."""
        if (
            not self._is_over
            and self._memory.deadline_s(self.partition, self.epoch) <= lease_now_s()
        ):
            self.fence()
        return self._is_over

    def check(self) -> None:
        """Raise Fenced if the holder may act no more. Costs about a microsecond."""
        if self.is_over:
            raise Fenced(self.partition, self.epoch, "the lease is over")

    def progress(self) -> None:
        """Report that the handler makes progress. From the first call on it has to call again, in
        time; see `guard`. Raises Fenced like `check`."""
        self.check()
        self._memory.report_progress(self.partition)

    def report_load(self, amount: float) -> None:
        """So much work has been done, in any unit that all handlers of the group share (records,
        milliseconds): where the group is evened out by loads, a partition counts for what its
        handler reports in each normal lease time, for 1 at least, and so for 1 if it never
        reports. Choose a unit of which 1 is little. Raises InputError for what is no number of at
        least 0; an amount of which there is no sum any more is not added."""
        if not (_is_number(amount) and 0.0 <= amount < math.inf):
            expected = f"expected a number of at least 0, got {amount!r}"
            raise InputError("lease", "report_load", expected)
        with self._lock:
            work = (self._work or 0.0) + amount
            if work < math.inf:
                self._work = work

    @property
    def work(self) -> float | None:
        """Returns all that was reported; None if nothing ever was."""
        return self._work

    def fence(self) -> None:
        """End the lease now."""
        with self._lock:
            if self._is_over:
                return
            self._is_over = True
        self.tell_to_stop()
        self._on_fenced(self)

    def tell_to_stop(self) -> None:
        """Set the event to stop, for the keeper of the lease."""
        self.was_told = True
        self.stop_event.set()

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Let `current_lease` return this one within a `with`: in this thread or task, and its
        tasks."""
        token = _CURRENT.set(self)
        try:
            yield
        finally:
            _CURRENT.reset(token)


def _is_number(given: object) -> bool:
    return isinstance(given, int | float)


def current_lease() -> Lease:
    """Returns the lease of the handler that runs here. Raises LookupError outside of handlers."""
    return _CURRENT.get()
