"""A cluster that may crash, stand still, run slowly, or have a clock that goes wrong.

The machine is the same; what is around it behaves as a process, its kernel and its connections do.

- A *crash* loses all that the cluster held. Its connections break, clients that wait hear nothing
  more. A *restart* is another life: a new epoch by the wall clock, a random stream of its own.
- A *paused* cluster does nothing, nor do its services; what reaches it waits in its kernel. Once it
  goes on, the machine is first told what it has slept through, as by `core.driver`.
- What neighbors hand it goes through its `door`, where it may be lost without a word.
- What goes wrong with its services is in `faulty_servers`.

Without any fault it does what `federation.SimCluster` does, at the same instants.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, NamedTuple, Protocol, cast

from spillover.core.driver import CATCH_UP_S_MAX
from spillover.core.overflow import events as ev
from spillover.core.overflow.link import Disconnected, LinkMachine
from spillover.core.overflow.machine import NodeMachine
from spillover.model.faults import ClusterFault, Direction
from spillover.model.ids import ClusterId
from spillover.model.load import LoadReport
from spillover.model.request import Answer, Outcome, Request
from spillover.model.topology import Cluster, Topology
from spillover.sim.engine.clock import Clock
from spillover.sim.engine.timers import ClockTimers
from spillover.sim.engine.world import World, stream
from spillover.sim.overflow.faulty_link import FaultyLink, Leg
from spillover.sim.overflow.faulty_servers import FaultyServers
from spillover.sim.overflow.federation import (
    Heard,
    OnAnswer,
    OnRefusal,
    SimCluster,
    heads_of,
    in_turn,
    node_name,
)
from spillover.sim.overflow.listener import Listener
from spillover.sim.overflow.network import Channel
from spillover.sim.overflow.sibling_streams import SiblingStreams
from spillover.sim.overflow.trouble import Trouble


class Watch(Protocol):
    """Looks on at every machine and changes nothing."""

    def before(self, cluster: FaultyCluster, event: Any, now_s: float) -> None:
        """An event is about to be handed in; `now_s` is by the cluster's own clock."""

    def after(self, cluster: FaultyCluster, event: Any, now_s: float, commands: list[Any]) -> None:
        """These are the commands, not carried out yet."""


class Services(Protocol):
    """What runs at a cluster, as far as all kinds of servers are alike: see `faulty_servers`."""

    @property
    def running(self) -> int: ...
    @property
    def sound(self) -> bool: ...
    def trouble(self, server: str | None = None) -> Trouble: ...
    def start(self, command: ev.Start) -> None: ...
    def stop(self, ref: int) -> bool: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def clock_was_set(self) -> None: ...
    def clear(self) -> None: ...


class End(NamedTuple):
    """One end of the link to a neighbor."""

    peer: ClusterId
    out: Channel
    link: FaultyLink
    listener: Listener


