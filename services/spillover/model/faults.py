"""Faults: what goes wrong in a federation, where and when. Values, checked against a topology.

Reading them from YAML is in `spillover.inputs.fault_file`; what they do is the simulator's
business (`spillover.sim.overflow.faults`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from spillover.model.errors import InputError
from spillover.model.ids import ClusterId
from spillover.model.limits import FINITE, Limit, above, at_least, check_limits, within
from spillover.model.topology import NOT_RUN_STATUSES, Topology
from spillover.model.unlike_servers import UnlikeServers

CLUSTER_ACTIONS = (
    *("crash", "restart", "pause", "resume", "slow", "clock", "failing", "down", "up"),
    *("swallows", "late", "hangs", "drain", "undrain"),
)
TOKEN_ACTIONS = ("tokens",)
LINK_ACTIONS = ("link", "cut", "heal")
FAULT_ACTIONS = CLUSTER_ACTIONS + TOKEN_ACTIONS + LINK_ACTIONS

OUT, IN = "out", "in"
"""Words of an operator for a server that is to take no new jobs, and for one that is to again."""

GIVEN_UP_AFTER_S = 5.0
"""A message that is due waits so many seconds for a cut link to heal, emulated and simulated alike:
so long does the kernel wait for an acknowledgment before it gives up a connection."""

FAILURE = Limit(
    "that is 429, or from 500 to 599",
    lambda status: status == 429 or (500 <= status <= 599 and status == int(status)),
)
"""The form of the status of a backend that fails."""

Direction: TypeAlias = tuple[ClusterId, ClusterId]
"""A direction of a link, from the first cluster to the second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFault:
    """`crash`: it loses all that it holds. `restart`: a new epoch begins, with nothing of the one
    before. `pause`, `resume`: it stands still, as a process that is stopped. `slow`: services take
    `factor` times as long. `clock`: its clock runs at `rate` from now on, and its wall clock is put
    forward by `offset_ms`. `failing`: a `share` of what starts fails after `fail_ms`, or after its
    service time if that is shorter; share 0 ends it. It fails as a backend that answers `status`
    does: 429 and 503 say that the work surely was not done, and to be left alone for
    `retry_after_ms`, if that is given. `down`: one server of a pool fails what it runs and cannot
    run anything, until it is `up`. `slow` and `failing` may be of one such server, too. `drain`: an
    operator drains it, until `undrain`, or a crash.

    By its reports it lives while one of the last three lasts. `swallows`: a `share` of the requests
    that neighbors hand it never arrives, as on a path that lets only small packets through, and
    their connections are given up as any on which nothing is acknowledged. `late`: it answers
    neighbors `late_ms` after it could. `hangs`: it takes a `share` of what neighbors hand it, and
    neither runs nor answers that; share 0 breaks the connections on which they wait.
    """

    at_s: Annotated[float, at_least(0)]
    """When it happens, from the start of the run. Times do not descend in a file."""
    action: str
    """What happens."""
    cluster: ClusterId
    """Where it happens."""
    server: str | None = None
    """Which server of a cluster whose servers are unlike; `down` and `up` need it.

    Why: what is not of one server is of all."""
    node: int | None = None
    """Which node of a cluster of several; in a file, `node: a/2` in place of the cluster.

    Why: what is not of one node is of all."""
    factor: Annotated[float, above(0)] = 1.0
    """How many times as long services take from now on; 1 is as usual.

    Why: 1 changes nothing."""
    rate: Annotated[float, within(0.1, 10)] = 1.0
    """How fast the cluster's clock runs from now on; 1 is right.

    Why: 1 changes nothing."""
    offset_ms: Annotated[float, FINITE] = 0.0
    """How far its wall clock is put forward; a negative number puts it back.

    Why: 0 changes nothing."""
    share: Annotated[float, within(0, 1)] = 0.0
    """Which part of what starts fails, or of what neighbors hand it is swallowed or hangs, from now
    on; 0 is none.

    Why: 0 changes nothing."""
    fail_ms: Annotated[float, at_least(0)] = 0.0
    """How long what fails takes to fail, unless its service time is shorter.

    Why: what is deployed badly mostly fails at once."""
    status: Annotated[float, FAILURE] = 500
    """How it fails: as a backend that answers with this status. 429 and 503 say that the work
    surely was not done.

    Why: the common answer of a program that failed."""
    retry_after_ms: Annotated[float, at_least(0)] = 0.0
    """How long a backend that answers 429 or 503 asks to be left alone; 0 asks for nothing.

    Why: most say nothing about it."""
    late_ms: Annotated[float, at_least(0)] = 0.0
    """How much later than it could it answers neighbors from now on.

    Why: 0 changes nothing."""

    def __post_init__(self) -> None:
        _check_numbers_and_action(self, CLUSTER_ACTIONS)

    @property
    def not_run(self) -> bool:
        """Returns whether what fails surely was not done."""
        return self.status in NOT_RUN_STATUSES


