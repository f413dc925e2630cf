"""The rule which load reports a node need not say again, since its neighbors have heard as much. It
is pure: it is told the time, and knows nothing of streams.

A report in each period is the rule (Lai & Polak, section II), and the machine makes one. At rest
they are all alike, and saying them is most of what an idle node does. So a report that only repeats
what was said SAID_TIMES times is said no more often than signs of life are due. TCP loses none of
them; over a link that is made to lose some, all are said (`report_streams`).
"""

from __future__ import annotations

import math
from dataclasses import replace

from spillover.core.overflow.reporting import HEARTBEAT_S
from spillover.model.load import LoadReport

SAID_TIMES = 3
"""The number of times in a row that the same report is said at its period. A reader that has just
no room drops lines."""


class Repeats:
    """The repeats of one node's reports, which are `period_s` apart."""

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s
        self._content: LoadReport | None = None
        self._times = 0
        """The number of times that this content was said since it changed, or since somebody new
        listens."""
        self._said_s = -math.inf

    def is_due(self, report: LoadReport, now_s: float) -> bool:
        """Returns whether to say this report, which is then taken as said."""
        content = replace(report, sequence=0)
        if content != self._content:
            self._content = content
            self._times = 0
        elif self._times >= SAID_TIMES and now_s + self._period_s <= self._said_s + HEARTBEAT_S:
            return False  # the next one comes early enough
        self._times += 1
        self._said_s = now_s
        return True

    def start_over(self) -> None:
        """Begin anew, since somebody may not have heard what was said."""
        self._times = 0
