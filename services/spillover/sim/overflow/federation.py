"""The clusters of a topology in virtual time: carries out the commands of the machines.

A message takes exactly its link's delay and is never lost; servers take exactly the service time.
Where something may go wrong, it is `faulty_cluster` that runs, over the links of `network`.

Where requests pass through (decision 0043) an answer begins at some time of its service; of what is
in between nothing is played.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, TypeVar, cast

from spillover.core.driver import Driver
from spillover.core.overflow import events as ev
from spillover.core.overflow.machine import NodeMachine
from spillover.core.overflow.settings import NodeSettings
from spillover.core.overflow.visit import VisitState
from spillover.model.ids import ClusterId, RequestId
from spillover.model.load import LoadNow, LoadReport
from spillover.model.request import Answer, Outcome, Request
from spillover.model.topology import Cluster, Topology
from spillover.model.unlike_servers import UnlikeServers
from spillover.sim.engine.clock import Clock
from spillover.sim.engine.timers import WorldTimers
from spillover.sim.engine.world import World, stream
from spillover.sim.overflow.bearing import BearingService, Bears
from spillover.sim.overflow.pool_servers import PoolDoor, PoolServers

OnAnswer = Callable[[Answer], None]
OnRefusal = Callable[[ev.Refuse], None]
Heard = Callable[[int, LoadNow, str], Any]
T = TypeVar("T")
OnBegun = Callable[[ev.SoFar], None]


class Link:
    """The way from one cluster to a neighbor, in whose table it has the handle `mirror`."""

    def __init__(self, peer: SimCluster, mirror: int, delay_s: float) -> None:
        self.peer = peer
        self.mirror = mirror
        self.heard_by = [(peer, mirror)]
        """The nodes of the neighbor that listen to this one, with its handle there."""
        self.delay_s = delay_s
        self.is_open = True

    @property
    def is_taken(self) -> bool:
        """Returns whether this cluster is a neighbor there, too."""
        return self.mirror in self.peer.machine.neighbors.by_handle


class SimCluster:
    """One cluster, or one node of several: its machine, and what it has under way. Its driver
    drives the machine through it (`handle`)."""

    next_deadline: Callable[[], float]
    check: Callable[[], None]
    machine: NodeMachine
    _driver: Driver[Any, Any]

    def __init__(
        self, topology: Topology, cluster_id: ClusterId, world: World, seed: int, node: int = 1
    ) -> None:
        self.id = cluster_id
        self.node = node
        self.siblings: dict[int, SimCluster] = {}
        """The other nodes of the cluster, by their numbers."""
        self._cluster = topology.cluster(cluster_id)
        self.pool = self._cluster.pool
        """None where the servers are alike."""
        self._world = world
        self._seed = seed
        self._settings = NodeSettings.of(topology, cluster_id, node=node)
        self._neighbors = [(n.id, n.delay_ms / 1e3) for n in topology.neighbors(cluster_id)]
        self._refs = 0
        self._waiting: dict[int, tuple[OnAnswer, OnRefusal]] = {}
        self._on_begun: dict[int, OnBegun] = {}
        """Who hears that an answer begins, by ref: neighbors where requests pass through."""
        self._heads = heads_of(self._cluster, seed)
        self._serving: set[int] = set()
        self._forwards: dict[tuple[int, int], int] = {}
        """The refs of what is away at the neighbor that has accepted it, by its handle and the ref
        here."""
        self._away: dict[int, ev.Forward] = {}
        """What is waited for, by ref: a request that was recalled may be away elsewhere by now."""
        self.federation: Mapping[ClusterId, SimCluster] = {}
        self._ways: dict[int, Link] = {}
        self._questions = 0
        """The links by the neighbors' handles."""
        self.queue_length_max = 0
        self.reports = 0
        self._timers = self._make_timers()
        self._interpreters: dict[type, Callable[[Any], None]] = {
            ev.Accepted: lambda _: None,
            ev.Start: self._start,
            ev.AskService: self._ask_service,
            ev.Began: self._began,
            ev.Stop: self._stop,
            ev.Forward: self._forward,
            ev.Recall: self._recall,
            ev.AskCancel: self._ask_cancel,
            ev.Refuse: self._refuse,
            ev.Reply: self._reply,
            ev.Publish: lambda command: self._tell(command.report),
            ev.AskForWork: self._ask_for_work,
            ev.NoWork: self._no_work,
            ev.TellSibling: self._tell_sibling,
            ev.Heartbeat: lambda _: self._tell(None),
            ev.Connect: self._connect,
            ev.JoinRefused: lambda _: None,
            ev.Disconnect: self._disconnect,
        }
        self.drive(self._make_machine())

    def _make_machine(self) -> NodeMachine:
        random = stream(self._seed, f"node/{node_name(self.id, self.node)}")
        return NodeMachine(self._settings, self._neighbors, random, self._world.now_s)

    def _make_timers(self) -> WorldTimers:
        return WorldTimers(self._world)

    def drive(self, machine: NodeMachine) -> None:
        """Drives this machine from now on, and wakes it when it is due next."""
        self.machine = machine
        self.next_deadline, self.check = machine.next_deadline, machine.check
        self._driver = Driver(self, self._timers, self._interpreters)
        self._driver.start(ev.TimerFired())

    def submit(
        self, request: Request, deadline_s: float, on_answer: OnAnswer, on_refusal: OnRefusal
    ) -> None:
        self.receive(request, deadline_s, ev.HOME, on_answer, on_refusal)

    def receive(
        self,
        request: Request,
        deadline_s: float,
        origin: int,
        on_answer: OnAnswer,
        on_refusal: OnRefusal,
        forward: ev.Forward | None = None,
    ) -> int | None:
        """Takes a request that reaches this cluster now, and returns its ref; None where it has
        ended at once. A neighbor's comes as a `forward`.
        """
        self._refs += 1
        ref = self._refs
        self._waiting[ref] = (on_answer, on_refusal)
        load, pulled = (None, False) if forward is None else (forward.load, forward.pulled)
        self.feed(ev.Arrived(ref, request, deadline_s, origin, load, pulled))
        return ref if ref in self._waiting else None

    def when_begun(self, ref: int, on_begun: OnBegun) -> None:
        """Have it called when the answer to what was received begins, if it does."""
        if self._settings.passes:
            self._on_begun[ref] = on_begun

    def feed(self, event: Any) -> None:
        """Hand an event to the machine and carry out what it commands."""
        self._driver.feed(event)

    def handle(self, event: Any, now_s: float) -> list[ev.Command]:
        """Returns what the machine commands. To be called by the driver alone."""
        commands = self.machine.handle(event, now_s)
        queue_length = self.machine.queue_length
        if queue_length > self.queue_length_max:  # noqa: PLR1730 - a call less per event
            self.queue_length_max = queue_length
        return commands

    # --- commands -----------------------------------------------------------------------------

    def _start(self, command: ev.Start) -> None:
        service_s = command.request.work
        if service_s is None:
            service_s = self._cluster.service_ms / 1e3
        self._serving.add(command.ref)
        if self._heads is not None:
            head_s = self._heads.random() * service_s
            self._world.at(command.at_s + head_s, self._begins, command.ref, head_s)
        self._world.at(command.at_s + service_s, self._served, command.ref, service_s)

    def _ask_service(self, _: ev.AskService) -> None:
        self._world.at(self._world.now_s, self.feed, ev.ServiceAsked(self._is_well()))

    def _is_well(self) -> bool:
        return True

    def _served(self, ref: int, service_s: float) -> None:
        if ref in self._serving:
            self._serving.remove(ref)
            self.feed(ev.ServiceEnded(ref, Outcome.DONE, service_s))

    def _begins(self, ref: int, head_s: float) -> None:
        if ref in self._serving:
            self.feed(ev.ResponseBegan(ref, head_s))

    def _began(self, command: ev.Began) -> None:
        if (on_begun := self._on_begun.pop(command.ref, None)) is not None:
            on_begun(command.so_far)

    def _stop(self, command: ev.Stop) -> None:
        if command.ref in self._serving:
            self._serving.remove(command.ref)
            self._world.at(
                self._world.now_s,
                self.feed,
                ev.ServiceEnded(command.ref, Outcome.CANCELLED, 0.0),
            )

    def _forward(self, command: ev.Forward) -> None:
        way, ref = self._ways[command.neighbor], command.ref
        delay_s = way.delay_s
        self._away[ref] = command

        def answered(answer: Answer) -> None:
            come_back(ev.ForwardAnswered(ref, answer, delay_s, delay_s))

        def refused(refusal: ev.Refuse) -> None:
            come_back(ev.ForwardRefused(ref, refusal.load))  # it may have been accepted before

        def begun(so_far: ev.SoFar) -> None:
            event = ev.ResponseBegan(ref, 0.0, so_far, delay_s)
            self._world.at(self._world.now_s + delay_s, self._came_back, way, command, event)

        def come_back(event: Any) -> None:
            if way.is_open:
                self._forwards.pop((command.neighbor, ref), None)
                self._world.at(self._world.now_s + delay_s, self._came_back, way, command, event)

        def arrive() -> None:
            if not way.is_open:
                return
            if not way.is_taken:
                come_back(ev.ForwardRefused(ref))
                return
            there = way.peer.receive(
                command.request, command.deadline_s, way.mirror, answered, refused, command
            )
            if there is not None:
                self._forwards[command.neighbor, ref] = there
                way.peer.when_begun(there, begun)

        self._world.at(self._world.now_s + delay_s, arrive)

    def _came_back(self, way: Link, command: ev.Forward, event: Any) -> None:
        if way.is_open and self._away.get(command.ref) is command:
            if not isinstance(event, ev.ResponseBegan):
                del self._away[command.ref]
            self.feed(event)

    def _recall(self, command: ev.Recall) -> None:
        self._away.pop(command.ref, None)
        if (way := self._ways.get(command.neighbor)) is not None:
            self._world.at(self._world.now_s + way.delay_s, self._recalled, way, command)

    def _recalled(self, way: Link, command: ev.Recall) -> None:
        there = self._forwards.pop((command.neighbor, command.ref), None)
        if there is not None:
            way.peer.feed(ev.Cancelled(there))

    def _ask_cancel(self, command: ev.AskCancel) -> None:
        if (way := self._ways.get(command.neighbor)) is not None:
            self._world.at(self._world.now_s + way.delay_s, self._cancel_asked, way, command)

    def _cancel_asked(self, way: Link, command: ev.AskCancel) -> None:
        there = self._forwards.get((command.neighbor, command.ref))
        if way.is_open and there is not None:
            way.peer.feed(ev.CancelAsked(there))

    def _refuse(self, command: ev.Refuse) -> None:
        self._on_begun.pop(command.ref, None)
        _, on_refusal = self._waiting.pop(command.ref)
        on_refusal(command)

    def _reply(self, command: ev.Reply) -> None:
        self._on_begun.pop(command.ref, None)
        on_answer, _ = self._waiting.pop(command.ref)
        self._world.at(self._world.now_s + command.delay_s, partial(on_answer, command.answer))

    def _tell(self, report: LoadReport | None) -> None:
        for way in self._ways.values():
            self.reports += len(way.heard_by)
            for listener, mirror in way.heard_by:
                event = ev.ReportReceived(mirror, report)
                self._world.at(self._world.now_s + way.delay_s, listener.feed, event)

    def _tell_sibling(self, command: ev.TellSibling) -> None:
        event = ev.SiblingHeard(self.node, command.message)
        self._world.at(self._world.now_s, self.siblings[command.sibling].feed, event)

    def _ask_for_work(self, command: ev.AskForWork) -> None:
        """One node of the neighbor hears it, each in its turn: it is one question."""
        self._questions += 1
        self._say(command, ev.WorkAsked, self._questions)

    def _no_work(self, command: ev.NoWork) -> None:
        self._say(command, ev.NoWorkThere)

    def _say(
        self, command: ev.AskForWork | ev.NoWork, what: Heard, turn: int | None = None
    ) -> None:
        """Have all nodes of a neighbor hear this, on the way of the reports, or one in its turn."""
        way = self._ways[command.neighbor]
        for listener, mirror in in_turn(way.heard_by, turn):
            event = what(mirror, command.load, command.group)
            self._world.at(self._world.now_s + way.delay_s, listener.feed, event)

    # --- neighbors ----------------------------------------------------------------------------

    def join(self, clusters: Mapping[ClusterId, SimCluster]) -> None:
        """Join it to those of these clusters that are its neighbors from the start."""
        self.federation = clusters
        for neighbor in self.machine.neighbors:
            self.open_way(neighbor.handle, clusters[neighbor.id].node_for(self.node))

    def node_for(self, node: int) -> SimCluster:
        """Returns the node that this node of a neighbor talks to: they are spread evenly."""
        number = (node - 1) % (len(self.siblings) + 1) + 1
        return self.siblings.get(number, self)

    @property
    def nodes(self) -> list[SimCluster]:
        """Returns all nodes of the cluster, in the order of their numbers."""
        return sorted([self, *self.siblings.values()], key=lambda each: each.node)

    def find_listeners(self) -> None:
        """See who listens, where clusters have several nodes and all ways are open."""
        for way in self._ways.values():
            peers = way.peer.nodes
            ways = [(peer, peer.machine.neighbors.index[self.id]) for peer in peers]
            way.heard_by = [(peer, of) for peer, of in ways if peer.hears(of, self)]

    def hears(self, neighbor: int, node: SimCluster) -> bool:
        """Returns whether this is the node of that neighbor that it talks to."""
        return self._ways[neighbor].peer is node

    def open_way(self, neighbor: int, peer: SimCluster) -> None:
        mirror = peer.machine.neighbors.index[self.id]
        delay_s = self.machine.neighbors.by_handle[neighbor].delay_s
        self._ways[neighbor] = Link(peer, mirror, delay_s)

    def _connect(self, command: ev.Connect) -> None:
        """The second of the two to join opens both ways."""
        peer = self.federation[command.cluster]
        mirror = peer.machine.neighbors.index.get(self.id)
        if mirror is not None:
            self.open_way(command.neighbor, peer)
            peer.open_way(mirror, self)

    def _disconnect(self, command: ev.Disconnect) -> None:
        """What is away there has left, and is lost; the neighbor learns that nobody waits for it.
        See `core.overflow.link`."""
        way = self._ways.pop(command.neighbor, None)
        if way is None:
            return
        way.is_open = False
        for visit in list(self.machine.register.visits.values()):
            if visit.state is VisitState.AWAY and visit.target.handle == command.neighbor:
                self._away.pop(visit.ref, None)
                there = self._forwards.pop((command.neighbor, visit.ref), None)
                if there is not None:
                    ends_s = self._world.now_s + way.delay_s
                    self._world.at(ends_s, way.peer.feed, ev.Cancelled(there))
                self._world.at(self._world.now_s, self.feed, ev.ForwardLost(visit.ref))


