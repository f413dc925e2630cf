"""The identities of callers between nodes: how a node names itself, which callers are its
neighbors, and which were turned away.

The identity of the other end is a property of the connection. It is settled once, in
`Peers.settle`, and holds for all that comes on that connection. A call that claims another sender
is refused, and so is one on a connection whose other end has not said who it is. A node says so in
a header of each call (HELLO), the same bytes each time.

Where nodes call each other by `https`, the certificate of a connection is held against the claims
that are made on it: it has to be for the cluster that is claimed. Elsewhere nothing is proved, and
whoever reaches the port can claim anything.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import parse_qs, quote, urlencode

from spillover.live.overflow import protocol
from spillover.live.overflow.agreement import (
    CLUSTER_HEADER,
    FEDERATION_HEADER,
    Agreement,
    Terms,
    shortened,
)
from spillover.live.overflow.configured import HEADER, Configured
from spillover.live.overflow.wire import Caller
from spillover.live.process.logs import Message, OncePerPeriod
from spillover.live.tls.certified import PeerCertificate
from spillover.model.certified_names import certified_name
from spillover.model.ids import ClusterId
from spillover.model.topology import CLUSTER_ID, Topology

HELLO = b"spillover-peer"
"""The fields of each call between nodes: the caller, the callee, their federation, and the versions
of the protocol that the caller speaks."""

FIELDS_MAX = 16
"""The most fields of a hello; later versions may have more."""

NAMES_TOLD_MAX = 8
"""The most names of its certificate that a caller which is turned away gets to read."""

TURNED_AWAY_MAX = 32
"""The most clusters that were turned away and are remembered; one more, and the oldest is
forgotten."""

TURNED_AWAY_S = 60.0
"""The time, in seconds, for which a caller that was turned away is remembered after its last
question. A node asks again each second."""

_callers_log = logging.getLogger(f"{__name__}.callers")
"""The log of unknown callers. Anybody can call, while the lines on neighbors are bounded by how
often neighbors change."""
_callers_log.addFilter(OncePerPeriod())


class TurnedAway(Exception):
    """The caller gets nothing here; the words say why."""


@dataclass(frozen=True, slots=True)
class Peer:
    """The other end of a connection: the neighbor with this handle."""

    neighbor: int
    caller: Caller
    hello: bytes
    """The hello by which the neighbor has named itself."""


class IncomingConnection(Protocol):
    """A connection on which calls come in."""

    peer: Peer | None
    """The neighbor; None until `Peers.settle` has settled who it is."""
    certificate: PeerCertificate | None
    """The certificate that the other end has shown; None without one, or if it is no longer
    valid."""


def hello_of(caller: Caller) -> bytes:
    """Returns what a node says of itself with each call, as the value of HELLO."""
    told = {"from": caller.cluster, "to": caller.to, "federation": caller.federation}
    told["speaks"] = protocol.TELLING
    given = {name: value for name, value in told.items() if value is not None}
    return urlencode(given, quote_via=quote).encode()


def read_hello(hello: bytes) -> tuple[Caller, tuple[int, ...]]:
    """Returns the caller and the versions that it speaks. A part that cannot be read counts as
    missing."""
    try:
        fields = parse_qs(hello.decode("latin-1"), max_num_fields=FIELDS_MAX)
    except ValueError:
        fields = {}
    told = {name: values[0] for name, values in fields.items()}
    caller = Caller(told.get("from", ""), told.get("to"), told.get("federation"))
    return caller, protocol.read_versions(told.get("speaks", ""))


@dataclass(slots=True)
class Visit:
    """A caller that was turned away: why, and when it last came."""

    why: str
    at_s: float


class Peers:
    """The peers of node or process `node` of a cluster: its neighbors, by their handles, and
    callers that were turned away."""

    def __init__(
        self,
        topology: Topology,
        cluster: ClusterId,
        configured: Configured | None = None,
        node: int = 1,
    ) -> None:
        self._own, self._node = cluster, node
        self._topology = topology
        self._configured = Configured() if configured is None else configured
        self.federation = shortened(topology.name) if topology.is_named else None
        self._is_secure = topology.is_secure
        self._handles: dict[str, int] = {}
        self.agreements: dict[int, Agreement] = {}
        for handle, neighbor in enumerate(topology.neighbors(cluster)):
            self.join(handle, neighbor.id, neighbor.delay_ms)
        self._turned_away: OrderedDict[str, Visit] = OrderedDict()

    def join(self, handle: int, neighbor: ClusterId, delay_ms: float) -> None:
        """Takes a cluster for a neighbor from now on, over a link of this delay."""
        caller = Caller(self._own, neighbor, self.federation)
        self._handles[neighbor] = handle
        terms = self._terms(delay_ms)
        self.agreements[handle] = Agreement(caller, terms, self._configured, self._node)

    def go_by(self, topology: Topology) -> None:
        """Go by the topology, which has changed. `join` and `leave` say which neighbors come and
        go."""
        self._topology = topology
        for neighbor in topology.neighbors(self._own):
            handle = self._handles.get(neighbor.id)
            if handle is not None:
                self.agreements[handle].go_by(self._terms(neighbor.delay_ms))

    def _terms(self, delay_ms: float) -> Terms:
        topology = self._topology
        return Terms(
            delay_ms=delay_ms,
            gossip_period_ms=topology.gossip_period_ms,
            default_deadline_ms=topology.default_deadline_ms,
            max_hops=topology.max_hops,
        )

    def leave(self, handle: int) -> None:
        """Takes a cluster for a neighbor no more. Calls on its connections are refused."""
        del self._handles[self.agreements.pop(handle).caller.to or ""]

    def settle(self, connection: IncomingConnection, hello: bytes | None) -> Peer:
        """Returns who is at the other end. `hello` is what this call says. Raises TurnedAway if the
        caller is no neighbor, means another cluster, has not said or proved who it is, or now
        claims to be another one."""
        peer = connection.peer
        if peer is not None and self._handles.get(peer.caller.cluster) != peer.neighbor:
            peer = None  # it is no neighbor any more, or one anew
        if peer is not None and (hello is None or hello == peer.hello):
            return peer
        if hello is None:
            raise TurnedAway("expected a neighbor that says which cluster it is")
        caller = read_hello(hello)[0]
        if peer is not None and caller == peer.caller:
            return peer
        neighbor = self.neighbor(caller)
        self._check_certified(caller, connection.certificate)
        if peer is None:
            connection.peer = peer = Peer(neighbor, caller, hello)
        elif neighbor != peer.neighbor:
            why = f"its connection is that of cluster {peer.caller.cluster}"
            raise self._turned_away_for(caller.cluster, why)
        return peer

    def neighbor(self, caller: Caller) -> int:
        """Returns the handle of the neighbor that this caller is. Raises TurnedAway if it is no
        neighbor, or means to call another cluster."""
        self._check_meant(caller)
        neighbor = self._handles.get(caller.cluster)
        if neighbor is None:
            why = f"cluster {self._own} has no link to {shortened(caller.cluster)!r}"
            raise self._turned_away_for(caller.cluster, why)
        return neighbor

    def _check_meant(self, caller: Caller) -> None:
        """Raise TurnedAway unless the caller means this node, and is of this federation."""
        if caller.to is not None and caller.to != self._own:
            why = f"it looks for cluster {shortened(caller.to)!r}, this is {self._own!r}"
        elif not self._is_same(caller.federation):
            there = shortened(caller.federation or "")
            why = f"federation: {self.federation!r} here, {there!r} there"
        else:
            return
        raise self._turned_away_for(caller.cluster, why)

    def _check_certified(self, caller: Caller, shown: PeerCertificate | None) -> None:
        """Raise TurnedAway unless the caller has proved to be this cluster, where proof is asked
        for."""
        if not self._is_secure:
            return
        name = certified_name(caller.cluster, self._topology.name)
        names = frozenset[str]() if shown is None else shown.names
        if name not in names:
            told = ", ".join(sorted(names)[:NAMES_TOLD_MAX]) or "none"
            why = f"expected a certificate for {name}, got {shortened(told)}"
            raise self._turned_away_for(caller.cluster, why)

    def member(self, connection: IncomingConnection, hello: bytes | None) -> str:
        """Returns the cluster of the caller, which need not be a neighbor. Raises TurnedAway if it
        is not of this federation, or does not mean this node."""
        caller = read_hello(hello or b"")[0]
        if not CLUSTER_ID.fullmatch(caller.cluster):
            raise TurnedAway("expected a node that says which cluster it is")
        self._check_meant(caller)
        self._check_certified(caller, connection.certificate)
        return caller.cluster

    def of_another_version(self, hello: bytes | None) -> None:
        """Put a call of a version that is not spoken here on record, unless the caller will find a
        version that both speak."""
        caller, versions = read_hello(hello or b"")
        if not set(versions) & set(protocol.VERSIONS):
            self._note(caller.cluster, protocol.difference(versions))

    def who_this_is(self) -> list[tuple[bytes, bytes]]:
        """Returns the headers of the answer to a caller that is turned away."""
        headers = [(CLUSTER_HEADER, self._own.encode())]
        if self.federation is not None:
            headers.append((FEDERATION_HEADER, quote(self.federation, safe=" ").encode()))
        headers.append((HEADER, self._configured.told.encode()))
        return headers

    def turned_away(self) -> dict[str, tuple[str, float]]:
        """Returns, by cluster, why it was turned away and how many seconds ago, for those that have
        asked lately."""
        now_s = time.monotonic()
        ages = {name: (one.why, now_s - one.at_s) for name, one in self._turned_away.items()}
        return {name: told for name, told in ages.items() if told[1] <= TURNED_AWAY_S}

    def _is_same(self, federation: str | None) -> bool:
        return federation is None or self.federation is None or federation == self.federation

    def _turned_away_for(self, cluster: str, why: str) -> TurnedAway:
        self._note(cluster, why)
        return TurnedAway(why)

    def _note(self, cluster: str, why: str) -> None:
        """Log once that a cluster was turned away, until it has not come for a while or comes for
        another reason."""
        if not CLUSTER_ID.fullmatch(cluster):
            return  # no node says that
        now_s = time.monotonic()
        last = self._turned_away.pop(cluster, None)
        self._turned_away[cluster] = Visit(why, now_s)
        if len(self._turned_away) > TURNED_AWAY_MAX:
            self._turned_away.popitem(last=False)
        if last is None or last.why != why or now_s - last.at_s > TURNED_AWAY_S:
            _callers_log.warning(Message("cluster turned away", peer=cluster, reason=why))
