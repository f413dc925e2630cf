"""The register of a cluster: every visit that is here, where it is, and the books about it.

A visit is entered when it is accepted and struck out when its one answer is given; whatever
happens in between goes through here, so that the ledger cannot drift from what is held.
"""

from __future__ import annotations

from spillover.core.overflow.deadlines import Deadlines
from spillover.core.overflow.held import UNLIMITED_BYTES, Held
from spillover.core.overflow.ledger import FAILURES, Ledger
from spillover.core.overflow.visit import ARRIVED, AWAY, Visit, VisitState
from spillover.model.request import Outcome


class Register:
    """Visits by ref, with the ledger, the deadlines, and how many are away and how many bytes all
    of them hold."""

    __slots__ = ("_foreign", "_home", "away", "deadlines", "held", "ledger", "visits")

    def __init__(self, epoch: int, held_limit_bytes: int = UNLIMITED_BYTES) -> None:
        self.ledger = Ledger(epoch)
        self._home, self._foreign = self.ledger.home, self.ledger.foreign
        self.visits: dict[int, Visit] = {}
        self.deadlines = Deadlines(self.visits)
        self.away = 0
        self.held = Held(held_limit_bytes)

    def accept(self, visit: Visit) -> None:
        """From here on the request is in the ledger, and ends with exactly one answer."""
        self.visits[visit.ref] = visit
        self.held.request_bytes += visit.request.size_bytes
        if visit.is_home:
            self._home["accepted"] += 1
        else:
            self._foreign["received"] += 1
        self.deadlines.add(visit.deadline_s, visit.ref)

    def enter(self, visit: Visit, state: VisitState, now_s: float) -> None:
        """Change the state, and the ledger with it. What goes away has its `target` by then."""
        if visit.state is not ARRIVED:
            self.leave(visit)
        visit.state = state
        visit.since_s = now_s
        if state is AWAY:
            self.away += 1
            visit.target.away += 1
        if visit.is_home:
            self._home[state] += 1
        else:
            self._foreign["handed_on" if state is AWAY else state] += 1

    def come_back(self, visit: Visit, now_s: float) -> None:
        """What was away is here again, and its neighbor is not asked again."""
        visit.network_s += max(0.0, now_s - visit.since_s)
        visit.tried = (*visit.tried, visit.target.handle)
        self.leave(visit)

    def leave(self, visit: Visit) -> None:
        """It is nowhere for as long as an event is handled."""
        if visit.state is ARRIVED:
            return
        state = visit.state
        if state is AWAY:
            self.away -= 1
            visit.target.away -= 1
        if visit.is_home:
            self._home[state] -= 1
        else:
            self._foreign["handed_on" if state is AWAY else state] -= 1
        visit.state = ARRIVED

    def give_back(self, visit: Visit) -> None:
        """It is its sender's again, undone. To a neighbor that is an answer too; a client is told
        that it was never accepted."""
        self.leave(visit)
        del self.visits[visit.ref]
        self.deadlines.find_next()
        self.held.request_bytes -= visit.request.size_bytes
        if visit.is_home:
            self._home["accepted"] -= 1
        else:
            self._foreign["answered"] += 1

    def end(self, visit: Visit, outcome: Outcome) -> None:
        self.leave(visit)
        del self.visits[visit.ref]
        self.deadlines.find_next()
        self.held.request_bytes -= visit.request.size_bytes
        if visit.is_home:
            self._home["failed" if outcome in FAILURES else outcome] += 1
        else:
            self._foreign["cancelled" if outcome is Outcome.CANCELLED else "answered"] += 1
