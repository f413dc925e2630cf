"""Where a node and its federation's configuration meet: what is heard of neighbors goes to the
configuration, and what comes of a change to the node. Neither of the two knows of the other.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from spillover.core.membership.changes import Changes, changes_at, filled, kept
from spillover.core.overflow import events as ev
from spillover.inputs.topology_file import short_text
from spillover.live.membership.shell import ConfigurationShell
from spillover.live.membership.store import ConfigurationStore
from spillover.live.membership.wire import LIMIT_BYTES, encode_configuration
from spillover.live.overflow.identity import Connection
from spillover.live.overflow.protocol import CONFIGURATION
from spillover.live.overflow.shell import NodeShell
from spillover.live.overflow.wire import Caller
from spillover.live.process.logs import Message, OncePerPeriod
from spillover.model.configuration import Configuration, Stamp, of_file
from spillover.model.errors import InputError, NotDelivered, OutcomeUnknown
from spillover.model.ids import ClusterId
from spillover.model.topology import Neighbor, Topology

ASK_WITHIN_S = 2.0
"""For one question. There is one at a time."""

HISTORY_MAX = 10
"""Configurations that a node can be taken back to."""

OF_THE_MACHINE = ("servers", "queue_limit", "held_limit_bytes", "max_hops")
"""Settings that the node's machine goes by; others are read where they are used."""

_log = logging.getLogger(__name__)
_log.addFilter(OncePerPeriod())


