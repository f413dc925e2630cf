"""The load that a cluster reports to its neighbors, alone and along with all other messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from spillover.model.affinity import PlaceLoad
from spillover.model.ids import ClusterId


class LoadNow(NamedTuple):
    """The part of a load that changes from one request to the next. It rides on forwards, answers
    and refusals: so it ages with the traffic, not with the period of the reports. It is numbered as
    the reports are, so that the newer of two is known however they came.
    """

    epoch: int
    sequence: int
    ahead: int
    """N less the idle servers: so many services must end before a server is free for one more."""
    load: float
    """The work that the own clients bring, as a share of the cluster's capacity."""
    accepting: bool


class GroupLoad(NamedTuple):
    """The part of a report on one group of types (`type_groups`), where there are several: it has
    the fields of the whole cluster, for the servers that fit."""

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
    """False while the cluster drains or is at its queue limit: it would refuse a forward."""
    hears: tuple[ClusterId, ...] = ()
    """The neighbors that the sender hears. One that it does not hear cannot reach it either: the
    link is cut in that direction only, and loses what that neighbor sends."""
    degraded: bool = False
    """True where its work fails more than others': neighbors give it nothing, a probe aside where
    `accepting` says that it takes one."""
    failed_share: float = 0.0
    """The share of work that failed lately there, whichever cluster's it was."""
    least_failed: float | None = None
    """The share of its clients' work that fails at the best place that it can reach, itself
    included; None in reports without it, or where nothing has failed."""
    next_failed: float | None = None
    """The same without `relay_by`, which wants to know whether it must do all the work; None where
    there is none."""
    relay_hops: int = 0
    """The number of hops from a cluster that is degraded, or has no servers, to one that does the
    work well and gets its requests. 0 is none, or not reported."""
    relay_by: str = ""
    """The neighbor by which that one is reached, if it is only one."""
    invites: bool = False
    """True where a cluster that hands on takes a probe besides."""
    ahead: int | None = None
    """The `ahead` of `LoadNow`; None in reports without it, whose senders are not asked for
    work."""
    load: float = 0.0
    departure_s: float = 0.0
    """The mean service time by servers: the queue becomes one shorter in this time. 0 is not
    reported."""
    residual: float = 1.0
    """(1 + c2) / 2, where c2 is the squared coefficient of variation of service times: the share of
    a service that is left, on average, while it is under way."""
    groups: tuple[GroupLoad, ...] = ()
    """The groups that the sender serves, and no others; none where all clusters are plain."""
    configuration: str = ""
    """The stamp of the sender's configuration, as text; empty in reports without it."""
    clients: int | None = None
    """The number of clients with a session at the sender; None in reports without it."""
    passes: bool = False
    """True where requests pass through it to a service as they are: it takes no others, and no
    other cluster takes these."""
    places: tuple[PlaceLoad, ...] = ()
    """The places behind its handler, where its requests have affinity; none in reports without
    them."""
