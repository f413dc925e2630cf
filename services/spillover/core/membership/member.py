"""What one cluster does, and in which order, when its federation has another configuration
(decision 0040). A node obeys it, and so does the cluster of the simulated histories.

The order, and who would suffer from another one:

* `SayStamp` comes first: what neighbors are told from then on says the new stamp, also one that is
  parted from in the next breath, which would not hear of the configuration otherwise.
* `TellClients` comes before `Remove`: a client that knows the new servers goes there by the rule.
  One that only hears that its node drains goes anywhere, within a second.
* `Restore` comes before links: a cluster that is still removed parts from new neighbors at once.
* `GoBy` comes before links and limits, since these are made by the topology.
* `PartFrom` comes before `LinkTo`: neighbors that go leave room for those that come.
* `TellNeighbors` comes last: what it has them told is true by then, and is said at once.

A cluster that is removed, or a node of several, stays with the topology, and the links, that it
has: it drains over them. When a link closes is up to the cluster's machine, which waits until
nothing is left there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from spillover.core.membership.changes import Changes, changes_at, kept
from spillover.model.configuration import Configuration, Stamp
from spillover.model.errors import InputError
from spillover.model.ids import ClusterId
from spillover.model.topology import Neighbor, Topology

LIMITS: Final = ("servers", "nodes", "queue_limit", "held_limit_bytes", "max_hops")
"""Settings that the cluster's machine goes by, besides its policy; others are read where they are
used."""


class MemberStep:
    """Base of all steps."""

    __slots__ = ()


@dataclass(slots=True)
class SayStamp(MemberStep):
    """Say this stamp to neighbors from now on. `changes` are for people; `misfit` says why the
    configuration does not fit the own file, and is empty where it does."""

    stamp: Stamp
    changes: Changes
    misfit: str = ""


@dataclass(slots=True)
class TellClients(MemberStep):
    """Tell clients which servers there are now."""

    configuration: Configuration


@dataclass(slots=True)
class Remove(MemberStep):
    """The cluster, or this node of it, is no part of the federation any more: drain."""


@dataclass(slots=True)
class Restore(MemberStep):
    """It is a part of it again."""


@dataclass(slots=True)
class GoBy(MemberStep):
    """Go by this topology."""

    topology: Topology


@dataclass(slots=True)
class PartFrom(MemberStep):
    """This neighbor is to be none."""

    cluster: ClusterId


@dataclass(slots=True)
class LinkTo(MemberStep):
    """This cluster becomes a neighbor, or stays one from which the cluster was parting."""

    neighbor: Neighbor


@dataclass(slots=True)
class SetDelay(MemberStep):
    """The link to this neighbor has another delay."""

    neighbor: Neighbor


@dataclass(slots=True)
class SetLimits(MemberStep):
    """Keep to these of LIMITS, by name."""

    limits: Mapping[str, Any]


@dataclass(slots=True)
class SetPolicy(MemberStep):
    """Decide by these, by name: `policy`, `shadow` or both."""

    rules: Mapping[str, Any]


@dataclass(slots=True)
class TellNeighbors(MemberStep):
    """Tell all neighbors at once how things are, whatever they were told before."""


class FederationMember:
    """This node of the cluster `own` as a part of its federation, which goes by `topology` at
    first."""

    def __init__(self, own: ClusterId, topology: Topology, node: int = 1) -> None:
        self._own, self._node = own, node
        self.topology = topology
        """What the cluster goes by; while it is removed, what it went by before."""
        self.removed = False
        """Whether the cluster, or this node of it, is no part of the federation any more."""

    def adopt(
        self, configuration: Configuration, linked: Collection[ClusterId]
    ) -> list[MemberStep]:
        """Returns what to do in this order, now that this configuration counts. `linked` are the
        neighbors that there are, without those from which the cluster is parting."""
        before, after, misfit = self.topology, configuration.topology, ""
        try:
            after = kept(before, after)
        except InputError as error:
            misfit = str(error)
        changes = changes_at(before, after, self._own, linked, self._node)
        steps = [SayStamp(configuration.stamp, changes, misfit), TellClients(configuration)]
        if changes.removed:
            steps.append(Remove())
        else:
            if self.removed:
                steps.append(Restore())
            self.topology = after
            steps += [GoBy(after), *_steps_of(changes)]
        self.removed = changes.removed
        return [*steps, TellNeighbors()]


def _steps_of(changes: Changes) -> Iterator[MemberStep]:
    yield from map(PartFrom, changes.parts)
    yield from map(LinkTo, changes.joins)
    # One from which the cluster was parting still has the link that it had.
    yield from map(SetDelay, (*changes.joins, *changes.delays))
    settings = changes.settings or {}
    if limits := {name: settings[name] for name in LIMITS if name in settings}:
        yield SetLimits(limits)
    if rules := {name: settings[name] for name in ("policy", "shadow") if name in settings}:
        yield SetPolicy(rules)