class PoolCluster(SimCluster):
    """One cluster with a pool of unlike servers, or one node of several, which send to the same
    ones."""

    servers: PoolDoor

    def __init__(
        self,
        topology: Topology,
        cluster_id: ClusterId,
        world: World,
        seed: int,
        first: PoolCluster | None = None,
        node: int = 1,
    ) -> None:
        super().__init__(topology, cluster_id, world, seed, node)
        if first is None:
            pool = cast("UnlikeServers", self.pool)
            random, service_s = stream(seed, f"failing/{cluster_id}"), self._settings.service_s
            servers = PoolServers(world, random, pool, service_s, self._settings.nodes)
        else:
            servers = first.servers.servers
        self.servers = PoolDoor(servers, Clock(world), self.feed, node)

    def _start(self, command: ev.Start) -> None:
        self.servers.start(command)

    def _stop(self, command: ev.Stop) -> None:
        if self.servers.stop(command.ref):
            ended = ev.ServiceEnded(command.ref, Outcome.CANCELLED, 0.0)
            self._world.at(self._world.now_s, self.feed, ended)


class BearingCluster(SimCluster):
    """One cluster before a service that bears so many requests at a time."""

    def __init__(
        self, topology: Topology, cluster_id: ClusterId, world: World, seed: int, bears: Bears
    ) -> None:
        super().__init__(topology, cluster_id, world, seed)
        self._service = BearingService(world, bears, self.feed)

    def _start(self, command: ev.Start) -> None:
        work_s = command.request.work
        self._service.start(command, self._cluster.service_ms / 1e3 if work_s is None else work_s)

    def _stop(self, command: ev.Stop) -> None:
        if self._service.stop(command.ref):
            ended = ev.ServiceEnded(command.ref, Outcome.CANCELLED, 0.0)
            self._world.at(self._world.now_s, self.feed, ended)


