"""The neighbors of one node: which clusters they are, how they are called, the ways to them, and
what they get to hear.

All of it is by the neighbors' handles, and comes and goes with them while the node runs; the
machine says which neighbor joins or parts. Which requests go there is not known here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any

from spillover.core.overflow import events as ev
from spillover.core.overflow.machine import NodeMachine
from spillover.live.engine.timers import Timers
from spillover.live.overflow import report_lines
from spillover.live.overflow.configured import Configured
from spillover.live.overflow.emulated_link import EmulatedLink
from spillover.live.overflow.identity import Peers
from spillover.live.overflow.metrics import RAISED, NodeMetrics
from spillover.live.overflow.passed_link import PassedLink
from spillover.live.overflow.peer_clients import PeerClients
from spillover.live.overflow.peer_link import PeerLink
from spillover.live.overflow.relay import Relays
from spillover.live.overflow.report_streams import ReportStreams
from spillover.live.process.logs import Message, OncePerPeriod
from spillover.model.errors import InputError
from spillover.model.topology import NODES_MAX, Neighbor, Topology

_log = logging.getLogger(__name__)
_log.addFilter(OncePerPeriod())


class Neighborhood:
    """The neighbors that the cluster of `machine` has in `topology`, which was read at `source`.

    `feed` takes the events that neighbors cause, `on_failure` an error that is a link's own, and
    `relays` the answers that pass through. The links draw from `random`, and the emulated faults
    from `fault_random`. Raises InputError for a neighbor without a url.
    """

    def __init__(
        self,
        topology: Topology,
        machine: NodeMachine,
        clients: PeerClients,
        metrics: NodeMetrics,
        *,
        timers: Timers,
        feed: Callable[[Any], None],
        on_failure: Callable[[BaseException], None],
        relays: Relays,
        random: Random,
        fault_random: Random,
        source: str,
    ) -> None:
        self._machine = machine
        self._metrics = metrics
        self.clients = clients
        metrics.shared = clients.shared
        kind = partial(PassedLink, relays=relays) if machine.settings.passes else PeerLink
        told: dict[str, Any] = {"timers": timers, "clients": clients, "random": random}
        self._new_link = partial(kind, feed=feed, on_failure=on_failure, **told)
        self._emulate = partial(EmulatedLink, timers, fault_random)
        self.links: dict[int, PeerLink] = {}
        self.emulated: dict[int, EmulatedLink] = {}
        """The emulated link by which everything leaves for a neighbor, by its handle."""
        self._speaking: dict[int, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None
        self._ended: list[PeerLink] = []
        """The links that ended while nothing listened; they close with the node."""
        self.configured = Configured()
        self._node = machine.settings.node
        self.peers = Peers(topology, machine.settings.cluster, self.configured, self._node)
        self._linked = topology.neighbors(machine.settings.cluster, self._node)
        period_s = topology.gossip_period_ms / 1e3
        streams_max = self._streams_max(topology)
        self.streams = ReportStreams(self.emulated, period_s, self.configured, streams_max)
        for neighbor in self._linked:
            if neighbor.url is None:
                index = topology.cluster_ids.index(neighbor.id)
                raise InputError(source, f"clusters[{index}].url", "expected a url")
            self._open(machine.neighbors.index[neighbor.id], neighbor)

    def start(self, group: asyncio.TaskGroup) -> None:
        """Listen to all neighbors, in this group of tasks, and connect ahead of need."""
        self._group = group
        for handle in self.links:
            self._speak(group, handle)

    def stop(self) -> None:
        """Begin nothing more: the group of tasks ends, and takes no new ones."""
        self._group = None

    async def close(self) -> None:
        """Let go of all neighbors. Streams are closed first: an open one holds up the server."""
        self.streams.close()
        for link in (*self.links.values(), *self._ended):
            await link.close()

    # --- what changes -------------------------------------------------------------------------

    def go_by(self, topology: Topology) -> None:
        """Go by this topology from now on. Commands say after that which neighbors join and
        part."""
        self._linked = topology.neighbors(self._machine.settings.cluster, self._node)
        self.peers.go_by(topology)
        self.streams.per_neighbor_max = self._streams_max(topology)
        for neighbor in self._linked:
            handle = self._machine.neighbors.index.get(neighbor.id)
            link = None if handle is None else self.links.get(handle)
            if link is not None and neighbor.url is not None:
                link.use_urls((neighbor.url, *neighbor.more_urls))

    def _streams_max(self, topology: Topology) -> int:
        """Returns how many streams of reports a neighbor may open. Each of its nodes may listen to
        this one, and so may each of several processes that a node is, of which the topology says
        nothing."""
        listeners = [topology.cluster(one.id).node_count for one in self._linked]
        return max(NODES_MAX, self.clients.streams_max * max(listeners, default=1))

    def limits_changed(self) -> None:
        """Pass the machine's new limits on to each link."""
        for link in self.links.values():
            link.allow(self._machine.settings.away_limit)

    # --- commands -----------------------------------------------------------------------------

    @property
    def interpreters(self) -> Mapping[type[ev.Command], Callable[[Any], None]]:
        """Returns the callables that carry out the commands about neighbors."""
        return {
            ev.Recall: self._recall,
            ev.AskCancel: self._ask_cancel,
            ev.AskForWork: lambda command: self.streams.ask(
                command.neighbor, report_lines.encode_ask(command.load, command.group)
            ),
            ev.NoWork: lambda command: self.streams.say(
                command.neighbor, report_lines.encode_no_work(command.load, command.group)
            ),
            ev.Heartbeat: lambda _: self.streams.publish(report_lines.HEARTBEAT),
            ev.Connect: self._connect,
            ev.JoinRefused: self._join_refused,
            ev.Distrust: self._distrust,
            ev.Disconnect: self._disconnect,
        }

    def _recall(self, command: ev.Recall) -> None:
        if (link := self.links.get(command.neighbor)) is not None:
            link.recall(command.ref)

    def _ask_cancel(self, command: ev.AskCancel) -> None:
        if (link := self.links.get(command.neighbor)) is not None:
            link.ask_cancel(command.ref)

    def _connect(self, command: ev.Connect) -> None:
        """Connect to a cluster that is a neighbor now; the topology was changed before."""
        neighbor = next(one for one in self._linked if one.id == command.cluster)
        self.peers.join(command.neighbor, neighbor.id, neighbor.delay_ms)
        self._metrics.joined(command.neighbor, neighbor.id)
        self._open(command.neighbor, neighbor)

    def _join_refused(self, command: ev.JoinRefused) -> None:
        _log.warning(Message("no neighbor", cluster=command.cluster, reason=command.reason))

    def _distrust(self, command: ev.Distrust) -> None:
        """Break off a neighbor whose message made the machine raise. The message was within its
        ranges, so this is a bug."""
        if (link := self.links.get(command.neighbor)) is not None:
            said = Message("bug: dropped what a neighbor told", neighbor=link.cluster)
            _log.error(said, exc_info=command.error)
            self._metrics.peer_refused(link.cluster, RAISED)
            link.distrust()

    def _disconnect(self, command: ev.Disconnect) -> None:
        """Disconnect from a neighbor. What is away there comes back first; answers that were sent
        still find their way."""
        handle = command.neighbor
        link = self.links.pop(handle)
        link.disconnect()
        del self.emulated[handle]
        speaking = self._speaking.pop(handle, None)
        if speaking is not None:
            speaking.cancel()
        if self._group is not None:
            self._group.create_task(link.close(), name=f"end of the link to {link.cluster}")
        else:
            self._ended.append(link)
        self.streams.end(handle)
        self.peers.leave(handle)
        self._metrics.left(handle, link.cluster)

    # --- links --------------------------------------------------------------------------------

    def _open(self, handle: int, neighbor: Neighbor) -> None:
        """Open a link to this neighbor, and speak over it if the others do."""
        assert neighbor.url is not None  # noqa: S101 - neighbors without one are refused before
        self.emulated[handle] = self._emulate(neighbor.delay_ms / 1e3)
        self.links[handle] = self._new_link(
            neighbor=handle,
            cluster=neighbor.id,
            url=neighbor.url,
            more_urls=neighbor.more_urls,
            emulated_link=self.emulated[handle],
            away_max=self._machine.settings.away_limit,
            agreement=self.peers.agreements[handle],
            on_forward=partial(self._metrics.forwarded, neighbor.id),
            on_refused=partial(self._metrics.peer_refused, neighbor.id),
        )
        if self._group is not None:
            self._speak(self._group, handle)

    def _speak(self, group: asyncio.TaskGroup, handle: int) -> None:
        link = self.links[handle]
        self._speaking[handle] = group.create_task(link.listen(), name=f"reports of {link.cluster}")
        link.warm()
