"""The register of a cluster: every visit that is here, where it is, and the books about it.

A visit is entered when it is accepted and struck out when its one answer is given; whatever
happens in between goes through here, so that the ledger cannot drift from what is held.
"""

from __future__ import annotations

from spillover.core.overflow.deadlines import Deadlines
from spillover.core.overflow.held import UNLIMITED_BYTES, Held
from spillover.core.overflow.ledger import Ledger
from spillover.core.overflow.visit import ARRIVED, AWAY, Visit, VisitState
from spillover.model.request import Outcome


class Register:
    """Visits by ref, with the ledger, the deadlines, and how many are away and how many bytes all
    of them hold."""

    __slots__ = ("away", "deadlines", "held", "ledger", "visits")

    def __init__(self, epoch: int, held_limit_bytes: int = UNLIMITED_BYTES) -> None:
        self.ledger = Ledger(epoch)
        self.visits: dict[int, Visit] = {}
        self.deadlines = Deadlines(self.visits)
        self.away = 0
        self.held = Held(held_limit_bytes)

    def accept(self, visit: Visit) -> None:
        """From here on the request is in the ledger, and ends with exactly one answer."""
        self.visits[visit.ref] = visit
        self.held.request_bytes += visit.request.size_bytes
        self.ledger.accept(visit.is_home)
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
        self.ledger.enter(state, visit.is_home)

    def come_back(self, visit: Visit, now_s: float) -> None:
        """What was away is here again, and its neighbor is not asked again."""
        visit.network_s += max(0.0, now_s - visit.since_s)
        visit.tried = (*visit.tried, visit.target.handle)
        self.leave(visit)

    def leave(self, visit: Visit) -> None:
        """It is nowhere for as long as an event is handled."""
        if visit.state is ARRIVED:
            return
        if visit.state is AWAY:
            self.away -= 1
            visit.target.away -= 1
        self.ledger.leave(visit.state, visit.is_home)
        visit.state = ARRIVED

    def give_back(self, visit: Visit) -> None:
        """It is its sender's again."""
        self.leave(visit)
        del self.visits[visit.ref]
        self.held.request_bytes -= visit.request.size_bytes
        self.ledger.give_back(visit.is_home)

    def end(self, visit: Visit, outcome: Outcome) -> None:
        self.leave(visit)
        del self.visits[visit.ref]
        self.held.request_bytes -= visit.request.size_bytes
        self.ledger.end(outcome, visit.is_home)
