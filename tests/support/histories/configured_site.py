"""A cluster with the configuration that its node goes by: what is heard of others goes to the
configuration's machine, and what comes of a change to the cluster's (decision 0040).

Stamps travel with reports, with the question for reports, and with the answer that turns one away.
A configuration is asked for of any other cluster, over the same channels, within ASK_WITHIN_S. A
restart forgets all that was not in the file that the node is started with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, cast

from spillover.core.membership import events as mev
from spillover.core.membership import member as steps
from spillover.core.membership.configuration import ConfigurationMachine
from spillover.core.membership.member import FederationMember
from spillover.core.overflow import events as ev
from spillover.core.overflow.settings import NodeSettings
from spillover.model.configuration import Configuration, Stamp, of_file
from spillover.model.ids import ClusterId
from spillover.model.load import LoadReport
from spillover.model.topology import Topology
from spillover.sim.engine.world import World
from spillover.sim.overflow.faulty_cluster import FaultyCluster, Watch

ASK_WITHIN_S = 2.0
"""For one question; as live."""


@dataclass(frozen=True, slots=True)
class StampedReport(LoadReport):
    """A report, and the stamp of what its sender goes by."""

    stamp: Stamp = Stamp(0)  # noqa: RUF009 - a tuple


_OF_REPORTS = [field.name for field in fields(LoadReport)]


class Site(FaultyCluster):
    """One cluster and its configuration, over all of their lives; the first begins with `file`."""

    def __init__(
        self,
        file: Topology,
        cluster_id: ClusterId,
        world: World,
        seed: int,
        watch: Watch | None = None,
    ) -> None:
        super().__init__(file, cluster_id, world, seed, watch)
        self._use(file)
        self.taken: list[tuple[int, Stamp]] = []
        """Of what operators wanted here: in which life, and the stamp that it got."""
        self.refusals: list[mev.Refused] = []
        self._asks = 0
        self._membership: Mapping[type, Any] = {
            mev.Adopt: self._adopt,
            mev.Ask: self._ask,
            mev.Taken: lambda command: self.taken.append((self.life, command.stamp)),
            mev.Refused: self.refusals.append,
            mev.Superseded: lambda _: None,
        }
        self._steps: Mapping[type[steps.MemberStep], Callable[[Any], None]] = {
            steps.SayStamp: lambda _: None,
            steps.TellClients: lambda _: None,
            steps.Remove: lambda _: self.feed(ev.Removed()),
            steps.Restore: lambda _: self.feed(ev.Restored()),
            steps.GoBy: lambda _: None,
            steps.PartFrom: lambda step: self.feed(
                ev.Part(self.machine.neighbors.index[step.cluster])
            ),
            steps.LinkTo: lambda step: self.feed(
                ev.Join(step.neighbor.id, step.neighbor.delay_ms / 1e3, ramp=True)
            ),
            steps.SetDelay: self._set_delay,
            steps.SetLimits: lambda step: self.feed(ev.SettingsChanged(**step.limits)),
            steps.SetPolicy: lambda step: self.feed(ev.PolicySet(**step.rules)),
            steps.TellNeighbors: lambda _: self.feed(ev.ReportAsked()),
        }

    def _use(self, file: Topology) -> None:
        """Begin a life with this file."""
        self.file = file
        self.member = FederationMember(self.id, file)
        epoch = self.machine.settings.epoch
        self.configuration = ConfigurationMachine(self.id, epoch, of_file(file))

    @property
    def stamp(self) -> Stamp:
        return self.configuration.current.stamp

    @property
    def may_end(self) -> bool:
        """Returns whether it has drained, and all its answers have arrived: what a node waits for
        that is told to end."""
        return self.machine.drained and not self.foreign_requests and not self._clients

    def start_with(self, file: Topology) -> None:
        """Begin another life, with this file."""
        self._cluster = file.cluster(self.id)
        self._settings = NodeSettings.of(file, self.id)
        self._neighbors = [(n.id, n.delay_ms / 1e3) for n in file.neighbors(self.id)]
        self.life += 1
        self._begin()
        self._use(file)
        self._open()

    def propose(self, topology: Topology) -> None:
        """An operator wants this in the place of what counts here."""
        version = self.stamp.version
        self._configure(mev.Proposed(len(self.taken) + len(self.refusals), version, topology))

    # --- what is said and heard ---------------------------------------------------------------

    def says(self) -> Stamp:
        return self.stamp

    def hear(self, cluster: ClusterId, said: object) -> None:
        if isinstance(said, Stamp):
            self._configure(mev.StampHeard(cluster, said))

    def _tell(self, report: LoadReport | None) -> None:
        if report is not None:
            told: dict[str, Any] = {name: getattr(report, name) for name in _OF_REPORTS}
            report = StampedReport(**told | {"stamp": self.stamp})
        super()._tell(report)

    def feed(self, event: Any) -> None:
        super().feed(event)
        report = event.report if type(event) is ev.ReportReceived else None
        if isinstance(report, StampedReport) and report.stamp > self.stamp:
            row = self.machine.neighbors.by_handle.get(event.neighbor)
            if row is not None:
                self.hear(row.id, report.stamp)

    def _configure(self, event: mev.Event) -> None:
        for command in self.configuration.handle(event, self.clock.now_s()):
            self._membership[type(command)](command)
        self.configuration.check()

    def _ask(self, command: mev.Ask) -> None:
        """Ask over the channels between the two, whoever is a neighbor."""
        self._asks += 1
        peer, number = cast("Site", self.clusters[ClusterId(command.neighbor)]), self._asks
        out, back = self._channels[self.id, peer.id], self._channels[peer.id, self.id]

        def heard(configuration: Configuration | None) -> None:
            if number != self._asks:
                return
            self._asks += 1
            if configuration is None:
                self._configure(mev.NotReceived(peer.id))
            else:
                self._configure(mev.Received(configuration, peer.id))

        def answer() -> None:
            told = peer.configuration.current
            back.send(partial(self._at_once, heard, told), nothing)

        def asked() -> None:
            if peer.alive:
                peer.deliver(answer)
            else:
                back.send(nothing, nothing)

        nothing = partial(self._at_once, heard, None)
        out.send(asked, nothing)
        self._at_once(heard, None, after_s=ASK_WITHIN_S)

    # --- what the configuration asks for ------------------------------------------------------

    def _adopt(self, command: mev.Adopt) -> None:
        known = self.machine.neighbors.index.items()
        linked = [name for name, handle in known if handle not in self.machine.parting]
        for step in self.member.adopt(command.configuration, linked):
            self._steps[type(step)](step)

    def _set_delay(self, step: steps.SetDelay) -> None:
        if (handle := self.machine.neighbors.index.get(step.neighbor.id)) is not None:
            self.feed(ev.DelayChanged(handle, step.neighbor.delay_ms / 1e3))
