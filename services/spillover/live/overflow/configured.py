"""The configuration that a node goes by, as it tells its neighbors and as they tell it theirs: the
stamps in reports, in the question for reports, and in the answer that turns a caller away.

What a configuration is, and what follows from a higher stamp, is not known here
(`core.membership`).
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
        """The stamp as reports state it; empty where it need not be stated."""
        self.superseded: Stamp | None = None
        """The stamp of a configuration that was taken here and lost."""
        self.removed = False
        """True where the cluster is no part of its federation any more."""
        self.on_higher: Callable[[str, Stamp], None] | None = None
        """Called with a cluster whose node goes by a higher stamp than this one, and with that
        stamp, each time that the node says so."""

    def go_by(self, stamp: Stamp) -> None:
        self.stamp = stamp
        self.told = self.reported = stamp.told

    def heard(self, cluster: str, told: str) -> None:
        """Take the stamp that the node of a cluster says it goes by."""
        if told == self.told or not told or self.on_higher is None:
            return
        stamp = Stamp.read(told)
        if stamp is not None and stamp > self.stamp:
            self.on_higher(cluster, stamp)
