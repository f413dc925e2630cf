"""The table of those who wait for the end of a visit, by ref: clients whose request it is, others
that ask for its state, and the neighbor that has sent it.

What each of them does when it is told is its own business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import chain
from typing import TypeAlias

from spillover.core.overflow import events as ev
from spillover.model.request import Answer

Told: TypeAlias = Answer | ev.Refuse | None
"""The end of a visit: an answer, a refusal (it surely has not run), or None if the node ends before
that is known."""

Waiter: TypeAlias = Callable[[Told], None]

WAITERS_MAX = 1000
"""The most that may wait for one visit at the same time."""


class Waiters:
    """The waiters for visits, by ref, in the order in which they came. Each is told once, or leaves
    before."""

    def __init__(self) -> None:
        self._by_ref: dict[int, tuple[Waiter, ...]] = {}

    def __len__(self) -> int:
        """Returns how many visits are waited for."""
        return len(self._by_ref)

    def of(self, ref: int) -> tuple[Waiter, ...]:
        """Returns those who wait for this visit."""
        return self._by_ref.get(ref, ())

    def wait(self, ref: int, waiter: Waiter) -> bool:
        """Have `waiter` told the end of a visit that is under way. Returns False if too many
        wait."""
        waiting = self._by_ref.get(ref, ())
        if len(waiting) >= WAITERS_MAX:
            return False
        self._by_ref[ref] = (*waiting, waiter)
        return True

    def leave(self, ref: int, waiter: Waiter) -> None:
        """Have `waiter` wait no longer."""
        waiting = tuple(other for other in self._by_ref.pop(ref, ()) if other is not waiter)
        if waiting:
            self._by_ref[ref] = waiting

    def tell(self, ref: int, told: Told) -> None:
        """Tell all who wait that the visit has come to its end."""
        for waiter in self._by_ref.pop(ref, ()):
            waiter(told)

    def close(self) -> None:
        """Tell all who wait that the node ends."""
        by_ref, self._by_ref = self._by_ref, {}
        for waiter in chain.from_iterable(by_ref.values()):
            waiter(None)


class FutureWaiter:
    """A waiter for an answer by a future, which is cancelled if none comes."""

    __slots__ = ("future",)

    def __init__(self) -> None:
        self.future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def __call__(self, told: Told) -> None:
        if self.future.done():
            return
        if isinstance(told, Answer):
            self.future.set_result(told)
        else:
            self.future.cancel()

    @property
    def answer(self) -> Answer | None:
        """Returns the answer, or None if it is not there yet, or never will be."""
        future = self.future
        return future.result() if future.done() and not future.cancelled() else None
