"""The register of a cluster: every visit that is here, its state, and the books about it.

A visit is entered when it is accepted and struck out when its one answer is given. All that happens
in between goes through here, so that the ledger cannot drift from what is held.
"""

from __future__ import annotations

import heapq
import math

from spillover.core.overflow.held import UNLIMITED_BYTES, HeldBytes
from spillover.core.overflow.ledger import FAILURES, Ledger
from spillover.core.overflow.visit import ARRIVED, AWAY, Visit, VisitState
from spillover.model.request import Outcome

STALE_MAX = 1024
"""The number of entries of ended visits that may stay in `due`, beyond twice the visits."""


class Register:
    """The visits by ref, with the ledger, the times when they are to be looked at, how many are
    away, and how many bytes all of them hold."""

    def __init__(self, epoch: int, held_limit_bytes: int = UNLIMITED_BYTES) -> None:
        self.ledger = Ledger(epoch)
        self._home, self._foreign = self.ledger.home, self.ledger.foreign
        self.visits: dict[int, Visit] = {}
        self.due: list[tuple[float, int]] = []
        """A heap of (instant, ref), one for each visit: its deadline, or an instant before that.
        Entries of visits that have ended are dropped when they come to the top, and all at once
        when they outnumber the others."""
        self.next_s = math.inf
        """The earliest time in `due` of a visit that has not ended; infinity if there is none."""
        self.away = 0
        self.held = HeldBytes(held_limit_bytes)
        self.looks = False
        """Whether accepted visits are looked at again before their deadlines. The machine sets
        it."""

    def accept(self, visit: Visit) -> None:
        """Enter the visit in the ledger: from here on it ends with exactly one answer."""
        self.visits[visit.ref] = visit
        self.held.request_bytes += visit.request.size_bytes
        if visit.is_home:
            self._home["accepted"] += 1
        else:
            self._foreign["received"] += 1
        due_s = visit.deadline_s
        if due_s == math.inf:
            return
        if self.looks:  # as `next_look_s` does, with one call less
            due_s -= 0.5 * (due_s - visit.came_s)
        heapq.heappush(self.due, (due_s, visit.ref))
        self.next_s = self.due[0][0]
        if len(self.due) > STALE_MAX + 2 * len(self.visits):
            self.due = [entry for entry in self.due if entry[1] in self.visits]
            heapq.heapify(self.due)

    def pop_due(self, now_s: float) -> Visit | None:
        """Returns a visit that is to be looked at; None if there is none."""
        if self.next_s > now_s:
            return None
        ref = heapq.heappop(self.due)[1]
        self._find_next()
        return self.visits[ref]

    def look_again(self, visit: Visit, due_s: float) -> None:
        heapq.heappush(self.due, (due_s, visit.ref))
        self.next_s = self.due[0][0]

    def enter(self, visit: Visit, state: VisitState, now_s: float) -> None:
        """Change the state, and the ledger with it. A visit that goes away has its `target` by
        then."""
        if visit.state is not ARRIVED:
            self.leave(visit)
        visit.state = state
        visit.since_s = now_s
        if state is AWAY:
            self.away += 1
            visit.target.away[visit.ref] = visit
        if visit.is_home:
            self._home[state] += 1
        else:
            self._foreign["handed_on" if state is AWAY else state] += 1

    def come_back(self, visit: Visit, now_s: float) -> None:
        """Take back a visit that was away; its neighbor is not asked again."""
        visit.network_s += max(0.0, now_s - visit.since_s)
        visit.tried = (*visit.tried, visit.target.handle)
        self.leave(visit)

    def leave(self, visit: Visit) -> None:
        """Take a visit out of its state, for as long as an event is handled."""
        if visit.state is ARRIVED:
            return
        state = visit.state
        if state is AWAY:
            self.away -= 1
            del visit.target.away[visit.ref]
        if visit.is_home:
            self._home[state] -= 1
        else:
            self._foreign["handed_on" if state is AWAY else state] -= 1
        visit.state = ARRIVED

    def end(self, visit: Visit, outcome: Outcome | None) -> None:
        """End a visit: it has its one answer, or (None) is its sender's again, undone. To a
        neighbor that is an answer too; a client is told that it was never accepted."""
        self.leave(visit)
        del self.visits[visit.ref]
        if self.due and self.due[0][1] == visit.ref:
            self._find_next()
        self.held.release(visit.request.size_bytes)
        if not visit.is_home:
            self._foreign["cancelled" if outcome is Outcome.CANCELLED else "answered"] += 1
        elif outcome is None:
            self._home["accepted"] -= 1
        else:
            self._home["failed" if outcome in FAILURES else outcome] += 1

    def _find_next(self) -> None:
        """Drop the entries of ended visits from the top of `due`."""
        due = self.due
        while due and due[0][1] not in self.visits:
            heapq.heappop(due)
        self.next_s = due[0][0] if due else math.inf
