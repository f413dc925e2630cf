"""Clients with sessions in virtual time: the very machines of clients (`core.membership`), the
nodes' lists of them, and what lies between.

As in real life, a client and a node learn of each other's end at instants of their own; a client's
goodbye travels beside its session, by name; a host that dies says nothing. Not here: reports, of
which the nodes know what they would say, and what requests mean: they take time at one node.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from spillover.core.driver import Driver
from spillover.core.membership import session_events as ev
from spillover.core.membership.choosing import STRATIFIED
from spillover.core.membership.client_session import CHANGE_WAIT_S, ClientSession
from spillover.core.membership.letting_in import LettingIn
from spillover.sim.engine.timers import WorldTimers
from spillover.sim.engine.world import World, stream
from spillover.sim.membership.parties import Life, Looker, SessionAttempt, SimClient, SimNode

SILENCE_S = 40.0
"""A client takes a session for lost that was silent for this long."""
FULL_WAIT_S = 15.0
PARTING_S = 1.0
"""This and FULL_WAIT_S are as live nodes and clients have them."""

CONNECTS_PER_S, CONNECTS_BURST, SESSIONS_MAX = 100.0, 50, 10_000
"""The limits of nodes by default, as topology files have them."""

WAY_S = 0.01
"""A message takes from half to one and a half of that."""


class Sessions:
    """All nodes, of which the first `names` are listed at the start, and all clients. `starts` says
    at which node each client begins; without it they begin anywhere."""

    def __init__(
        self,
        world: World,
        names: Sequence[str],
        listed: Sequence[str],
        clients: int,
        seed: int,
        *,
        rule: str = STRATIFIED,
        virtual_nodes: int = 1,
        change_wait_s: float = CHANGE_WAIT_S,
        letting_in: Callable[[], LettingIn] = lambda: LettingIn(
            CONNECTS_PER_S, CONNECTS_BURST, SESSIONS_MAX
        ),
        starts: Sequence[str] = (),
        over_s: float = 0.0,
        looker: Looker | None = None,
        way_s: float = WAY_S,
    ) -> None:
        self.world = world
        self._random = stream(seed, "sessions")
        self._way_s = way_s
        self._looker = looker or Looker()
        self.nodes = {name: SimNode(name, letting_in) for name in names}
        self.listed = tuple(listed)
        """The clusters of the newest configuration."""
        self.stamp = (0, "", 0)
        self.requests = {"done": 0, "lost": 0, "put elsewhere": 0}
        for node in self.nodes.values():
            node.clients.go_by(self.stamp, servers_of(listed), {}, -math.inf)
            node.draining = node.name not in self.listed
        self.clients = []
        for number in range(clients):
            urls = [url_of(name) for name in listed]
            if starts:
                urls.sort(key=url_of(starts[number]).__ne__)
            machine = ClientSession(
                client_name(seed, number), urls, stream(seed, f"client {number}"),
                rule=rule, virtual_nodes=virtual_nodes, change_wait_s=change_wait_s,
                in_order=bool(starts),
            )  # fmt: skip
            client = SimClient(client_name(seed, number), machine, urls)
            self.clients.append(client)
            self._drive(client)
            world.at(self._random.random() * over_s, client.driver.feed, ev.Started())

    def counts(self, names: Iterable[str] | None = None) -> dict[str, int]:
        """Returns how many clients the nodes have, by what the nodes know."""
        return {name: len(self.nodes[name].clients) for name in names or self.listed}

    # --- what happens to nodes ----------------------------------------------------------------

    def configure(self, names: Sequence[str], spread_s: float = 0.0) -> None:
        """Have the federation go by these servers; each node hears of it within `spread_s`."""
        self.listed = tuple(names)
        self.stamp = (self.stamp[0] + 1, "a", 0)
        for node in self.nodes.values():
            self.world.at(self.world.now_s + self._random.random() * spread_s, self.hear, node)

    def hear(self, node: SimNode) -> None:
        """The node learns the newest configuration, unless it is not there."""
        if node.state is not Life.UP or node.clients.stamp == self.stamp:
            return
        now_s, servers = self.world.now_s, servers_of(self.listed)
        surplus = node.clients.go_by(self.stamp, servers, self._numbers(node), now_s)
        node.draining = not node.clients.is_server
        if node.clients.repeat_s < math.inf:
            self.world.at(node.clients.repeat_s, self._repeat, node, node.life)
        self._announce(node, surplus)

    def _repeat(self, node: SimNode, life: int) -> None:
        if node.state is Life.UP and node.life == life:
            surplus = node.clients.repeat(self._numbers(node), self.world.now_s)
            if surplus is not None:
                self._announce(node, surplus)

    def _announce(self, node: SimNode, surplus: float) -> None:
        for rank, one in enumerate(node.clients.sessions):
            self._tell(one, ev.Announced(one.attempt, node.clients.told(rank, surplus)))

    def _numbers(self, node: SimNode) -> dict[str, int]:
        """Returns how many clients the others have, as reports say."""
        return {
            name: len(other.clients)
            for name, other in self.nodes.items()
            if other is not node and other.state is Life.UP
        }

    def drain(self, node: SimNode) -> None:
        if node.state is Life.UP and not node.draining:
            node.draining = True
            for one in node.clients.sessions:
                self._tell(one, ev.Parting(one.attempt, PARTING_S))

    def resume(self, node: SimNode) -> None:
        node.draining = not node.clients.is_server

    def end(self, node: SimNode, state: Life) -> None:
        """Its process ends (its clients see that), or its host does (they see nothing)."""
        if node.state is not Life.UP:
            return
        node.state = state
        node.silences += 1
        for one in node.clients.sessions:
            if state is Life.DOWN:
                self._tell(one, ev.Lost(one.attempt))
            else:
                silent_s = self.world.now_s + SILENCE_S
                self.world.at(silent_s, self._silent, one, node.silences)

    def heal(self, node: SimNode) -> None:
        """A silent host can be reached again, as it was."""
        if node.state is Life.SILENT:
            node.state = Life.UP
            self.hear(node)
            for one in node.clients.sessions:  # it writes, and learns who has gone
                later_s = self.world.now_s + self._random.random() * FULL_WAIT_S
                self.world.at(later_s, self._write, one)

    def _write(self, one: SessionAttempt) -> None:
        if not one.at_client:
            one.node.clients.drop(one.client.name, one)

    def _silent(self, one: SessionAttempt, silences: int) -> None:
        """A client has heard nothing for too long, if nobody has come back in the meantime."""
        node = one.node
        is_gone = node.life != one.life
        if is_gone or (node.state is Life.SILENT and node.silences == silences):
            self._answer(one, ev.Lost(one.attempt))

    def begin(self, node: SimNode, first: Sequence[str]) -> None:
        """Start it with the file that has this list. It hears the newest one soon."""
        if node.state is not Life.UP:
            node.begin()
            now_s = self.world.now_s
            node.clients.go_by((0, "", 0), servers_of(first), {}, now_s)
            node.draining = not node.clients.is_server
            self.world.at(now_s + self._random.random() * 0.5, self.hear, node)

    def cut(self, one: SessionAttempt) -> None:
        """The connection of a session breaks: both ends see that, at different times."""
        if one.is_session:
            self._tell(one, ev.Lost(one.attempt))
            later_s = self.world.now_s + 2.0 * self._way_s + self._random.random() * 5.0
            self.world.at(later_s, self._write, one)

    # --- clients ------------------------------------------------------------------------------

    def _drive(self, client: SimClient) -> None:
        interpreters: dict[type, Callable[[Any], None]] = {
            ev.Connect: partial(self._connect, client),
            ev.Use: lambda _: client.use_newest(),
            ev.Leave: partial(self._leave, client),
        }
        timers, heard = WorldTimers(self.world), partial(self._looker.heard, client)
        client.driver = Driver(client.machine, timers, interpreters, journal=heard)
        client.driver.start(ev.TimerFired())

    def _connect(self, client: SimClient, command: ev.Connect) -> None:
        self._looker.connecting(client, self.world.now_s)
        node = self.nodes[command.server.url.removeprefix("http://")]
        one = client.streams[command.attempt] = SessionAttempt(
            client, node, command.attempt, node.life
        )
        self._later(self._asked, one)

    def _asked(self, one: SessionAttempt) -> None:
        node, client = one.node, one.client
        if not one.at_client or node.state is Life.SILENT:
            return
        one.life = node.life
        if not node.takes:
            self._later(self._answer, one, ev.NotReached(one.attempt))
            return
        wait_s = node.clients.let_in(client.name, self.world.now_s, FULL_WAIT_S)
        if wait_s is not None:
            node.put_off += 1
            told_s = float(max(1, math.ceil(wait_s)))  # as the header has it
            self._later(self._answer, one, ev.NotReached(one.attempt, told_s))
            return
        node.let_in_s.append(self.world.now_s)
        self._looker.let_in(node, self.world.now_s)
        old = node.clients.put_in(client.name, one)
        if old is not None:
            self._tell(old, ev.Lost(old.attempt))
        one.is_session = True
        rank = len(node.clients) - 1
        self._tell(one, ev.Connected(one.attempt, node.clients.told(rank, 0.0)))

    def _answer(self, one: SessionAttempt, event: ev.Event) -> None:
        """Bring the client the end of an attempt or a session, or a message in it, if it still
        listens."""
        if not one.at_client:
            return
        ends = isinstance(event, (ev.NotReached, ev.Lost))
        if ends:
            one.at_client = False
            del one.client.streams[one.attempt]
            if one.client.session is one:
                one.client.session = None
        elif one.node.state is Life.SILENT:
            return
        one.is_heard |= isinstance(event, ev.Connected)
        one.client.driver.feed(event)

    def _leave(self, client: SimClient, command: ev.Leave) -> None:
        one = client.streams.pop(command.attempt)
        one.at_client = False
        if client.session is one:
            client.session = None
        client.moves += command.moved
        self._later(self._left, one, command.moved)

    def _left(self, one: SessionAttempt, moved: bool) -> None:  # noqa: FBT001 - as the world calls
        """An attempt that has not been answered has just its connection to close."""
        node, name = one.node, one.client.name
        if node.state is not Life.UP:
            return
        if not one.is_heard:
            node.clients.drop(name, one)
            return
        node.clients.leave(name, one.attempt, moved=moved)

    # --- requests -----------------------------------------------------------------------------

    def request(self, client: SimClient, takes_s: float) -> None:
        """Send one to the node that is in use; it ends on its connection, wherever its client goes
        in the meantime."""
        one = client.session
        if one is None:
            return
        node = one.node
        self._looker.sent(client, node, self.world.now_s)
        if not node.takes:
            self.requests["put elsewhere"] += 1
            return
        self.world.at(self.world.now_s + takes_s, self._done, client, node, node.life)

    def _done(self, client: SimClient, node: SimNode, life: int) -> None:
        lost = node.life != life or node.state is not Life.UP
        self.requests["lost" if lost else "done"] += 1
        self._looker.ended(client, node, lost=lost)

    # --- ways ---------------------------------------------------------------------------------

    def _tell(self, one: SessionAttempt, event: ev.Event) -> None:
        """Lines of one session keep their order: each takes the same way."""
        self.world.at(self.world.now_s + self._way_s, self._answer, one, event)

    def _later(self, happen: Callable[..., None], *args: object) -> None:
        way_s = self._way_s * (0.5 + self._random.random())
        self.world.at(self.world.now_s + way_s, happen, *args)


def client_name(seed: int, number: int) -> str:
    """Returns a name that is another one with another seed: circles go by names."""
    return f"{seed}/c{number}"


def url_of(name: str) -> str:
    """Returns where clients ask for it."""
    return f"http://{name}"


def servers_of(names: Sequence[str]) -> tuple[ev.SessionServer, ...]:
    """Returns the list of these as it is announced."""
    return tuple(ev.SessionServer(name, url_of(name)) for name in names)
