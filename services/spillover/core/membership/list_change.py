"""The step from one list of servers to the next, as the choosers of `policy.membership` see it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Change:
    """Servers by place."""

    before: tuple[str, ...]
    """The survivors in the order of their names, then those that went in theirs."""
    after: tuple[str, ...]
    """The survivors in the same order, then the new ones in theirs."""
    kept: int

    @property
    def gone(self) -> int:
        return len(self.before) - self.kept

    @property
    def added(self) -> int:
        return len(self.after) - self.kept


def change_between(before: Iterable[str], after: Iterable[str]) -> Change:
    """Returns the places of the servers of two lists; the same whatever order the lists are in."""
    old, new = set(before), set(after)
    kept = sorted(old & new)
    return Change((*kept, *sorted(old - new)), (*kept, *sorted(new - old)), len(kept))
