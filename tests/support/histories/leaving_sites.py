"""Random histories of the nodes of a site that are all told to end, while clients of each ask for
names of the others: the real `Siblings`, and what `apps.node.site_paths` makes of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, cast

from spillover.core.overflow.names import owner_of
from spillover.core.overflow.sibling_messages import View
from support.histories.sites import LATE_S_MAX, Site, SiteNode

AGAIN_S = 0.02
"""The pause before a request that no node has taken is offered again."""

AWAY_S = 0.2
"""How long the work of a node that takes nothing more takes at a neighbor."""

END_POLL_S = 0.05

FAILED = "failed"
"""Told of a node that could not be asked, and may know the name."""

ELSEWHERE = "elsewhere"
"""Told by a node that has not the name, and of one that is done."""

DONE, REFUSED, UNKNOWN = "done", "refused", "unknown"
"""The answers that clients get."""

Tell = Callable[[str], None]


class Ask(NamedTuple):
    """A client, or a sibling, that waits for the answer of a name."""

    name: str
    tell: Tell
    life: int
    """The life of the node in which it came."""
    is_of_sibling: bool
    may_run: bool = False
    """Whether another node may have it, whose answer was lost."""


class LeavingNode(SiteNode):
    """One node with clients, whose names it takes or asks its siblings for."""

    def start(self) -> None:
        self.is_open = True
        self.is_told = False
        """Whether it was told to end."""
        self.asks = 0
        """How many of those who have asked here wait for other nodes."""
        self.asked_by: list[Tell] = []
        """Who has asked this node and is told nothing more once it has died."""
        self.names: dict[str, list[Tell] | str] = {}
        """The names that were taken here: who waits for the answer, or the answer."""
        super().start()

    @property
    def places(self) -> LeavingSite:
        return cast("LeavingSite", self.site)

    @property
    def others(self) -> list[int]:
        machine = self.machine
        assert machine is not None
        return sorted((machine.up | machine.members) - {self.number})

    def ask(self, name: str, tell: Tell, *, is_of_sibling: bool = False) -> None:
        """Answer a client, or a sibling that holds this node for the owner of the name."""
        life = self.life
        self.asks += 1

        def told(answer: str) -> None:
            if self.life == life and self.machine is not None:
                self.asks -= 1
                tell(answer)

        self._try(Ask(name, told, life, is_of_sibling))

    def _try(self, ask: Ask) -> None:
        machine = self.machine
        if machine is None or self.life != ask.life:
            return
        owner = owner_of(ask.name, machine.owners) if machine.is_settled else None
        told = partial(self._told, ask, machine.view, owner)
        if ask.name in self.names:
            self.wait_for(ask.name, ask.tell)
        elif ask.is_of_sibling and owner != self.number:
            ask.tell(ELSEWHERE)
        elif owner is None:
            told(ELSEWHERE)
        elif owner == self.number:
            self._ask_all(ask.name, list(self.others), told, ELSEWHERE)
        else:
            self.places.question(self, owner, ask.name, told, is_owner=True)

    def _told(self, ask: Ask, view: View, owner: int | None, answer: str) -> None:
        """Go on with the answer to a question."""
        machine = self.machine
        assert machine is not None
        is_settled = machine.is_settled and machine.view == view
        if answer not in (FAILED, ELSEWHERE, UNKNOWN):
            ask.tell(answer)
        elif owner == self.number and answer == ELSEWHERE and is_settled and self.is_open:
            self._take(ask.name, ask.tell)
        elif answer == UNKNOWN and ask.may_run:
            ask.tell(UNKNOWN)
        elif machine.gives_up:
            ask.tell(UNKNOWN if ask.may_run or answer == UNKNOWN else REFUSED)
        else:
            may_run = ask.may_run or answer == UNKNOWN
            self.places.after(AGAIN_S, self._try, ask._replace(may_run=may_run))

    def _ask_all(self, name: str, others: list[int], tell: Tell, worst: str) -> None:
        """Ask one after the other whether it knows the name."""
        if not others:
            tell(worst)
            return

        def told(answer: str) -> None:
            if answer in (FAILED, UNKNOWN):
                self._ask_all(name, others[1:], tell, answer)
            elif answer == ELSEWHERE:
                self._ask_all(name, others[1:], tell, worst)
            else:
                tell(answer)

        self.places.question(self, others[0], name, told, is_owner=False)

    def _take(self, name: str, tell: Tell) -> None:
        if name in self.names:
            self.wait_for(name, tell)
            return
        self.names[name] = [tell]
        self.places.begins(name)
        life = self.life
        if not self.is_told:
            self.arrive(lambda: self._ended(name, life))
        else:
            self.places.after(AWAY_S, self._ended, name, life)

    def _ended(self, name: str, life: int) -> None:
        self.places.ends(name)
        if self.machine is None or self.life != life:
            return
        waits = self.names[name]
        self.names[name] = DONE
        for tell in waits:
            cast("Tell", tell)(DONE)

    def wait_for(self, name: str, tell: Tell) -> None:
        waits = self.names[name]
        if isinstance(waits, str):
            tell(waits)
        else:
            waits.append(tell)

    @property
    def has_work(self) -> bool:
        under_way = any(not isinstance(waits, str) for waits in self.names.values())
        return bool(self.waiting or self.running or under_way)


class LeavingSite(Site):
    """`answers` are what clients were told; those who were at a node that died are `lost`."""

    node_type = LeavingNode

    def __init__(self, nodes: int, servers: int, seed: int) -> None:
        self.answers: Counter[str] = Counter()
        self.asked = 0
        self.runs: Counter[str] = Counter()
        """The names that run now, and how often each."""
        self.has_lost = False
        """Whether a node was killed: a name that ran there may run again."""
        super().__init__(nodes, servers, seed)

    def client(self, number: int, name: str) -> None:
        """A client asks a node that lets it in."""
        node = cast("LeavingNode", self.members[number])
        if node.machine is None or not node.is_open:
            return
        self.asked += 1
        node.ask(name, self._answered)

    def _answered(self, answer: str) -> None:
        self.answers[answer] += 1

    def begins(self, name: str) -> None:
        self.runs[name] += 1
        assert self.runs[name] == 1 or self.has_lost, "a name runs twice at a time"

    def ends(self, name: str) -> None:
        self.runs[name] -= 1

    def kill(self, number: int) -> None:
        self.has_lost |= self.members[number].machine is not None
        self._end(number)

    def _end(self, number: int) -> None:
        node = cast("LeavingNode", self.members[number])
        if node.machine is not None:
            node.is_open = False
            super().kill(number)
            for tell in node.asked_by:
                self.after(self._way_s, tell, UNKNOWN)

    # --- ends ---------------------------------------------------------------------------------

    def tell_to_end(self, number: int) -> None:
        node = cast("LeavingNode", self.members[number])
        if node.machine is not None and not node.is_told:
            node.is_told = node.leaves = True
            node.settle()
            self._look(node, node.life)

    def _look(self, node: LeavingNode, life: int) -> None:
        """It closes its door once it has no work, and ends once nobody waits there."""
        if node.machine is None or node.life != life:
            return
        if not node.has_work and node.is_open:
            node.is_open = False
            node.machine.is_closed = True
        if node.is_open or node.asks or node.has_work:
            self.after(END_POLL_S, self._look, node, life)
        else:
            self._end(node.number)

    # --- questions ----------------------------------------------------------------------------

    def question(
        self, asker: LeavingNode, number: int, name: str, tell: Tell, *, is_owner: bool
    ) -> None:
        """One node asks another one, which refuses it if its door is closed by then."""
        life, is_told = asker.life, False

        def told(answer: str) -> None:
            nonlocal is_told
            if not is_told and asker.machine is not None and asker.life == life:
                is_told = True
                tell(answer)

        self.after(self._way_s, self._asked, asker, number, name, told, is_owner)

    @property
    def _way_s(self) -> float:
        return self.random.uniform(0.0, LATE_S_MAX)

    def _asked(
        self, asker: LeavingNode, number: int, name: str, tell: Tell, is_owner: bool
    ) -> None:
        node = cast("LeavingNode", self.members[number])
        if frozenset((asker.number, number)) in self.cut:
            self.after(1.0, tell, UNKNOWN)  # nothing comes back, till it counts as silent
            return
        if node.machine is None or not node.is_open:
            is_there = asker.machine is not None and number in asker.others
            is_done = asker.machine is not None and asker.machine.is_done(number)
            self.after(self._way_s, tell, FAILED if is_there and not is_done else ELSEWHERE)
            return

        def back(answer: str) -> None:
            if tell in node.asked_by:
                node.asked_by.remove(tell)
            self.after(self._way_s, tell, answer)

        node.asked_by.append(tell)
        if is_owner:
            node.ask(name, back, is_of_sibling=True)
        elif name in node.names:
            node.wait_for(name, back)
        else:
            back(ELSEWHERE)
