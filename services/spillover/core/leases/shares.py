"""Which partitions fall to a member, by counts or by loads: what it takes and challenges.

Both ways of balancing answer the same questions, from the same survey that all members see: what
of the free is its own part, what is worth challenging from a living holder, whether to race along
where another one challenges, and how much it has on its hands. Each challenges only what the store
would grant: the rules are in `policy.leases`. What becomes of a claim is in `core.leases.claims`.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable
from typing import Protocol

from spillover.core.leases.agenda import MemberAgenda
from spillover.core.leases.holdings import Holdings
from spillover.core.leases.records import LOAD_UNIT, LoadStanding, Survey
from spillover.policy.leases import best_shift, may_give, may_receive, move_budget


class Shares(Protocol):
    """The rule of who gets which partitions: by counts or by loads."""

    def surveyed(self, survey: Survey) -> None:
        """A new survey; of a group that this member may belong to or not."""

    def own_part(self, survey: Survey, free: Iterable[int]) -> list[int]:
        """Returns what of the free falls to this member."""

    def from_holders(self, survey: Survey, racing: Collection[int]) -> list[int]:
        """Returns what to challenge from living holders; `racing`: claims that the store knows
        nothing of.
        """

    def has_room(self, partition: int, claimed: Collection[int]) -> bool:
        """Returns whether to race for what another one challenges."""

    def weight(self) -> float:
        """Returns how many partitions what is served here amounts to: the wait of step 2 goes by
        it.
        """


class CountShares:
    """Each partition counts for one."""

    def __init__(self, agenda: MemberAgenda, holdings: Holdings) -> None:
        self._agenda = agenda
        self._holdings = holdings
        self._share = 0
        """How many partitions this member may have, by the last survey."""

    def surveyed(self, survey: Survey) -> None:
        standing = survey.standing
        if self._agenda.node not in standing.held:
            self._share = 0
            return
        own, partitions, nodes = (
            standing.held[self._agenda.node],
            self._agenda.partitions,
            len(standing.held),
        )
        floor = partitions // nodes
        room = may_receive(max(own, floor), standing.above, partitions, nodes)
        self._share = floor + 1 if own > floor or room else floor

    def own_part(self, survey: Survey, free: Iterable[int]) -> list[int]:
        """Each in turn to whoever has least then."""
        counts = [(held, node) for node, held in survey.standing.held.items()]
        heapq.heapify(counts)
        mine = []
        for partition in free:
            held, node = counts[0]
            heapq.heapreplace(counts, (held + 1, node))
            if node == self._agenda.node:
                mine.append(partition)
        return mine

    def from_holders(self, survey: Survey, racing: Collection[int]) -> list[int]:
        """Returns partitions of the largest holders first."""
        agenda = self._agenda
        held, above = survey.standing.held, survey.standing.above
        partitions, nodes = agenda.partitions, len(held)
        own = held[agenda.node] + len(racing)
        budget = move_budget(partitions, nodes) - survey.standing.lately[agenda.node]
        if budget <= 0 or not may_receive(own, above, partitions, nodes):
            return []
        givers = [
            (-held.get(owner, 0), agenda.random.random(), partition)
            for partition, owner, resident_ms in survey.held
            if resident_ms >= agenda.times.min_residency_ms
            and may_give(held.get(owner, 0), above, partitions, nodes)
        ]
        return [giver[2] for giver in heapq.nsmallest(min(budget, self._share - own), givers)]

    def has_room(self, partition: int, claimed: Collection[int]) -> bool:
        del partition
        return self._holdings.kept + len(claimed) < self._share

    def weight(self) -> float:
        return len(self._holdings.held)


class LoadShares:
    """Each partition counts for its measured load: the document's last paragraph."""

    def __init__(self, agenda: MemberAgenda, holdings: Holdings) -> None:
        self._agenda = agenda
        self._holdings = holdings
        self._loads: LoadStanding | None = None

    def surveyed(self, survey: Survey) -> None:
        self._loads = survey.loads if self._agenda.node in survey.standing.held else None

    def own_part(self, survey: Survey, free: Iterable[int]) -> list[int]:
        """Returns what of the free falls to this member: the heaviest go first, each to whoever has
        least load then, or fewest partitions.
        """
        loads, counts = self._loads, survey.standing.held
        if loads is None:
            return []
        nodes = [(loads.held[node], count, node) for node, count in counts.items()]
        heapq.heapify(nodes)
        mine = []
        for partition in sorted(free, key=lambda p: (-loads.of[p], p)):
            load, count, node = nodes[0]
            heapq.heapreplace(nodes, (load + loads.of[partition], count + 1, node))
            if node == self._agenda.node:
                mine.append(partition)
        return mine

    def from_holders(self, survey: Survey, racing: Collection[int]) -> list[int]:
        """Returns what evens out most, from the most loaded holder that may give; then the next."""
        agenda, loads, standing = self._agenda, self._loads, survey.standing
        if loads is None:
            return []
        budget = move_budget(agenda.partitions, len(standing.held)) - standing.lately[agenda.node]
        held = dict(loads.held)
        held[agenda.node] += sum(loads.of[partition] for partition in racing)
        movable = self._movable(survey)
        chosen: list[int] = []
        while len(chosen) < budget:
            for owner in sorted(movable, key=lambda node: -held[node]):
                amounts = [loads.of[partition] for partition in movable[owner]]
                own = held[agenda.node]
                least = min(held.values())
                best = best_shift(amounts, held[owner], own, loads.mean, loads.band, least)
                if best >= 0:
                    break
            else:
                break
            chosen.append(movable[owner].pop(best))
            held[owner] -= amounts[best]
            held[agenda.node] += amounts[best]
        return chosen

    def _movable(self, survey: Survey) -> dict[str, list[int]]:
        """Returns the partitions that may move, by living owner, in an order that is drawn: among
        equals, members choose differently."""
        agenda = self._agenda
        movable: dict[str, list[int]] = {}
        for partition, owner, resident_ms in survey.held:
            if resident_ms >= agenda.times.min_residency_ms and owner in survey.standing.held:
                movable.setdefault(owner, []).append(partition)
        for partitions in movable.values():
            agenda.random.shuffle(partitions)
        return movable

    def has_room(self, partition: int, claimed: Collection[int]) -> bool:
        loads = self._loads
        if loads is None or not 0 <= partition < len(loads.of):
            return False
        own = self._kept_load(loads) + sum(loads.of[claim] for claim in claimed)
        return own + loads.of[partition] <= loads.mean + loads.band

    def weight(self) -> float:
        """Returns the own load over that of a usual partition."""
        loads = self._loads
        if loads is None:
            return len(self._holdings.held)
        usual = max(LOAD_UNIT, sum(loads.of) / len(loads.of))
        return self._kept_load(loads) / usual

    def _kept_load(self, loads: LoadStanding) -> int:
        held = self._holdings.held.items()
        return sum(loads.of[partition] for partition, one in held if not one.stopping)


def shares_of(agenda: MemberAgenda, holdings: Holdings) -> Shares:
    """Returns the rule that the member's settings name."""
    if agenda.settings.balance == "load":
        return LoadShares(agenda, holdings)
    return CountShares(agenda, holdings)
