"""Random histories of clients with sessions while their federation changes: all drawn from one
seed, checked after each event, and at last mended, so that every client must come to its server.

Lists change, also within the wait of the change before; nodes are drained and resumed. In rough
histories nodes die, start anew with their first file, fall silent with their hosts, come back as
they were, and connections break. In some, nodes let in few.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from spillover.core.membership.client_session import CHANGE_WAIT_S
from spillover.core.membership.letting_in import LettingIn
from spillover.sim.engine.world import World, stream
from spillover.sim.membership.parties import Life
from spillover.sim.membership.sessions import Sessions, url_of
from support.histories.session_checker import SessionChecker

NAMES = tuple("abcdefg")
CLIENTS_MAX = 30
BUSY_S = 20.0
"""Changes and troubles begin within so long."""
CHANGES_MAX = 5
TROUBLES_MAX = 4
LASTS_S = (0.3, 3.0, 50.0)
"""How long troubles last, at most. The longest outlasts the silence that clients bear."""
LOOK_S = 0.5
SETTLE_S_MAX = 240.0
REQUEST_S_MAX = 8.0
"""Longer than the wait: some are under way while their clients move."""


@dataclass(slots=True)
class Told:
    """What one history was like."""

    happened: Counter[str] = field(default_factory=Counter)
    requests: Counter[str] = field(default_factory=Counter)
    asks: int = 0
    moves: int = 0
    simulated_s: float = 0.0


class SessionHistory:
    """The history of this seed. `play` it; raises `Broken` where anything does not hold."""

    def __init__(self, seed: int) -> None:
        self.told = Told()
        self.world = World()
        self._random = random = stream(seed, "session history")
        rate, burst = random.choice(((100.0, 50), (100.0, 50), (5.0, 3)))
        self.checker = SessionChecker(seed, rate, burst)
        self._first = random.sample(NAMES, random.randint(1, 5))
        self.rough = random.random() < 0.6
        self.sessions = Sessions(
            self.world, NAMES, self._first, random.randint(1, CLIENTS_MAX), seed,
            rule=random.choice(("stratified", "stratified", "probabilistic", "baseline")),
            letting_in=lambda: LettingIn(rate, burst, 10_000),
            over_s=random.choice((0.0, 3.0)), looker=self.checker,
        )  # fmt: skip
        self.checker.watch(self.sessions)
        self._ended_s = 0.0

    def play(self) -> Told:
        """Let it all happen."""
        random, told = self._random, self.told
        for client in self.sessions.clients:
            for _ in range(random.randint(0, 4)):
                takes_s = random.random() * REQUEST_S_MAX
                self._plan(random.random() * BUSY_S, self.sessions.request, client, takes_s)
        at_s = random.random() * BUSY_S / 2
        for _ in range(random.randint(1, CHANGES_MAX)):
            self._plan(at_s, self._change)
            at_s += random.random() * random.choice((CHANGE_WAIT_S / 2, CHANGE_WAIT_S * 2))
        for _ in range(random.randint(1, TROUBLES_MAX) if self.rough else 0):
            self._plan(random.random() * BUSY_S, self._trouble)
        if random.random() < 0.3:
            self._plan(random.random() * BUSY_S, self._drain)
        while self.world.now_s < self._ended_s:  # what happens may plan more
            self._look()
        self._mend()
        settled_s = self.world.now_s + SETTLE_S_MAX
        while self.world.now_s < settled_s and self.checker.unsettled():
            self._look()
        self.checker.settled()
        told.requests += Counter(self.sessions.requests)
        told.asks, told.simulated_s = self.checker.asks, self.world.now_s
        told.moves = sum(client.moves for client in self.sessions.clients)
        return told

    def _plan(self, at_s: float, happen: Callable[..., None], *args: object) -> None:
        self.world.at(at_s, happen, *args)
        self._ended_s = max(self._ended_s, at_s)

    def _look(self) -> None:
        until_s = self.world.now_s + LOOK_S
        self.world.at(until_s, self.checker.look)
        self.world.run(lambda: self.world.now_s >= until_s)

    # --- what happens -------------------------------------------------------------------------

    def _change(self) -> None:
        random, listed = self._random, list(self.sessions.listed)
        was_waiting = any(one.machine.next_deadline() < 1e9 for one in self.sessions.clients)
        self.told.happened["change while some wait" if was_waiting else "change"] += 1
        if random.random() < 0.1:
            names = random.sample(NAMES, random.randint(1, len(NAMES)))
        else:
            others = [name for name in NAMES if name not in listed]
            gone = random.randint(0, min(2, len(listed)))
            added = random.sample(others, random.randint(0, min(2, len(others))))
            names = random.sample(listed, len(listed) - gone) + added
            names = names or [random.choice(NAMES)]
        self.sessions.configure(names, spread_s=random.choice((0.0, 0.05, 1.0)))

    def _trouble(self) -> None:
        random, now_s = self._random, self.world.now_s
        lasts_s = random.random() * random.choice(LASTS_S)
        node = self.sessions.nodes[random.choice(NAMES)]
        what = random.choice(("died", "silent", "cut off", "broken"))
        if what == "broken":
            for one in node.clients.sessions:
                if random.random() < 0.5:
                    self.sessions.cut(one)
        elif node.state is Life.UP:
            self.checker.trouble(node)
            self.sessions.end(node, Life.DOWN if what == "died" else Life.SILENT)
            if what == "cut off":
                self._plan(now_s + lasts_s, self.sessions.heal, node)
            else:
                self._plan(now_s + lasts_s, self.sessions.begin, node, self._first)
        self.told.happened[what] += 1

    def _drain(self) -> None:
        node = self.sessions.nodes[self._random.choice(self.sessions.listed)]
        self.told.happened["drain"] += 1
        self.sessions.drain(node)
        lasts_s = self._random.random() * 10.0
        self._plan(self.world.now_s + lasts_s, self.sessions.resume, node)

    def _mend(self) -> None:
        for node in self.sessions.nodes.values():
            self.sessions.heal(node)
            self.sessions.begin(node, self._first)
            self.sessions.hear(node)
            self.sessions.resume(node)
        servers = {url_of(name) for name in self.sessions.listed}
        if any(client.known.isdisjoint(servers) for client in self.sessions.clients):
            self.sessions.configure(NAMES)  # nobody could tell such a client where to go
