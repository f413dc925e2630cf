"""What a node says to its neighbors of the configuration that it goes by, and hears of theirs: the
stamps, in reports, in the question for reports, and in the answer that turns one away.

What a configuration is, and what comes of a higher stamp, is not known here (`core.membership`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from spillover.model.configuration import Stamp

HEADER: Final = b"spillover-configuration"
"""The header of an answer that turns a neighbor away: the stamp of the node that it has come to."""

FIELD: Final = "configuration"
"""The field of a question for reports with the stamp of the node that asks."""


class Configured:
    """The configuration of one node, as reports and answers name it."""

    def __init__(self, stamp: Stamp = Stamp(0)) -> None:  # noqa: B008 - a tuple
        self.stamp = stamp
        self.told = stamp.told
        self.reported = self.told if stamp.version else ""
        """The same in reports, which need not say what all know."""
        self.superseded: Stamp | None = None
        """The stamp of a configuration that was taken here and lost."""
        self.removed = False
        """True where the cluster is no part of its federation any more."""
        self.on_higher: Callable[[str, Stamp], None] | None = None
        """Is called with the cluster whose node goes by a higher stamp than this, and with that
        stamp, each time that it says so."""

    def go_by(self, stamp: Stamp) -> None:
        """Tell neighbors this from now on."""
        self.stamp = stamp
        self.told = self.reported = stamp.told

    def heard(self, cluster: str, told: str) -> None:
        """The node of a cluster says that it goes by this."""
        if told == self.told or not told or self.on_higher is None:
            return
        stamp = Stamp.read(told)
        if stamp is not None and stamp > self.stamp:
            self.on_higher(cluster, stamp)
