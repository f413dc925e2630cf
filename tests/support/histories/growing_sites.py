"""Random histories of a site whose nodes become more and fewer by its configuration, while streams
break and nodes die: the real `Siblings`, each going by what it has heard so far.
"""

from __future__ import annotations

from spillover.core.overflow.sibling_messages import NO_VIEW
from support.histories.sites import Site

HEARD_S_MAX = 0.5
"""By then each node has another configuration."""

END_POLL_S = 0.05

REFUSED_S_MAX = 1.0
"""A node that is not in a view ends if others refuse it for so long."""


class GrowingSite(Site):
    """A site of up to `most` nodes that begins with `count`."""

    def __init__(self, most: int, count: int, servers: int, seed: int) -> None:
        self.count = count
        self.goes_by: dict[int, int] = {}
        """How many nodes each node believes that there are."""
        self.heard_of: dict[int, set[int]] = {}
        """Which nodes each has had for its siblings in this life: it hears them until they end."""
        self.started_s: dict[int, float] = {}
        super().__init__(most, servers, seed)

    @property
    def is_calm(self) -> bool:
        """Returns whether no node is leaving, and all go by one number: one that starts does not
        hear of those that leave (decision 0049)."""
        alive = {node.number for node in self.alive}
        told = {self.goes_by[number] for number in alive}
        return told <= {self.count} and max(alive, default=0) <= self.count

    def start(self, number: int) -> None:
        node = self.members[number]
        if number > self.count or node.machine is not None:
            return
        is_calm = all(other.number <= self.count for other in self.alive)
        if not is_calm or (self.at_backend and not self.is_begun):
            self.after(END_POLL_S, self.start, number)  # see `is_calm`, and `Site.start`
            return
        self._go_by(number, self.count, anew=True)
        self.started_s[number] = self.now_s
        node.start()
        assert node.machine is not None
        node.machine.use_nodes(self.count, self.now_s)
        if self.count == 1:
            node.machine.begin_alone(self.now_s)
        node.settle()

    def _go_by(self, number: int, count: int, *, anew: bool = False) -> None:
        self.goes_by[number] = count
        known = set() if anew else self.heard_of[number]
        self.heard_of[number] = known | set(range(1, count + 1))

    def resize(self, count: int) -> None:
        """The configuration has so many nodes, which each hears of in its own time."""
        self.count = count
        for number in self.members:
            late_s = self.random.uniform(0.0, HEARD_S_MAX)
            self.after(late_s, self._hear, number)

    def _hear(self, number: int) -> None:
        node = self.members[number]
        if (machine := node.machine) is None:
            self.start(number)
            return
        self._go_by(number, self.count)
        node.leaves = number > self.count
        machine.use_nodes(self.count, self.now_s)
        node.settle()
        if node.leaves:
            self._end(number, node.life)

    def _end(self, number: int, life: int) -> None:
        """It ends once it has drained."""
        node = self.members[number]
        if node.machine is None or node.life != life or number <= self.count:
            return
        if node.waiting or node.running:
            self.after(END_POLL_S, self._end, number, life)
        else:
            self.kill(number)

    def _connected(self, speaker: int, listener: int) -> None:
        ends = ((speaker, listener), (listener, speaker))
        if all(other in self.heard_of.get(one, ()) for one, other in ends):
            super()._connected(speaker, listener)
        elif (machine := self.members[listener].machine) is not None:
            is_refused = self.members[speaker].machine is not None and machine.view == NO_VIEW
            if is_refused and self.now_s >= self.started_s[listener] + REFUSED_S_MAX:
                self.kill(listener)  # it ends, lest it takes all servers
            else:
                self.connect(speaker, listener)
