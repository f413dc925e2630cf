"""Random histories of the nodes of a site that die, are cut off, leave and come back: the real
`Siblings`, over streams of messages that come late and break, before a backend that counts.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable
from itertools import count
from random import Random
from typing import Any

from spillover.core.overflow.sibling import Demand
from spillover.core.overflow.sibling_messages import NO_VIEW, SiblingLoad
from spillover.core.overflow.siblings import Siblings

LATE_S_MAX = 0.002
"""The longest way of a message."""

CONNECT_S_MAX = 0.1

AGAIN_S = 0.1
"""A stream that could not be opened is tried again after so long."""

WORK_S = 0.05
"""How long each request runs: exactly, so that a lost node's are over in that time."""

SETTLED_S = 4.0
"""So long after the last fault all is as it should be: silence, absence, work and a retry."""

EVEN_S = 2.0
"""So long after the last work shares are even."""


class SiteNode:
    """One node over its lives: its machine, and a queue of requests that all take WORK_S."""

    def __init__(self, site: Site, number: int) -> None:
        self.site, self.number = site, number
        self.life = 0
        self.machine: Siblings | None = None
        self.running = 0
        self.waiting: deque[tuple[float, Callable[[], None] | None]] = deque()
        """When each that waits came, and what is called once it has run."""
        self.leaves = False
        self.load: SiblingLoad | None = None
        """What it has told last of its load, which is said first on each stream."""
        self.wakes_s = math.inf
        """When it is woken next."""

    def start(self) -> None:
        self.life += 1
        site = self.site
        self.machine = Siblings(self.number, site.nodes, site.servers, site.now_s)
        self.running, self.leaves, self.load = 0, False, None
        self.waiting.clear()
        for other in site.others(self.number):
            site.connect(other, self.number)
            site.connect(self.number, other)
        self.settle()

    def arrive(self, when_done: Callable[[], None] | None = None) -> None:
        self.waiting.append((self.site.now_s, when_done))
        self.settle()

    def done(self, life: int, when_done: Callable[[], None] | None) -> None:
        self.site.at_backend -= 1
        if self.machine is not None and life == self.life:
            if when_done is not None:
                when_done()
            self.running -= 1
            while self.waiting and self.running < self.machine.own.share:
                if not self.machine.passes_over(self._age_s(), 0.01, self.site.now_s):
                    self._begin()
            self.settle()

    def settle(self) -> None:
        """Serve the queue, tell the machine of it as a node does, and send what that says."""
        machine, now_s = self.machine, self.site.now_s
        assert machine is not None
        while self.waiting and self.running < machine.own.share:
            self._begin()
        waiting, age_s = len(self.waiting), self._age_s()
        if self.leaves or not machine.note(waiting, self.running, now_s):
            demand = Demand(waiting, waiting, self.running, age_s, 0.0, True, self.leaves, WORK_S)
            machine.demands(demand, now_s, gives_all=self.leaves)
        machine.check()
        for tell in machine.take():
            if isinstance(tell.message, SiblingLoad):
                self._check_told(tell.message)
                self.load = tell.message
            self.site.send(self.number, tell.to, tell.message)
        self.site.wake(self)
        self.site.check()

    def _check_told(self, load: SiblingLoad) -> None:
        """It is true now, in all it says: all that waits is of neighbors."""
        assert self.machine is not None
        waiting = len(self.waiting)
        idle = 0 if waiting else max(0, self.machine.own.share - self.running)
        told = (load.waiting, load.foreign, load.idle, load.age_s, load.leaves)
        assert told == (waiting, waiting, idle, self._age_s(), self.leaves), told

    def _begin(self) -> None:
        _, when_done = self.waiting.popleft()
        self.running += 1
        self.site.at_backend += 1
        self.site.after(WORK_S, self.done, self.life, when_done)

    def _age_s(self) -> float:
        return self.site.now_s - self.waiting[0][0] if self.waiting else 0.0


