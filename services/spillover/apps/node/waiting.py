"""Clients that wait for a request to end, without a task: who asks for what is under way already,
who asks how it stands, and who would rather not wait longer than a while.

What they are told is decided by whoever lets them wait.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from spillover.apps.http.exchange import Exchange
from spillover.live.overflow.home_requests import Waiter
from spillover.live.overflow.shell import NodeShell
from spillover.model.request import Answer


class Holder(Protocol):
    """Where requests are held: the home requests, or the foreign ones."""

    def wait(self, held: Any, waiter: Waiter, /) -> bool:
        """Have `waiter` called once with the answer; False if too many wait for it."""

    def leave(self, held: Any, waiter: Waiter, /) -> None:
        """Wait no longer."""


class Waiting:
    """One client that waits until an answer is there, `due_s` has come, or it leaves. One of
    `on_answer` (with None if the node ends) and `on_late` is called, unless it leaves."""

    __slots__ = ("_held", "_holder", "_on_answer", "_on_late", "_timer")

    def __init__(
        self,
        holder: Holder,
        held: Any,
        on_answer: Callable[[Answer | None], None],
        on_late: Callable[[], None],
    ) -> None:
        self._holder = holder
        self._held = held
        self._on_answer = on_answer
        self._on_late = on_late

    def begin(self, shell: NodeShell, exchange: Exchange, due_s: float) -> bool:
        """False if too many wait for it already: nothing is called then."""
        if not self._holder.wait(self._held, self):
            return False
        self._timer = shell.timers.at(due_s, self._too_late)
        exchange.watch(self._leave)
        return True

    def __call__(self, answer: Answer | None) -> None:
        self._timer.cancel()
        self._on_answer(answer)

    def _leave(self) -> None:
        self._timer.cancel()
        self._holder.leave(self._held, self)

    def _too_late(self, _: float) -> None:
        self._holder.leave(self._held, self)
        self._on_late()