class NodeConfiguration:
    """Of one node. `on_change` is told what it goes by, now and later. Unless it goes by what it
    hears `from_peers`, only its own operators change it, and its store."""

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
        """What each neighbor last told that it goes by, and this node does not."""
        self._on_change = on_change
        self.history: deque[tuple[datetime, Configuration]] = deque(maxlen=HISTORY_MAX)
        """What the node has gone by in this life, and since when; the newest first."""
        self._own = shell.cluster.id
        configuration = of_file(shell.topology, short_text(shell.topology))
        self._shell = ConfigurationShell(
            self._own,
            shell.epoch,
            configuration,
            shell.timers,
            ask=self._ask,
            adopt=self._adopt,
            tell_superseded=lambda _: self._show_superseded(),
            fail=shell.fail,
            store=store,
        )
        self.machine = self._shell.machine
        shell.configured.go_by(configuration.stamp)
        shell.configured.on_higher = self._shell.heard if from_peers else self._leave
        shell.metrics.registry.register(self._shell.metrics)
        shell.on_close.append(self._shell.close)
        self._go_by(configuration)

    @property
    def current(self) -> Configuration:
        """Returns what the node goes by."""
        return self.machine.current

    @property
    def superseded(self) -> Configuration | None:
        """Returns what was taken here and lost."""
        return self.machine.superseded

    async def propose(self, if_version: int, topology: Topology) -> Stamp:
        """Have this be the configuration in place of the one of this version. Raises NotTaken."""
        whole = filled(self.current.topology, topology)
        stamp = await self._shell.propose(if_version, whole, short_text(whole))
        self._show_superseded()
        return stamp

    def told_to(self, connection: Connection, hello: bytes | None) -> bytes:
        """Returns what another node is told that says this of itself. Raises TurnedAway."""
        node = self._node
        cluster = node.peers.member(connection, hello)
        if self._is_cut(cluster):
            raise NotDelivered(f"the link to cluster {cluster} is cut")
        return encode_configuration(self.current)

    def _leave(self, cluster: str, stamp: Stamp) -> None:
        """Of a neighbor that may have been broken into: operators of this site have the say."""
        if self._left.get(cluster) != stamp:
            self._left[cluster] = stamp
            told = {"neighbor": cluster, "version": stamp.version, "by": stamp.cluster}
            words = "a newer configuration is not taken from a neighbor: set it here as well"
            _log.warning(Message(words, **told))

    def _go_by(self, configuration: Configuration) -> None:
        self.history.appendleft((datetime.now(UTC), configuration))
        self._on_change(configuration)

    # --- what the configuration asks for --------------------------------------------------------

    async def _ask(self, cluster: str) -> bytes:
        """What the node of a cluster goes by, wherever it is: it may be no neighbor."""
        url = self._url_of(cluster)
        if url is None:
            raise NotDelivered(f"it is not known where cluster {cluster} is")
        if self._is_cut(cluster):
            raise NotDelivered(f"the link to cluster {cluster} is cut")
        caller = Caller(self._own, cluster, self._node.peers.federation)
        client = self._node.clients.of_question(url, caller, LIMIT_BYTES)
        try:
            response = await client.request("GET", CONFIGURATION, timeout_s=ASK_WITHIN_S)
        finally:
            await client.close()
        if response.status != 200:
            raise OutcomeUnknown(f"it answered with status {response.status}")
        return response.body

    def _url_of(self, cluster: str) -> str | None:
        """As this node's own file has it, if it is there."""
        for topology in (self._node.topology, self.current.topology):
            if cluster in topology.cluster_ids:
                found = topology.cluster(cluster)
                return found.peer_url or found.url
        return None

    def _is_cut(self, cluster: str) -> bool:
        handle = self._node.machine.neighbors.index.get(ClusterId(cluster))
        return handle is not None and self._node.link_faults(handle).cut

    def _show_superseded(self) -> None:
        """It is over, too, where others have made what counts now of what was lost."""
        lost = self.superseded
        self._node.configured.superseded = None if lost is None else lost.stamp

    def _adopt(self, configuration: Configuration) -> None:
        node = self._node
        before, after = node.topology, configuration.topology
        try:
            after = kept(before, after)
        except InputError as error:
            _log.warning(Message("configuration does not fit the own file", reason=str(error)))
        changes = changes_at(before, after, self._own)
        node.configured.go_by(configuration.stamp)
        self._show_superseded()
        self._say(configuration.stamp, changes)
        self._go_by(configuration)
        if changes.removed:
            node.configured.removed = True
            node.feed(ev.Removed(node.leaving.lame_duck_s))
        else:
            if node.configured.removed:
                node.configured.removed = False
                changes = self._anew(after, changes)
                node.feed(ev.Restored())
            node.go_by(after)
            for event in self._events(changes):
                node.feed(event)
            node.limits_changed()
        node.streams.start_over()
        node.feed(ev.ReportAsked())

    def _anew(self, after: Topology, changes: Changes) -> Changes:
        """Of a cluster that was removed, and whose links may have gone since."""
        node = self._node
        linked = after.neighbors(self._own)
        machine = node.machine
        known = machine.neighbors.index
        joins = [one for one in linked if one.id not in known or known[one.id] in machine.parting]
        there = {one.id for one in linked}
        parts = [name for name in known if name not in there]
        delays = [one for one in linked if one.id in known and one not in joins]
        return Changes(tuple(joins), tuple(parts), tuple(delays), changes.settings)

    def _events(self, changes: Changes) -> Iterator[ev.Event]:
        for name in changes.parts:
            if (handle := self._handle_of(name)) is not None:
                yield ev.Part(handle)
        for neighbor in changes.joins:
            if self._can_join(neighbor):
                yield ev.Join(neighbor.id, neighbor.delay_ms / 1e3, ramp=True)
        for neighbor in changes.delays:
            # One that could not join has none.
            if (handle := self._handle_of(neighbor.id)) is not None:
                delay_s = neighbor.delay_ms / 1e3
                self._node.set_link(handle, delay_s=delay_s)
                yield ev.DelayChanged(handle, delay_s)
        yield from self._of_settings(changes.settings or {})

    def _of_settings(self, settings: Mapping[str, Any]) -> Iterator[ev.Event]:
        told = {name: settings[name] for name in OF_THE_MACHINE if name in settings}
        if told:
            yield ev.SettingsChanged(**told)
        if "policy" in settings or "shadow" in settings:
            machine = self._node.machine
            policy = settings.get("policy", machine.policy)
            yield ev.PolicySet(policy, settings.get("shadow", machine.shadow))

    def _can_join(self, neighbor: Neighbor) -> bool:
        if neighbor.url is None:
            reason = "the configuration has no url of it"
        elif self._node.clients.can_call(neighbor.url):
            return True
        else:
            reason = "expected https:// between all nodes or between none"
        told = {"cluster": neighbor.id, "reason": reason}
        _log.warning(Message("no neighbor", **told))
        return False

    def _handle_of(self, cluster: ClusterId) -> int | None:
        return self._node.machine.neighbors.index.get(cluster)

    def _say(self, stamp: Stamp, changes: Changes) -> None:
        told = {
            "joins": " ".join(one.id for one in changes.joins),
            "parts": " ".join(changes.parts),
            "delays": " ".join(one.id for one in changes.delays),
            "settings": " ".join(changes.settings or ()),
        }
        given = {name: words for name, words in told.items() if words}
        if changes.removed:
            given["removed"] = self._own
        _log.info(Message("configuration", version=stamp.version, by=stamp.cluster, **given))