@dataclass(frozen=True, slots=True, kw_only=True)
class TokensFault:
    """`tokens`: an operator changes what a pool of unlike servers may do, as `PUT /admin/tokens`
    does. A crash forgets it."""

    at_s: Annotated[float, at_least(0)]
    """When it happens, from the start of the run. Times do not descend in a file."""
    action: str
    """What happens."""
    cluster: ClusterId
    """Where it happens."""
    classes: tuple[tuple[str, int], ...] = ()
    """How many tokens classes have from now on, at least 1, by their ids.

    Why: what is not given stays as it is."""
    servers: tuple[tuple[str, str], ...] = ()
    """Which servers take no new jobs from now on (`out`) or do again (`in`), by their ids.

    Why: what is not given stays as it is."""

    def __post_init__(self) -> None:
        _check_numbers_and_action(self, TOKEN_ACTIONS)
        for name, tokens in self.classes:
            if tokens < 1:
                expected = f"expected at least 1 token for {name}, got {tokens}"
                raise InputError("faults", "classes", expected)
        for name, said in self.servers:
            if said not in {OUT, IN}:
                raise InputError("faults", "servers", f"expected {OUT} or {IN} for {name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkFault:
    """`link` changes what is given, in the directions given; `cut` lets nothing through there, and
    `heal` makes all as the topology has it. Between two nodes of one cluster there are `cut` and
    `heal` alone (`between: [a/1, a/2]`): they do not hear each other.

    `delay_ms` replaces the topology's and up to `jitter_ms` come on top of it, evenly distributed.
    `loss`, `duplicate` and `reorder` are probabilities by message; the last two are of reports
    only, since all else travels in order on connections (see `sim.overflow.network`).
    """

    at_s: Annotated[float, at_least(0)]
    """When it happens, from the start of the run. Times do not descend in a file."""
    action: str
    """What happens."""
    directions: tuple[Direction, ...]
    """Which link: `between: [a, b]` for both directions, or `from: a` and `to: b` for one."""
    delay_ms: Annotated[float | None, at_least(0)] = None
    """What the link takes one way from now on, in place of the topology's value.

    Why: what is not given stays as it is."""
    jitter_ms: Annotated[float | None, at_least(0)] = None
    """Up to how much comes on top of the delay, evenly distributed.

    Why: what is not given stays as it is."""
    loss: Annotated[float | None, within(0, 1)] = None
    """The share of messages that get lost.

    Why: what is not given stays as it is."""
    duplicate: Annotated[float | None, within(0, 1)] = None
    """The share of reports that arrive twice.

    Why: what is not given stays as it is."""
    reorder: Annotated[float | None, within(0, 1)] = None
    """The share of reports that are overtaken by later ones.

    Why: what is not given stays as it is."""

    def __post_init__(self) -> None:
        _check_numbers_and_action(self, LINK_ACTIONS)


Fault: TypeAlias = ClusterFault | TokensFault | LinkFault


@dataclass(frozen=True, slots=True)
class FaultSchedule:
    """Faults in order of time. `name` is what users call it: a file, or `random:SEED`."""

    name: str
    faults: tuple[Fault, ...]

    def __len__(self) -> int:
        return len(self.faults)

    @property
    def last_s(self) -> float:
        """Returns when the last one happens; 0 without any."""
        return self.faults[-1].at_s if self.faults else 0.0

    def check(self, topology: Topology) -> None:
        """Raise InputError where it does not fit the topology, or itself: times that descend, a
        restart of what has not crashed, a resumption of what was not paused."""
        ids = set(topology.cluster_ids)
        pools = {cluster.id: cluster.pool for cluster in topology.clusters}
        nodes = {cluster.id: cluster.node_count for cluster in topology.clusters}
        links = {pair for link in topology.links for pair in (link.between, link.between[::-1])}
        before_s = 0.0
        condition: dict[str, str] = {}
        for index, fault in enumerate(self.faults):
            field = f"faults[{index}]"
            if fault.at_s < before_s:
                expected = f"expected times that do not descend, got {fault.at_s:g}"
                raise InputError(self.name, f"{field}.at_s", f"{expected} after {before_s:g}")
            before_s = fault.at_s
            if isinstance(fault, LinkFault):
                if not self._is_of_siblings(field, fault, nodes):
                    self._check_link(field, fault, ids, links)
                continue
            if fault.cluster not in ids:
                raise InputError(self.name, f"{field}.cluster", _expected_id(fault.cluster, ids))
            self._check_pool(field, fault, pools[fault.cluster])
            if isinstance(fault, ClusterFault):
                self._check_node(field, fault, nodes[fault.cluster])
                self._check_life(field, fault, nodes[fault.cluster], condition)

    def _check_pool(
        self, field: str, fault: ClusterFault | TokensFault, pool: UnlikeServers | None
    ) -> None:
        """Raise InputError where a fault names a server or class that is not there."""
        servers: Iterable[str]
        classes: Iterable[str] = ()
        if isinstance(fault, TokensFault):
            needed, of_servers = "classes", "servers"
            servers, classes = dict(fault.servers), dict(fault.classes)
        else:
            needed = of_servers = "server"
            servers = () if fault.server is None else (fault.server,)
            if not servers and fault.action not in {"down", "up"}:
                return
        if pool is None:
            expected = f"expected only of a cluster whose servers are unlike, {fault.cluster}'s"
            raise InputError(self.name, f"{field}.{needed}", f"{expected} are alike")
        if not servers and not classes:
            expected = f"expected with {fault.action}, the field is missing"
            raise InputError(self.name, f"{field}.{needed}", expected)
        self._check_ids(
            f"{field}.{of_servers}", "server", servers, [each.id for each in pool.servers]
        )
        self._check_ids(f"{field}.classes", "class", classes, [each.id for each in pool.classes])

    def _check_ids(self, field: str, what: str, given: Iterable[str], known: list[str]) -> None:
        for each in given:
            if each not in known:
                expected = f"expected a {what} of the cluster ({', '.join(known)}), got {each!r}"
                raise InputError(self.name, field, expected)

    def _check_node(self, field: str, fault: ClusterFault, nodes: int) -> None:
        if fault.node is not None and not 1 <= fault.node <= nodes:
            expected = f"expected a node of the cluster ({_node_names(fault.cluster, nodes)})"
            got = f"got {fault.cluster}/{fault.node}"
            raise InputError(self.name, f"{field}.node", f"{expected}, {got}")

    def _is_of_siblings(self, field: str, fault: LinkFault, nodes: dict[ClusterId, int]) -> bool:
        """Returns whether it is a cut between two nodes of one cluster. Raises InputError where it
        would be one, if they were there."""
        ends = [node_of(end) for end in fault.directions[0]]
        if not any(ends):
            return False
        named = [(one[0], one[1]) for one in ends if one is not None]
        are_siblings = len(named) == 2 and named[0][0] == named[1][0] and named[0] != named[1]
        if not are_siblings or len(fault.directions) != 2 or fault.action not in {"cut", "heal"}:
            expected = "expected nodes only where two of one cluster are cut off or healed"
            raise InputError(self.name, f"{field}.between", expected)
        for cluster, node in named:
            if not 1 <= node <= nodes.get(cluster, 0):
                known = _node_names(cluster, nodes.get(cluster, 0)) or "of a cluster"
                expected = f"expected a node ({known}), got {cluster}/{node}"
                raise InputError(self.name, f"{field}.between", expected)
        return True

    def _check_life(
        self, field: str, fault: ClusterFault, nodes: int, condition: dict[str, str]
    ) -> None:
        allowed, becomes = _LIFE.get(fault.action, ((), ""))
        if not becomes:
            return
        if fault.action in {"down", "up"}:
            whose, what = [f"server {fault.server} of {fault.cluster}"], "server"
        elif nodes == 1:
            whose, what = [str(fault.cluster)], "cluster"
        else:
            numbers = range(1, nodes + 1) if fault.node is None else (fault.node,)
            whose, what = [f"{fault.cluster}/{number}" for number in numbers], "node"
        for who in whose:
            now = condition.get(who, "up")
            if now not in allowed:
                expected = f"expected {fault.action} only of a {what} that is"
                expected += f" {' or '.join(allowed)}, {who} is {now}"
                raise InputError(self.name, f"{field}.action", expected)
            condition[who] = becomes

    def _check_link(
        self, field: str, fault: LinkFault, ids: set[ClusterId], links: set[Direction]
    ) -> None:
        for pair in fault.directions:
            names = ("between", "between") if len(fault.directions) > 1 else ("from", "to")
            for name, end in zip(names, pair, strict=True):
                if end not in ids:
                    raise InputError(self.name, f"{field}.{name}", _expected_id(end, ids))
            if pair not in links:
                expected = f"expected a link of the topology, got {pair[0]} and {pair[1]}"
                raise InputError(self.name, f"{field}.{names[0]}", f"{expected}, which have none")


_LIFE = {
    "crash": (("up", "paused"), "crashed"),
    "restart": (("crashed",), "up"),
    "pause": (("up",), "paused"),
    "resume": (("paused",), "up"),
    "down": (("up",), "down"),
    "up": (("down",), "up"),
}
"""The conditions in which an action makes sense, and the one that it leads to."""


def node_of(name: str) -> tuple[ClusterId, int] | None:
    """Returns the cluster and the number of a node that is named as `a/2`; None for other names."""
    cluster, slash, number = name.rpartition("/")
    if not (slash and number.isascii() and number.isdigit() and len(number) <= 2):
        return None
    return ClusterId(cluster), int(number)


def _node_names(cluster: str, nodes: int) -> str:
    return ", ".join(f"{cluster}/{number}" for number in range(1, nodes + 1))


def _expected_id(got: str, ids: set[ClusterId]) -> str:
    return f"expected a cluster id ({', '.join(sorted(ids))}), got {got!r}"


def _check_numbers_and_action(fault: Fault, actions: tuple[str, ...]) -> None:
    check_limits(fault, "faults")
    if fault.action not in actions:
        raise InputError("faults", "action", f"expected one of {', '.join(actions)}")
