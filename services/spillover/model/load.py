"""What a cluster tells its neighbors about itself."""

from __future__ import annotations

from dataclasses import dataclass

from spillover.model.ids import ClusterId


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
