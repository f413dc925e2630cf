"""The place where a node and its federation's configuration meet. News of neighbors goes to the
configuration, and the consequences of a change go to the node. Neither of the two knows of the
other."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from spillover.core.membership import member as steps
from spillover.core.membership.changes import filled
from spillover.core.membership.member import FederationMember
from spillover.core.overflow import events as ev
from spillover.inputs.topology_file import told_text
from spillover.live.membership.shell import ConfigurationShell
from spillover.live.membership.store import ConfigurationStore
from spillover.live.membership.wire import LIMIT_BYTES, encode_configuration
from spillover.live.overflow.identity import IncomingConnection
from spillover.live.overflow.protocol import CONFIGURATION
from spillover.live.overflow.shell import NodeShell
from spillover.live.overflow.wire import Caller
from spillover.live.process.logs import Message, OncePerPeriod
from spillover.model.configuration import Configuration, Stamp, of_file
from spillover.model.errors import NotDelivered, OutcomeUnknown
from spillover.model.ids import ClusterId
from spillover.model.topology import Topology

ASK_WITHIN_S = 2.0
"""The time, in seconds, within which a question has to be answered. There is one at a time."""

HISTORY_MAX = 10
"""The most configurations to which a node can be taken back."""

_log = logging.getLogger(__name__)
_log.addFilter(OncePerPeriod())


class NodeConfiguration:
    """The configuration that one node goes by. `on_change` is called with it, now and at each
    change. Unless it is taken `from_peers`, only the operators of this node, and its store, change
    it."""

    def __init__(
        self,
        shell: NodeShell,
        store: ConfigurationStore | None = None,
        on_change: Callable[[Configuration], None] = lambda _: None,
        *,
        from_peers: bool = True,
    ) -> None:
        self._node = shell
        self._left: dict[str, Stamp] = {}
        """The newest stamp of each neighbor whose configuration was left alone."""
        self._on_change = on_change
        self.history: deque[tuple[datetime, Configuration]] = deque(maxlen=HISTORY_MAX)
        """The configurations of this life, and the times since when the node went by them; the
        newest first."""
        self._own = shell.cluster.id
        configuration = of_file(shell.topology, told_text(shell.topology))
        self._asked = 0
        """The number of questions so far: each goes to another one of a cluster's nodes."""
        self._shell = ConfigurationShell(
            self._own,
            shell.epoch,
            configuration,
            shell.timers,
            ask=self._ask,
            adopt=self._adopt,
            tell_superseded=lambda _: self._show_superseded(),
            fail=shell.fail,
            node=shell.place,
            store=store,
        )
        self.machine = self._shell.machine
        self.member = FederationMember(self._own, shell.topology, shell.place)
        self._steps: Mapping[type[steps.MemberStep], Callable[[Any], None]] = {
            steps.SayStamp: self._say_stamp,
            steps.TellClients: lambda step: self._go_by(step.configuration),
            steps.Remove: self._remove,
            steps.Restore: self._restore,
            steps.GoBy: lambda step: shell.go_by(step.topology),
            steps.PartFrom: self._part_from,
            steps.LinkTo: self._link_to,
            steps.SetDelay: self._set_delay,
            steps.SetLimits: self._set_limits,
            steps.SetPolicy: self._set_policy,
            steps.TellNeighbors: self._tell_neighbors,
        }
        self.beside = self._shell.reading.beside
        """The callable that runs, beside the loop, what takes long for a large federation."""
        shell.neighborhood.configured.go_by(configuration.stamp)
        shell.neighborhood.configured.on_higher = self._heard if from_peers else self._heard_or_left
        shell.metrics.registry.register(self._shell.metrics)
        shell.on_close.append(self._shell.close)
        self._go_by(configuration)

    @property
    def current(self) -> Configuration:
        return self.machine.current

    @property
    def superseded(self) -> Configuration | None:
        """Returns the configuration that was taken here and lost; None if none was."""
        return self.machine.superseded

    async def propose(self, if_version: int, topology: Topology) -> Stamp:
        """Have this be the configuration in place of the one of this version. Raises NotTaken, and
        InputError if it is too large."""
        before = self.current.topology

        def as_told() -> tuple[Topology, str]:
            whole = filled(before, topology)
            return whole, told_text(whole)

        whole, text = await self.beside(as_told)
        stamp = await self._shell.propose(if_version, whole, text)
        self._show_superseded()
        return stamp

    def told_to(self, connection: IncomingConnection, hello: bytes | None) -> bytes:
        """Returns the configuration for another node, which says `hello`. Raises TurnedAway."""
        node = self._node
        cluster = node.neighborhood.peers.member(connection, hello)
        if self._is_cut(cluster):
            raise NotDelivered(f"the link to cluster {cluster} is cut")
        return encode_configuration(self.current)

    def _heard(self, name: str, stamp: Stamp) -> None:
        self._shell.heard(name, stamp)

    def _heard_or_left(self, name: str, stamp: Stamp) -> None:
        """Take the newer configuration of another node of the own cluster. Leave a neighbor's
        alone, and warn of it once: the neighbor may have been broken into, and operators of this
        site decide."""
        cluster, _, is_sibling = name.partition("/")
        if is_sibling:
            self._heard(name, stamp)
        elif self._left.get(cluster) != stamp:
            self._left[cluster] = stamp
            told = {"neighbor": cluster, "version": stamp.version, "by": stamp.cluster}
            words = "a newer configuration is not taken from a neighbor: set it here as well"
            _log.warning(Message(words, **told))

    def _go_by(self, configuration: Configuration) -> None:
        self.history.appendleft((datetime.now(UTC), configuration))
        self._on_change(configuration)

    # --- what the configuration asks for --------------------------------------------------------

    async def _ask(self, name: str) -> bytes:
        """Returns the encoded configuration of a cluster, which need be no neighbor. `name` is a
        cluster, or a node of this one by its number behind a slash."""
        cluster, _, number = name.partition("/")
        url = self._url_of(cluster, int(number or 0))
        if url is None:
            raise NotDelivered(f"it is not known where cluster {cluster} is")
        if self._is_cut(cluster):
            raise NotDelivered(f"the link to cluster {cluster} is cut")
        caller = Caller(self._own, cluster, self._node.neighborhood.peers.federation)
        client = self._node.neighborhood.clients.of_question(url, caller, LIMIT_BYTES)
        try:
            response = await client.request("GET", CONFIGURATION, timeout_s=ASK_WITHIN_S)
        finally:
            await client.close()
        if response.status != 200:
            raise OutcomeUnknown(f"it answered with status {response.status}")
        return response.body

    def _url_of(self, cluster: str, number: int) -> str | None:
        """Returns the url for neighbors of the node with this number, or else of any node of the
        cluster: by this node's own topology, or else by the configuration; None if neither has
        one."""
        self._asked += 1
        for topology in (self._node.topology, self.current.topology):
            if cluster in topology.cluster_ids:
                urls = topology.cluster(cluster).peer_urls
                if number <= len(urls) > 0:
                    return urls[(number - 1 if number else self._asked) % len(urls)]
        return None

    def _is_cut(self, cluster: str) -> bool:
        handle = self._handle_of(ClusterId(cluster))
        return handle is not None and self._node.neighborhood.emulated[handle].faults.cut

    def _handle_of(self, cluster: ClusterId) -> int | None:
        return self._node.machine.neighbors.index.get(cluster)

    def _show_superseded(self) -> None:
        """Shows whether a configuration that was taken here has lost against another one. That is
        over once others have built on the one that won."""
        lost = self.superseded
        self._node.neighborhood.configured.superseded = None if lost is None else lost.stamp

    def _adopt(self, configuration: Configuration) -> None:
        node, machine = self._node, self._node.machine
        node.timers.run_due(node.now_s)  # links of a cluster that was removed may just be closing
        known = machine.neighbors.index.items()
        linked = [name for name, handle in known if handle not in machine.parting]
        for step in self.member.adopt(configuration, linked):
            self._steps[type(step)](step)

    def _say_stamp(self, step: steps.SayStamp) -> None:
        if step.misfit:
            _log.warning(Message("configuration does not fit the own file", reason=step.misfit))
        self._node.neighborhood.configured.go_by(step.stamp)
        self._show_superseded()
        if self._node.site is not None:
            self._node.site.say_configuration()
        changes = step.changes
        told = {
            "joins": " ".join(one.id for one in changes.joins),
            "parts": " ".join(changes.parts),
            "delays": " ".join(one.id for one in changes.delays),
            "settings": " ".join(changes.settings or ()),
            "removed": self._own if changes.removed else "",
        }
        given = {name: words for name, words in told.items() if words}
        stamp = step.stamp
        _log.info(Message("configuration", version=stamp.version, by=stamp.cluster, **given))

    def _remove(self, _: steps.Remove) -> None:
        self._node.neighborhood.configured.removed = True
        self._node.feed(ev.Removed(self._node.leaving.lame_duck_s))

    def _restore(self, _: steps.Restore) -> None:
        self._node.neighborhood.configured.removed = False
        self._node.feed(ev.Restored())

    def _part_from(self, step: steps.PartFrom) -> None:
        if (handle := self._handle_of(step.cluster)) is not None:
            self._node.feed(ev.Part(handle))

    def _link_to(self, step: steps.LinkTo) -> None:
        neighbor = step.neighbor
        if neighbor.url is None:
            reason = "the configuration has no url of it"
        elif self._node.neighborhood.clients.can_call(neighbor.url):
            self._node.feed(ev.Join(neighbor.id, neighbor.delay_ms / 1e3, ramp=True))
            return
        else:
            reason = "expected https:// between all nodes or between none"
        _log.warning(Message("no neighbor", cluster=neighbor.id, reason=reason))

    def _set_delay(self, step: steps.SetDelay) -> None:
        if (handle := self._handle_of(step.neighbor.id)) is not None:
            delay_s = step.neighbor.delay_ms / 1e3
            self._node.neighborhood.emulated[handle].set_faults(delay_s=delay_s)
            self._node.feed(ev.DelayChanged(handle, delay_s))

    def _set_limits(self, step: steps.SetLimits) -> None:
        self._node.feed(ev.SettingsChanged(**step.limits))
        self._node.limits_changed()

    def _set_policy(self, step: steps.SetPolicy) -> None:
        machine = self._node.machine
        now = {"policy": machine.policy, "shadow": machine.shadow}
        self._node.feed(ev.PolicySet(**{**now, **step.rules}))

    def _tell_neighbors(self, _: steps.TellNeighbors) -> None:
        self._node.neighborhood.streams.start_over()
        self._node.feed(ev.ReportAsked())
