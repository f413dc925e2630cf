"""Random histories of a site whose servers are unlike: the real `Siblings` with shares of each
class of tokens, over the streams and faults of `sites`, before a backend that counts by class.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from spillover.core.overflow.sibling import Demand, Layout
from spillover.core.overflow.sibling_messages import LineLoad, SiblingLoad
from spillover.core.overflow.siblings import Siblings
from support.histories.sites import WORK_S, Site, SiteNode


class TokenNode(SiteNode):
    """One node, at which requests of each line wait for tokens of the classes of the line."""

    site: TokenSite

    def start(self) -> None:
        self.life += 1
        site = self.site
        self.machine = Siblings(self.number, site.nodes, 0, site.now_s, site.layout)
        self.leaves, self.load = False, None
        self.queue: list[tuple[float, int]] = []
        """When each that waits came, and its line, in order."""
        self.held = Counter[int]()
        """The tokens that are held, by class."""
        for other in site.others(self.number):
            site.connect(other, self.number)
            site.connect(self.number, other)
        self.settle()

    def arrive_in(self, line: int) -> None:
        self.queue.append((self.site.now_s, line))
        self.settle()

    def done_of(self, life: int, kind: int) -> None:
        self.site.at_backend_of[kind] -= 1
        if self.machine is not None and life == self.life:
            self.held[kind] -= 1
            self._serve(passes=True)
            self.settle()

    def _free(self, kind: int) -> int:
        assert self.machine is not None
        return self.machine.own.classes[kind].share - self.held[kind]

    def _serve(self, *, passes: bool = False) -> None:
        machine, now_s = self.machine, self.site.now_s
        assert machine is not None
        while (found := self._startable()) is not None:
            place, kind = found
            age_s = now_s - self.queue[place][0]
            if passes and machine.passes_over(age_s, 0.01, now_s, kind):
                continue
            del self.queue[place]
            self.held[kind] += 1
            self.site.at_backend_of[kind] += 1
            self.site.after(WORK_S, self.done_of, self.life, kind)

    def _startable(self) -> tuple[int, int] | None:
        for place, (_, line) in enumerate(self.queue):
            for kind in self.site.layout.lines[line]:
                if self._free(kind) > 0:
                    return place, kind
        return None

    def settle(self) -> None:
        machine, now_s = self.machine, self.site.now_s
        assert machine is not None
        self._serve()
        kinds = range(len(self.site.layout.tokens))
        idle_of = [max(0, self._free(kind)) for kind in kinds]
        if self.leaves or self.queue or not machine.note_tokens(idle_of, now_s):
            machine.demands(self._demand(), now_s, gives_all=self.leaves)
        self._serve()
        machine.check()
        for tell in machine.take():
            if isinstance(tell.message, SiblingLoad):
                self._check_told(tell.message)
                self.load = tell.message
            self.site.send(self.number, tell.to, tell.message)
        self.site.wake(self)
        self.site.check()

    def _demand(self) -> Demand:
        waiting, busy = len(self.queue), sum(self.held.values())
        age_s = self.site.now_s - self.queue[0][0] if self.queue else 0.0
        told = (waiting, waiting, busy, age_s, 0.0, True, self.leaves, WORK_S)
        held = tuple(self.held[kind] for kind in range(len(self.site.layout.tokens)))
        return Demand(*told, self._lines(), held)

    def _lines(self) -> tuple[LineLoad, ...]:
        ages_s: list[list[float]] = [[] for _ in self.site.layout.lines]
        for came_s, line in self.queue:
            ages_s[line].append(self.site.now_s - came_s)
        return tuple(LineLoad(len(of), len(of), max(of, default=0.0)) for of in ages_s)

    def _check_told(self, load: SiblingLoad) -> None:
        assert (load.waiting, load.lines) == (len(self.queue), self._lines())


class TokenSite(Site):
    """A site with the tokens of a layout."""

    node_type = TokenNode
    members: dict[int, TokenNode]

    def __init__(self, nodes: int, layout: Layout, seed: int) -> None:
        self.layout = layout
        self.at_backend_of = Counter[int]()
        super().__init__(nodes, sum(layout.tokens), seed)

    @property
    def at_backend(self) -> int:
        return self.at_backend_of.total()

    @at_backend.setter
    def at_backend(self, _: int) -> None:
        """Nothing: it is counted by class."""

    def arrive_in(self, number: int, line: int) -> None:
        node = self.members[number]
        if node.machine is not None and not node.leaves:
            node.arrive_in(line)

    def check(self) -> None:
        super().check()
        if not self.was_cut:
            for kind, tokens in enumerate(self.layout.tokens):
                assert self.at_backend_of[kind] <= tokens, "more run than the class has tokens"
                assert sum(self._shares(kind)) <= tokens, self._shares(kind)

    def _shares(self, kind: int) -> Sequence[int]:
        return [one.machine.own.classes[kind].share for one in self.members.values() if one.machine]

    @property
    def alive(self) -> list[SiteNode]:
        nodes = super().alive
        for node in nodes:  # `check_settled` asks whether any of them waits
            node.waiting.clear()
            node.waiting.extend((0.0, None) for _ in getattr(node, "queue", ()))
        return nodes

    def check_even(self) -> None:
        """After EVEN_S in which nothing came: of each class all tokens are there, and no share is
        larger than another by more than one."""
        staying = [node for node in self.alive if not node.leaves] or self.alive
        machines = [node.machine for node in staying if node.machine is not None]
        for kind, tokens in enumerate(self.layout.tokens):
            shares = [machine.own.classes[kind].share for machine in machines]
            assert sum(shares) == tokens or not shares, (kind, shares, tokens)
            if shares and all(not node.leaves for node in staying):
                assert max(shares) - min(shares) <= 1, (kind, shares)
