"""The requests that pass through under a key (`Idempotency-Key`) while another one with that key is
under way: a client that gives up and asks again at once mostly comes before its first request has
ended.

Such a request waits a moment for the other one to end, and is taken then. How requests that are
taken go on is not known here.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from spillover.apps.http.problems import Problem
from spillover.core.overflow.idempotency import IdempotencyRecord
from spillover.live.overflow.relay import Sink
from spillover.live.overflow.shell import NodeShell
from spillover.live.overflow.waiters import Told
from spillover.model.ids import name_of
from spillover.model.request import DONE, Answer, Request

KEY_WAIT_S = 1.0
"""The time, in seconds, that the other request under the same key has to end while its client seems
to be there. A client that has gone in an orderly way is found out by what is sent to it
(`live.http1.half_closed`), within a quarter of a second and the way there and back."""

_CONFLICT = "under way; its answer is passed on as it comes and not kept"


class Waits(Sink, Protocol):
    """The sink of a request that waits."""

    repeat: KeyRepeat | None
    """The wait that is told when the client leaves; None while there is none."""

    def taken(self, entry: IdempotencyRecord) -> None:
        """Note the entry of the request, which is under way or has already ended."""

    def refuse(self, problem: Problem) -> None:
        """Answer with a problem: the request is not taken."""


class KeyRepeat:
    """One request that waits for another one of its name to end."""

    __slots__ = ("_answer", "_deadline_s", "_entry", "_is_over", "_request", "_shell", "_timer")

    def __init__(
        self, shell: NodeShell, answer: Waits, request: Request, deadline_s: float
    ) -> None:
        self._shell = shell
        self._answer = answer
        self._request = request
        self._deadline_s = deadline_s
        self._entry: IdempotencyRecord | None = None
        """The entry of the other request."""
        self._is_over = False
        shell.room.moving.add(request.size_bytes)
        due_s = min(deadline_s, shell.now_s + KEY_WAIT_S)
        self._timer = shell.timers.at(due_s, self._too_late)

    def take(self) -> None:
        """Have the request taken if no other one of its name is under way; else wait for that."""
        if self._is_over:
            return
        home_requests = self._shell.requests.home
        entry = home_requests.find(self._request.id)
        if entry is None or entry.answer is not None:
            self._end()
            taken = home_requests.take_passed(self._request, self._deadline_s, self._answer)
            self._answer.taken(taken)
            return
        self._entry = entry
        if not self._shell.requests.waiters.wait(entry.ref, self):
            self._refuse("conflict", f"{_CONFLICT}, and too many wait for it")

    def __call__(self, told: Told) -> None:
        """Have the request taken soon, as the other one has ended. The machine calls this in the
        midst of its work."""
        asyncio.get_running_loop().call_soon(self._other_ended, told)

    def cancel(self) -> None:
        """Wait no longer: the client has gone."""
        if not self._is_over:
            self._end()

    def _other_ended(self, told: Told) -> None:
        entry, self._entry = self._entry, None
        if self._is_over or entry is None:
            return
        if told is None:  # the node ends
            self._end()
            self._answer.settle(None)
        elif isinstance(told, Answer) and told.outcome is DONE and not entry.client_left:
            self._refuse("conflict", _CONFLICT)  # its client has the answer: once is enough
        else:
            self.take()

    def _too_late(self, now_s: float) -> None:
        entry = self._entry
        if entry is not None and entry.client_left and now_s < self._deadline_s:
            self._timer = self._shell.timers.at(self._deadline_s, self._too_late)
        elif now_s < self._deadline_s:
            self._refuse("conflict", _CONFLICT)
        else:
            self._refuse(
                "deadline_exceeded", "the deadline passed while the same key was under way"
            )

    def _refuse(self, reason: str, detail: str) -> None:
        self._end()
        name = name_of(self._request.id)
        self._answer.refuse(Problem(reason, detail, id=name, surely_not_run=True))

    def _end(self) -> None:
        self._is_over = True
        self._timer.cancel()
        self._shell.room.moving.add(-self._request.size_bytes)
        entry, self._entry = self._entry, None
        if entry is not None:
            self._shell.requests.waiters.leave(entry.ref, self)


def waits_for_key(shell: NodeShell, answer: Waits, request: Request, deadline_s: float) -> bool:
    """Returns whether another request of its name is under way: then it waits for that to end."""
    other = shell.requests.home.find(request.id)
    if other is None or other.answer is not None:
        return False
    answer.repeat = repeat = KeyRepeat(shell, answer, request, deadline_s)
    repeat.take()
    return True