class FaultyCluster(SimCluster):
    """One cluster, or one node of several, over all of its lives. `connect` joins it to its
    neighbors."""

    def __init__(  # noqa: PLR0917 - as `SimCluster`
        self,
        topology: Topology,
        cluster_id: ClusterId,
        world: World,
        seed: int,
        watch: Watch | None = None,
        node: int = 1,
        first: FaultyCluster | None = None,
    ) -> None:
        self.first = first
        """The first node of the cluster, if this is another one."""
        self.node = node
        self.name = name = node_name(cluster_id, node)
        """The name of this node: its cluster's, if it is the first one."""
        self._watch = watch
        self.clock = Clock(world)
        self.life = 1
        self.started_s = 0.0
        """The instant, by its own clock, at which this life began."""
        self.alive = True
        self.paused = False
        self.is_draining = False
        """An operator has had it drain."""
        self.door = Door(stream(seed, f"door/{name}"))
        self.servers: Services = self._make_servers(topology.cluster(cluster_id), world, seed)
        self._last_s = 0.0
        self._kernel: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        """What has reached the paused cluster."""
        self._clients: dict[int, Callable[[], None]] = {}
        self.foreign_requests: dict[Leg, None] = {}
        """Connections on which neighbors wait here, in the order in which they came."""
        self.clusters: Mapping[ClusterId, FaultyCluster] = {}
        """All there are, neighbors or not."""
        self._channels: Mapping[Direction, Channel] = {}
        self.ends: dict[int, End] = {}
        """The ends of links, by the neighbors' handles."""
        self.readers: dict[str, tuple[Listener, int]] = {}
        """Who hears the reports, by the node's name: the listener, and the stream it listens on."""
        self.to_siblings = SiblingStreams(world, self)
        super().__init__(topology, cluster_id, world, seed, node)

    def connect(
        self, clusters: Mapping[ClusterId, FaultyCluster], channels: Mapping[Direction, Channel]
    ) -> None:
        self.clusters, self._channels = clusters, channels
        self._make_ends()

    def _make_servers(self, cluster: Cluster, world: World, seed: int) -> Services:
        random = stream(seed, f"failing/{self.name}")
        told = cluster.service_ms / 1e3, self.feed, heads_of(cluster, seed)
        return FaultyServers(world, self.clock, random, *told)

    def _make_machine(self) -> NodeMachine:
        name = f"node/{self.name}" if self.life == 1 else f"node/{self.name}/{self.life}"
        self.started_s = self.clock.now_s()
        settings = replace(self._settings, epoch=self.clock.epoch())
        return NodeMachine(settings, self._neighbors, stream(self._seed, name), self.started_s)

    def _make_timers(self) -> ClockTimers:
        return ClockTimers(self._world, self.clock, lambda: self.alive and not self.paused)

    def _make_ends(self) -> None:
        self._random = stream(self._seed, f"streams/{self.name}/{self.life}")
        self.ends, self.readers = {}, {}
        for handle in self.machine.neighbors.by_handle:
            self._make_end(handle)

    def _make_end(self, handle: int) -> End:
        first = self.clusters[self.machine.neighbors.by_handle[handle].id]
        peer = cast("FaultyCluster", first.node_for(self.node))
        ways = (self._channels[self.id, peer.id], self._channels[peer.id, self.id])
        machine = LinkMachine(handle, self._random, len(first.nodes))
        link = FaultyLink(self._world, self, peer, ways, machine)
        listener = Listener(self._world, self, link, ways)
        end = self.ends[handle] = End(peer.id, ways[0], link, listener)
        return end

    @property
    def sound(self) -> bool:
        """Returns whether it is as if nothing had ever gone wrong, what its clocks show aside."""
        stands = not self.alive or self.paused or self.is_draining or self.to_siblings.cut
        return not stands and self.servers.sound and self.door.sound and self.clock.rate == 1.0

    def _is_well(self) -> bool:
        _, failure = self.servers.trouble().begin(0.0)
        return failure is None

    # --- what reaches it ----------------------------------------------------------------------

    def submit(
        self,
        request: Request,
        deadline_s: float,
        on_answer: OnAnswer,
        on_refusal: OnRefusal,
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        """A client's request reaches a cluster that lives; `deadline_s` is in true time. If the
        cluster dies, all that the client hears is `on_lost`."""
        self.deliver(
            self._take_client,
            request,
            self._world.now_s,
            deadline_s,
            on_answer,
            on_refusal,
            on_lost,
        )

    def _take_client(
        self,
        request: Request,
        sent_s: float,
        deadline_s: float,
        on_answer: OnAnswer,
        on_refusal: OnRefusal,
        on_lost: Callable[[], None],
    ) -> None:
        """Read it. Its deadline counts from now on, as at a live node, its system time does not."""
        unread_s = self._world.now_s - sent_s

        def answer_late(answer: Answer) -> None:
            answer.queued_s += unread_s
            on_answer(answer)

        self._clients[self._refs + 1] = on_lost
        deadline_s = self.clock.now_s() + (deadline_s - sent_s)
        give = answer_late if unread_s else on_answer
        self.receive(request, deadline_s, ev.HOME, give, on_refusal)

    def deadline_of(self, sender: FaultyCluster, deadline_s: float) -> float:
        """Returns a deadline by the sender's clock, by this one: what remains is what travels."""
        if self.clock.is_true and sender.clock.is_true:
            return deadline_s
        return self.clock.now_s() + (deadline_s - sender.clock.now_s())

    def deliver(self, happen: Callable[..., None], *args: Any) -> None:
        """Something reaches it: now, once it goes on, or never."""
        if self.paused:
            self._kernel.append((happen, args))
        elif self.alive:
            happen(*args)

    def handle(self, event: Any, now_s: float) -> list[ev.Command]:
        self._last_s = now_s = max(self._last_s, now_s)
        if self._watch is not None:
            self._watch.before(self, event, now_s)
        commands = super().handle(event, now_s)
        if self._watch is not None:
            self._watch.after(self, event, now_s, commands)
        return commands

    # --- faults -------------------------------------------------------------------------------

    def crash(self) -> None:
        """Lose everything, and let those who wait find out."""
        self.alive = self.paused = False
        self._driver.close()
        for end in self.ends.values():
            end.link.close()
            end.listener.close()
        for leg in self.foreign_requests:
            leg.link.reset(leg)
        for end in self.ends.values():
            self._end_streams(end.peer)
        self.to_siblings.end()
        self.is_draining = False
        unread = [args[-1] for happen, args in self._kernel if happen == self._take_client]
        clients = [*self._clients.values(), *unread]
        self.servers.clear()
        held = self._clients, self._kernel, self.foreign_requests, self._waiting, self._on_begun
        for each in held:
            each.clear()
        for on_lost in clients:
            on_lost()

    def restart(self) -> None:
        """Begin another life, which nobody hears of before they ask."""
        self.life += 1
        self._begin()
        self._open()

    def _begin(self) -> None:
        self.alive = True
        self._last_s = self.clock.now_s()
        self.machine = self._make_machine()

    def _open(self) -> None:
        self._make_ends()
        self.drive(self.machine)
        for end in self.ends.values():
            end.listener.connect()
        self.to_siblings.open()

    def drain(self, *, drains: bool) -> None:
        """Have an operator drain it, or take its word back."""
        self.is_draining = drains
        self.deliver(self.feed, ev.Drain() if drains else ev.Resume())

    def pause(self) -> None:
        self.paused = True
        self.servers.pause()

    def resume(self) -> None:
        """Go on: first with what was due, then with what came meanwhile."""
        self.paused = False
        self.servers.resume()
        while (due_s := self.machine.next_deadline()) <= (now_s := self.clock.now_s()):
            self._driver.feed(ev.TimerFired(), due_s if now_s - due_s <= CATCH_UP_S_MAX else now_s)
        came, self._kernel = self._kernel, deque()
        for happen, args in came:
            self.deliver(happen, *args)
        self.drive(self.machine)

    def set_clock(self, rate: float, offset_s: float) -> None:
        """Have the clock run at this rate, and put the wall clock forward."""
        self.clock.set(rate, offset_s)
        self.servers.clock_was_set()
        if self.alive:
            self.drive(self.machine)

    # --- commands -----------------------------------------------------------------------------

    def _start(self, command: ev.Start) -> None:
        self.servers.start(command)

    def _stop(self, command: ev.Stop) -> None:
        if self.servers.stop(command.ref):
            ended = ev.ServiceEnded(command.ref, Outcome.CANCELLED, 0.0)
            self._at_once(self.feed, ended)

    def _forward(self, command: ev.Forward) -> None:
        self.ends[command.neighbor].link.forward(command)

    def _recall(self, command: ev.Recall) -> None:
        if (end := self.ends.get(command.neighbor)) is not None:
            end.link.recall(command.ref)

    def _ask_cancel(self, command: ev.AskCancel) -> None:
        if (end := self.ends.get(command.neighbor)) is not None:
            end.link.ask_cancel(command.ref)

    def _refuse(self, command: ev.Refuse) -> None:
        self._clients.pop(command.ref, None)
        super()._refuse(command)

    def _reply(self, command: ev.Reply) -> None:
        self._on_begun.pop(command.ref, None)
        on_answer, _ = self._waiting.pop(command.ref)
        self._at_once(self._give, command.ref, on_answer, command.answer, after_s=command.delay_s)

    def _give(self, ref: int, on_answer: OnAnswer, answer: Answer) -> None:
        self._clients.pop(ref, None)
        on_answer(answer)

    def _at_once(self, happen: Callable[..., None], *args: Any, after_s: float = 0.0) -> None:
        """Let it happen in this life, if the cluster still lives then."""
        at_s = self._world.now_s + after_s / self.clock.rate
        self._world.at(at_s, self._in_life, self.life, happen, *args)

    def _in_life(self, life: int, happen: Callable[..., None], *args: Any) -> None:
        if life == self.life:
            self.deliver(happen, *args)

    def _say(
        self, command: ev.AskForWork | ev.NoWork, what: Heard, turn: int | None = None
    ) -> None:
        end = self.ends[command.neighbor]
        for listener, number in in_turn(self._readers_at(end.peer), turn):
            end.out.send_report(partial(listener.hear_load, number, what, command))

    def _tell(self, report: LoadReport | None) -> None:
        for end in self.ends.values():
            for listener, number in self._readers_at(end.peer):
                self.reports += 1
                end.out.send_report(partial(listener.hear, number, report))
        if self.machine.leaves_to_siblings:
            for listener, number in self.readers.values():
                listener.end(number, is_there=True)
            self.readers.clear()

    def _readers_at(self, cluster: ClusterId) -> list[tuple[Listener, int]]:
        """Returns which nodes of a neighbor listen."""
        names = [node.name for node in self.clusters[cluster].faulty_nodes]
        return [self.readers[name] for name in names if name in self.readers]

    @property
    def faulty_nodes(self) -> list[FaultyCluster]:
        """Returns all nodes of the cluster, in the order of their numbers."""
        return cast("list[FaultyCluster]", self.nodes)

    def _tell_sibling(self, command: ev.TellSibling) -> None:
        self.to_siblings.tell(command)

    # --- neighbors that come and go -----------------------------------------------------------

    def _connect(self, command: ev.Connect) -> None:
        self._make_end(command.neighbor).listener.connect()

    def _disconnect(self, command: ev.Disconnect) -> None:
        """What is away there is given up. What came from there is answered over its own link."""
        end = self.ends.pop(command.neighbor)
        end.link.feed(Disconnected())
        end.listener.close()
        self._end_streams(end.peer)

    def _end_streams(self, cluster: ClusterId) -> None:
        """That neighbor, if it listens, hears no more from here."""
        for listener, number in self._readers_at(cluster):
            del self.readers[listener.own.name]
            listener.end(number)

    def says(self) -> object:
        """Returns what it says of itself besides, where it asks for reports or gives none."""

    def hear(self, cluster: ClusterId, said: object) -> None:
        """Another has said that of itself, if it is not None."""


def nodes_of(clusters: Mapping[ClusterId, FaultyCluster]) -> list[FaultyCluster]:
    """Returns all nodes of all clusters."""
    return [node for cluster in clusters.values() for node in cluster.faulty_nodes]


class Door:
    """The door at which neighbors hand a cluster their requests, and what goes wrong there. Reports
    get through all the same: by that the cluster looks well. `random` draws what is lost."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._swallowed = 0.0
        self._hanging = 0.0
        self._hung: list[Leg] = []
        self.late_s = 0.0
        """How much later than it could the cluster answers."""

    @property
    def sound(self) -> bool:
        """Returns whether nothing goes wrong."""
        return not (self._swallowed or self._hanging or self.late_s)

    def change(self, fault: ClusterFault) -> None:
        """Have this go wrong from now on."""
        match fault.action:
            case "swallows":
                self._swallowed = fault.share
            case "late":
                self.late_s = fault.late_ms / 1e3
            case "hangs":
                self._hanging = fault.share
        if not self._hanging:
            hung, self._hung = self._hung, []
            for leg in hung:
                leg.link.break_off(leg)

    def swallows(self) -> bool:
        """Returns whether a request that would arrive now never does."""
        return self._swallowed > 0.0 and self._random.random() < self._swallowed

    def keeps(self, leg: Leg) -> bool:
        """Returns whether a request that is read now hangs from now on."""
        if not self._hanging or self._random.random() >= self._hanging:
            return False
        self._hung.append(leg)
        return True
