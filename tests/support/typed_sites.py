"""Clusters with pools of unlike servers, made of few words, and machines over them."""

from random import Random

from spillover.core.overflow import events as ev
from spillover.core.overflow.machine import NodeMachine
from spillover.core.overflow.settings import NodeSettings
from spillover.model.load import GroupLoad, LoadReport
from spillover.model.request import Outcome, Request
from spillover.model.topology import Cluster, Link, Topology
from spillover.model.unlike_servers import JobType, Server, ServerClass


def unlike(id_, types, *, tokens=1, rates=None, **fields):
    """Returns a cluster with a server for each word in {type: servers}, each with a class of its
    own of so many tokens."""
    names = sorted({name for servers in types.values() for name in servers.split()})
    return Cluster(
        id=id_,
        servers=tuple(Server(id=name, rate=(rates or {}).get(name, 1.0)) for name in names),
        classes=tuple(ServerClass(id=name, servers=(name,), tokens=tokens) for name in names),
        types=tuple(JobType(id=each, classes=tuple(of.split())) for each, of in types.items()),
        **fields,
    )


def plain(id_, servers=1, **fields):
    return Cluster(id=id_, servers=servers, **fields)


def linked(*clusters, links=None, delay_ms=0.0, **fields):
    """Returns the topology in which all clusters are neighbors of the first, unless links say
    otherwise."""
    first, *others = clusters
    pairs = [(first.id, other.id) for other in others] if links is None else links
    return Topology(
        name="typed",
        clusters=clusters,
        links=tuple(Link(between=pair, delay_ms=delay_ms) for pair in pairs),
        **{"policy": "adaptive"} | fields,
    )


class Site:
    """The machine of the first cluster of a topology; neighbors are told of by hand."""

    def __init__(self, topology):
        self.id = topology.cluster_ids[0]
        told = NodeSettings.of(topology, self.id)
        ways = [(one.id, one.delay_ms / 1e3) for one in topology.neighbors(self.id)]
        self.machine = NodeMachine(told, ways, Random(1), 0.0)
        self.handles = self.machine.neighbors.index
        self.now_s = 0.0
        self.sequence = 0

    def tell(self, event, now_s=None):
        self.now_s = self.now_s if now_s is None else now_s
        commands = self.machine.handle(event, self.now_s)
        self.machine.check()
        return commands

    def arrive(self, ref, type_, now_s=None, *, path=(), **told):
        request = Request(f"r{ref}", keyed=True, work=None, path=path, type=type_)
        origin = self.handles[path[-1]] if path else ev.HOME
        return self.tell(ev.Arrived(ref, request, 60.0, origin, **told), now_s)

    def end(self, ref, now_s=None, outcome=Outcome.DONE, service_s=0.04):
        return self.tell(ev.ServiceEnded(ref, outcome, service_s), now_s)

    def hear(self, neighbor, now_s=None, *, accepting=True, **groups):
        """A report of a neighbor: `ahead` by group, or of all where none is given."""
        self.sequence += 1
        told = tuple(
            GroupLoad(group, 1.0, 1.0, 2, accepting, ahead, 0.0, 0.02, 1.0)
            for group, ahead in groups.items()
        )
        report = LoadReport(
            1, self.sequence, 1.0, 1.0, 0, 2, accepting, (self.id,), ahead=-2, groups=told
        )
        return self.tell(ev.ReportReceived(self.handles[neighbor], report), now_s)

    def decision(self, ref):
        return self.machine.decider.log.of(f"r{ref}")[-1]


def only(kind, commands):
    """Returns the one command of this kind."""
    (found,) = [each for each in commands if isinstance(each, kind)]
    return found