def build_federation(
    topology: Topology, world: World, seed: int, bears: Bears = ()
) -> dict[ClusterId, SimCluster]:
    """Returns all clusters of a topology, joined by its links. What services bear, if that is
    given, is so of all clusters with equal servers."""

    def cluster_of(each: Cluster) -> SimCluster:
        if each.pool is not None:
            return PoolCluster(topology, each.id, world, seed)
        if bears:
            return BearingCluster(topology, each.id, world, seed, bears)
        return SimCluster(topology, each.id, world, seed)

    clusters = {each.id: cluster_of(each) for each in topology.clusters}
    for each in topology.clusters:
        add_nodes(topology, clusters[each.id], world, seed)
    nodes = [node for cluster in clusters.values() for node in cluster.nodes]
    for node in nodes:
        node.join(clusters)
    if len(nodes) > len(clusters):
        for node in nodes:
            node.find_listeners()
    return clusters


def add_nodes(topology: Topology, first: SimCluster, world: World, seed: int) -> None:
    """Give a cluster its nodes besides the first one, if it has several."""
    count = topology.cluster(first.id).node_count
    more = [_next_node(topology, first, world, seed, node) for node in range(2, count + 1)]
    make_siblings([first, *more])


def _next_node(
    topology: Topology, first: SimCluster, world: World, seed: int, node: int
) -> SimCluster:
    if isinstance(first, PoolCluster):
        return PoolCluster(topology, first.id, world, seed, first, node)
    return SimCluster(topology, first.id, world, seed, node)


def make_siblings(nodes: Sequence[SimCluster]) -> None:
    """Make them the nodes of one cluster."""
    for node in nodes:
        node.siblings = {other.node: other for other in nodes if other is not node}


def node_name(cluster: ClusterId, node: int) -> str:
    """Returns the name of a node; the first one has its cluster's."""
    return cluster if node == 1 else f"{cluster}/{node}"


def in_turn(all_: Sequence[T], turn: int | None) -> Sequence[T]:
    """Returns the one whose turn it is, or all where it is nobody's."""
    return all_ if turn is None or not all_ else [all_[turn % len(all_)]]


def heads_of(cluster: Cluster, seed: int) -> Random | None:
    """Returns what draws when the answers of a cluster begin; None where they come as a whole."""
    return stream(seed, f"heads/{cluster.id}") if cluster.passes else None


def request_of(
    number: int, id: str | None, work: float | None, type: str, *, keyed: bool = True
) -> Request:
    """Returns a simulated request; `work` is its service time in seconds, None for the
    cluster's.
    """
    return Request(RequestId(id or f"sim-{number}"), keyed=keyed, work=work, type=type)