class Site:
    """All nodes, the streams between them, and the time. `cuts` says whether anything has been cut
    or stopped, so that nodes may have been taken for dead that were not."""

    node_type: type[SiteNode] = SiteNode

    def __init__(self, nodes: int, servers: int, seed: int) -> None:
        self.nodes, self.servers = nodes, servers
        self.random = Random(seed)
        self.now_s = 0.0
        self.at_backend = 0
        self._numbers = count()
        self._due: list[tuple[float, int, Any, tuple[Any, ...]]] = []
        self.streams: dict[tuple[int, int], list[float]] = {}
        """The open streams, by who speaks and who listens: when the last message arrives."""
        self.cut: set[frozenset[int]] = set()
        self.was_cut = False
        self.members = {number: self.node_type(self, number) for number in range(1, nodes + 1)}
        for number in self.members:
            self.after(self.random.uniform(0.0, 0.3), self.start, number)

    def others(self, number: int) -> list[int]:
        return [other for other in self.members if other != number]

    @property
    def alive(self) -> list[SiteNode]:
        return [node for node in self.members.values() if node.machine is not None]

    @property
    def is_begun(self) -> bool:
        """Returns whether a node has been in a view in this life."""
        return any(node.machine and node.machine.view != NO_VIEW for node in self.alive)

    # --- time ---------------------------------------------------------------------------------

    def after(self, delay_s: float, call: Any, *told: Any) -> None:
        heapq.heappush(self._due, (self.now_s + delay_s, next(self._numbers), call, told))

    def run(self, for_s: float) -> None:
        """Let time pass; after each event at a node what must hold is looked at."""
        until_s = self.now_s + for_s
        while self._due and self._due[0][0] <= until_s:
            due_s, _, call, told = heapq.heappop(self._due)
            self.now_s = max(self.now_s, due_s)
            call(*told)
        self.now_s = until_s

    def wake(self, node: SiteNode) -> None:
        assert node.machine is not None
        due_s = max(node.machine.next_deadline(), self.now_s)
        if due_s < node.wakes_s:  # else it is looked again once it wakes
            node.wakes_s = due_s
            self.after(due_s - self.now_s, self._woken, node, due_s)

    def _woken(self, node: SiteNode, due_s: float) -> None:
        if node.wakes_s != due_s:
            return
        node.wakes_s, machine = math.inf, node.machine
        if machine is None:
            return
        if machine.next_deadline() <= due_s:
            now_s = max(self.now_s, due_s)
            machine.woke(now_s)
            node.settle()
            assert machine.next_deadline() > self.now_s, "it would be woken for ever"
        else:
            self.wake(node)

    # --- messages -----------------------------------------------------------------------------

    def connect(self, speaker: int, listener: int) -> None:
        """The listener opens its stream after a while, and again whenever it breaks."""
        self.after(self.random.uniform(0.0, CONNECT_S_MAX), self._connected, speaker, listener)

    def _connected(self, speaker: int, listener: int) -> None:
        ends = self.members[speaker], self.members[listener]
        is_up = all(node.machine is not None for node in ends)
        if is_up and frozenset((speaker, listener)) not in self.cut:
            if (speaker, listener) not in self.streams:
                self.streams[speaker, listener] = [self.now_s]
                if (load := self.members[speaker].load) is not None:
                    self.send(speaker, listener, load)
        elif (machine := self.members[listener].machine) is not None:
            if self.members[speaker].machine is None:
                machine.lost(speaker, self.now_s, is_dead=True)
                self.members[listener].settle()
            self.after(AGAIN_S, self.connect, speaker, listener)

    def send(self, speaker: int, listener: int, message: Any) -> None:
        stream = self.streams.get((speaker, listener))
        if stream is None:
            return
        arrives_s = max(stream[0], self.now_s + self.random.uniform(0.0, LATE_S_MAX))
        stream[0] = arrives_s
        life = self.members[listener].life
        self.after(arrives_s - self.now_s, self._arrives, speaker, listener, life, stream, message)

    def _arrives(self, speaker: int, listener: int, life: int, stream: Any, message: Any) -> None:
        node = self.members[listener]
        if node.machine is None or node.life != life:
            return
        if frozenset((speaker, listener)) in self.cut:
            return
        if message is None:
            if self.streams.get((speaker, listener)) is stream:
                del self.streams[speaker, listener]
            node.machine.lost(speaker, self.now_s)
            self.connect(speaker, listener)
        elif self.streams.get((speaker, listener)) is stream:
            node.machine.heard(speaker, message, self.now_s)
        node.settle()

    # --- faults -------------------------------------------------------------------------------

    def kill(self, number: int) -> None:
        """Its system tells the others; what it ran goes on at the backend."""
        node = self.members[number]
        if node.machine is None:
            return
        for other in self.others(number):
            self.streams.pop((other, number), None)
            self.send(number, other, None)
        node.machine = None

    def start(self, number: int) -> None:
        if self.members[number].machine is not None:
            return
        if self.at_backend and not self.is_begun:
            self.after(WORK_S, self.start, number)  # nobody is left who knows that something runs
        else:
            self.members[number].start()

    def leave(self, number: int) -> None:
        """It drains: what comes now goes elsewhere."""
        if (node := self.members[number]).machine is not None:
            node.leaves = True
            node.settle()

    def arrive(self, number: int) -> None:
        node = self.members[number]
        if node.machine is not None and not node.leaves:
            node.arrive()

    def cut_off(self, one: int, other: int) -> None:
        """Nothing comes through any more, and nobody is told."""
        if one != other:
            self.cut.add(frozenset((one, other)))
            self.was_cut = True

    def break_off(self, speaker: int, listener: int) -> None:
        """One stream breaks with what is on its way there, and nobody is dead."""
        if self.streams.pop((speaker, listener), None) is not None:
            self._broke(speaker, listener, self.members[listener].life)

    def heal(self) -> None:
        """Streams that were cut have broken by now, or break now."""
        for pair in self.cut:
            one, other = sorted(pair)
            for speaker, listener in ((one, other), (other, one)):
                self.streams.pop((speaker, listener), None)
                node = self.members[listener]
                if node.machine is not None:
                    self.after(0.0, self._broke, speaker, listener, node.life)
        self.cut.clear()

    def _broke(self, speaker: int, listener: int, life: int) -> None:
        node = self.members[listener]
        if node.machine is not None and node.life == life:
            node.machine.lost(speaker, self.now_s)
            node.settle()
            self.connect(speaker, listener)

    # --- what must hold -----------------------------------------------------------------------

    def check(self) -> None:
        if self.was_cut:
            return
        assert self.at_backend <= self.servers, "more run than there are servers"
        shares, view = 0, None
        for node in self.members.values():
            if (machine := node.machine) is not None:
                shares += machine.own.share
                if machine.is_settled:
                    believed = view is None or view == machine.view
                    assert believed, "a name could have two owners that both believe it"
                    view = machine.view
        assert shares <= self.servers, shares

    def check_settled(self) -> None:
        """After SETTLED_S without a fault, where nothing is cut."""
        machines = [node.machine for node in self.alive if node.machine is not None]
        alive = frozenset(machine.number for machine in machines)
        staying = {node.number for node in self.alive if not node.leaves}
        owners = frozenset(staying or alive)
        for machine in machines:
            assert machine.is_settled, (machine.number, machine.view)
            assert machine.members == alive == machine.up
            assert machine.owners == owners
        assert len({machine.view for machine in machines}) <= 1
        assert sum(machine.own.share for machine in machines) <= self.servers
        assert not any(node.waiting for node in self.alive), "a request waits for ever"

    def check_even(self) -> None:
        """After EVEN_S in which nothing came: no share is larger than another by more than one, and
        those that leave have none if others stay."""
        staying = [node for node in self.alive if not node.leaves] or self.alive
        shares = [node.machine.own.share for node in staying if node.machine is not None]
        assert sum(shares) == self.servers or not shares, (shares, self.servers)
        if all(not node.leaves for node in staying):
            assert not shares or max(shares) - min(shares) <= 1, shares
