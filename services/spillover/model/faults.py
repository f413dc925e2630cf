"""Faults: what goes wrong in a federation, where and when. Values, checked against a topology.

Reading them from YAML is in `spillover.inputs.fault_file`; what they do is the simulator's
business (`spillover.sim.overflow.faults`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeAlias

from spillover.model.errors import InputError
from spillover.model.ids import ClusterId
from spillover.model.limits import FINITE, Limit, above, at_least, check_limits, within
from spillover.model.topology import NOT_RUN_STATUSES, Topology

CLUSTER_ACTIONS = ("crash", "restart", "pause", "resume", "slow", "clock", "failing")
LINK_ACTIONS = ("link", "cut", "heal")
FAULT_ACTIONS = CLUSTER_ACTIONS + LINK_ACTIONS

GIVEN_UP_AFTER_S = 5.0
"""How long a message that is due waits for a cut link to heal, emulated and simulated alike: so
long does the kernel wait for what nobody acknowledges before it gives up a connection.
"""

FAILURE = Limit(
    "that is 429, or from 500 to 599",
    lambda status: status == 429 or (500 <= status <= 599 and status == int(status)),
)
"""What a status of a backend that fails must be."""

Direction: TypeAlias = tuple[ClusterId, ClusterId]
"""Of a link: from the first to the second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFault:
    """`crash`: it loses all that it holds. `restart`: a new epoch begins, with nothing of the one
    before. `pause`, `resume`: it stands still, as a process that is stopped. `slow`: services take
    `factor` times as long. `clock`: its clock runs at `rate` from now on, and its wall clock is put
    forward by `offset_ms`. `failing`: a `share` of what starts fails after `fail_ms`, or after its
    service time if that is shorter; share 0 ends it. It fails as a backend that answers `status`
    does: 429 and 503 say that the work surely was not done, and to be left alone for
    `retry_after_ms`, if that is given.
    """

    at_s: Annotated[float, at_least(0)]
    """When it happens, from the start of the run. Times do not descend in a file."""
    action: str
    """What happens."""
    cluster: ClusterId
    """Where it happens."""
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
    """Which part of what starts fails from now on; 0 is none.

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

    def __post_init__(self) -> None:
        _check_numbers_and_action(self, CLUSTER_ACTIONS)

    @property
    def not_run(self) -> bool:
        """Returns whether what fails surely was not done."""
        return self.status in NOT_RUN_STATUSES


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkFault:
    """`link` changes what is given, in the directions given; `cut` lets nothing through there, and
    `heal` makes all as the topology has it.

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


Fault: TypeAlias = ClusterFault | LinkFault


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
        links = {pair for link in topology.links for pair in (link.between, link.between[::-1])}
        before_s = 0.0
        condition = dict.fromkeys(ids, "up")
        for index, fault in enumerate(self.faults):
            field = f"faults[{index}]"
            if fault.at_s < before_s:
                expected = f"expected times that do not descend, got {fault.at_s:g}"
                raise InputError(self.name, f"{field}.at_s", f"{expected} after {before_s:g}")
            before_s = fault.at_s
            if isinstance(fault, ClusterFault):
                self._check_cluster(field, fault, condition)
            else:
                self._check_link(field, fault, ids, links)

    def _check_cluster(
        self, field: str, fault: ClusterFault, condition: dict[ClusterId, str]
    ) -> None:
        cluster = fault.cluster
        if cluster not in condition:
            raise InputError(self.name, f"{field}.cluster", _expected_id(cluster, set(condition)))
        allowed, becomes = _LIFE.get(fault.action, ((), ""))
        if not becomes:
            return
        if condition[cluster] not in allowed:
            expected = f"expected {fault.action} only of a cluster that is {' or '.join(allowed)}"
            raise InputError(
                self.name, f"{field}.action", f"{expected}, {cluster} is {condition[cluster]}"
            )
        condition[cluster] = becomes

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
}
"""Action to the conditions in which it makes sense, and the one that it leads to."""


def _expected_id(got: str, ids: set[ClusterId]) -> str:
    return f"expected a cluster id ({', '.join(sorted(ids))}), got {got!r}"


def _check_numbers_and_action(fault: Fault, actions: tuple[str, ...]) -> None:
    check_limits(fault, "faults")
    if fault.action not in actions:
        raise InputError("faults", "action", f"expected one of {', '.join(actions)}")
