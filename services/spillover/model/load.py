"""What a cluster tells its neighbors about itself, in reports and with all else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from spillover.model.ids import ClusterId


class LoadNow(NamedTuple):
    """What changes from one request to the next. It rides on forwards, answers and refusals: so
    what is known ages with the traffic, not with the period of the reports.

    It is numbered as the reports are, so that the newer of two is known however they came.
    """

    epoch: int
    sequence: int
    ahead: int
    """N less the idle servers: how many must end before a server is free for one more."""
    load: float
    """What the own clients bring, as a share of what the cluster can do."""
    accepting: bool


class GroupLoad(NamedTuple):
    """What a report says of one group of types (`type_groups`), where there are several: the same
    as of the whole cluster, of the servers that fit."""

    id: str
    accept_probability: float
    neighborhood_accept_probability: float
    servers: int
    accepting: bool
    ahead: int
    load: float
    departure_s: float
    residual: float


@dataclass(frozen=True, slots=True)
class LoadReport:
    """The state (P, R) of Lai & Polak, section II, with what the other policies need besides.

    `epoch` grows with each start of the sender and `sequence` with each report of one epoch, so
    that a report which overtook another is told from a newer one.
    """

    epoch: int
    sequence: int
    accept_probability: float
    neighborhood_accept_probability: float
    queue_length: int
    servers: int
    accepting: bool
    """False while draining or at the queue limit: a forward would be refused."""
    hears: tuple[ClusterId, ...] = ()
    """The neighbors that the sender hears. One that it does not hear cannot reach it either: what
    it sends is lost on a link that is cut in that direction only."""
    degraded: bool = False
    """Its work fails more than others': neighbors give it nothing, a probe aside where `accepting`
    says that it takes one."""
    failed_share: float = 0.0
    """Of the work that ended there lately, whosever it was."""
    least_failed: float | None = None
    """Of the work of its clients, the share that fails at the best place that it can reach, itself
    included; None from those that do not tell, or where nothing has failed."""
    relay_hops: int = 0
    """Of one that is degraded, or has no servers: how many hops from it a cluster is that does the
    work well, and is handed what comes. 0: none, or not told."""
    relay_by: str = ""
    """The neighbor by which alone that is reached; "" where there are several."""
    invites: bool = False
    """Of one that hands on: it takes a probe besides."""
    ahead: int | None = None
    """As of `LoadNow`; None from those that do not tell, and are not asked for work."""
    load: float = 0.0
    departure_s: float = 0.0
    """Mean service time by servers: how long the queue takes to become one shorter. 0: not told."""
    residual: float = 1.0
    """(1 + c2) / 2, c2 the squared coefficient of variation of service times: how much of a service
    is left, on average, of one under way."""
    groups: tuple[GroupLoad, ...] = ()
    """Those that the sender serves; none where all clusters are plain. One that is not there is
    not served."""
    configuration: str = ""
    """The stamp of what the sender goes by, as it is told; empty from those that do not tell."""
    clients: int | None = None
    """That have a session at the sender; None from those that do not tell."""
    passes: bool = False
    """Requests pass through it to a service as they are: it takes no others, and nobody else takes
    these."""
