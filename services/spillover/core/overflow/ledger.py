"""The ledger of one cluster: the end of every request that it ever accepted.

Two balances hold after every event: `home.accepted` is the sum of the other
home entries, and `foreign.received` of the other foreign ones.
"""

from __future__ import annotations

from collections import Counter

from spillover.model.request import Outcome

HOME_STATES = ("queued", "running", "away")
HOME_ENDS = ("done", "failed", "expired", "cancelled")
FOREIGN_STATES = ("queued", "running", "handed_on")
FOREIGN_ENDS = ("answered", "cancelled")
FAILURES = frozenset({Outcome.FAILED, Outcome.REJECTED, Outcome.UNKNOWN})
"""The ends that count as errors: the client got one."""


class Ledger:
    """Counters of one epoch. The `Register` moves requests through it; nothing else writes it."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.home = dict.fromkeys(("accepted", *HOME_ENDS, *HOME_STATES), 0)
        self.foreign = dict.fromkeys(("received", *FOREIGN_ENDS, *FOREIGN_STATES), 0)

    def imbalance(self) -> int:
        """Returns how many requests the two balances are off by; 0 unless there is a bug."""
        home, foreign = self.home, self.foreign
        home_rest = sum(home.values()) - home["accepted"]
        foreign_rest = sum(foreign.values()) - foreign["received"]
        return abs(home["accepted"] - home_rest) + abs(foreign["received"] - foreign_rest)

    def check(self, home_states: Counter[str], foreign_states: Counter[str]) -> None:
        """Raise AssertionError unless both balances hold, and the states are those counted anew
        from the requests held."""
        assert self.imbalance() == 0, self.as_dict()
        for state in HOME_STATES:
            assert self.home[state] == home_states[state], (state, self.home, home_states)
        for state in FOREIGN_STATES:
            assert self.foreign[state] == foreign_states[state], (state, self.foreign)

    def as_dict(self) -> dict[str, object]:
        return {"epoch": self.epoch, "home": dict(self.home), "foreign": dict(self.foreign)}
