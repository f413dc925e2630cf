"""What one cluster knows of its neighbors: the newest report of each, its age, whether it lives.

A neighbor is *unknown* until it has reported, after its link has gone down, and after it has been
silent for longer than the limit. Unknown is never idle: it is not eligible for a forward and is
left out of R. An old report of a neighbor that still gives signs of life only ages. A neighbor that
is heard but does not hear us, over a link that is cut one way, accepts nothing.

A *degraded* neighbor is given nothing either; where it accepts all the same, it takes one probe for
each of its reports.

Policies and decision records take `Knowledge`: a snapshot that is made anew only when something
has changed, so that a decision copies nothing and all records in between share one object.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from spillover.model.ids import ClusterId
from spillover.model.load import LoadReport
from spillover.policy.overflow.base import NeighborLoads, neighborhood_reject_probability

SILENCE_S_MAX = 1.0
"""A dead or cut-off neighbor is unknown within this time (design, decision 3), over links of up to
0.45 s; over longer ones within BEATS_MISSED_MIN signs of life and the link's delay."""

SILENCE_MARGIN_S = 0.05
"""Left for timers and a busy machine, so that the promise above is kept and not just aimed at."""

BEATS_MISSED_MIN = 2
"""However long the link, this many signs of life must be missing before a neighbor is unknown."""


@dataclass(frozen=True, slots=True)
class Knowledge:
    """All that was known of the neighbors at one instant, by index. Never changes once made."""

    loads: NeighborLoads
    """What policies are given."""
    accept: tuple[float, ...]
    reported_s: tuple[float, ...]
    known: tuple[bool, ...]
    accepting: tuple[bool, ...]
    degraded: tuple[bool, ...]
    takes: tuple[bool, ...]
    """Who may be given work by a cluster that is well: accepts and is not degraded, or takes a
    probe."""
    any_well: bool
    """Whether any neighbor accepts that is not degraded."""


@dataclass(slots=True)
class NeighborView:
    """One row of /state: what is believed of a neighbor, and how old that is."""

    id: ClusterId
    accept_probability: float
    neighborhood_accept_probability: float
    queue_length: int
    age_s: float | None
    alive: bool
    degraded: bool = False


class Neighbors:
    """The table of neighbors, by index in the order given.

    `own` is the cluster itself, `delays_s` are the one-way delays of the links and `beat_s` the
    period of signs of life.
    """

    def __init__(
        self, own: ClusterId, ids: Sequence[ClusterId], delays_s: Sequence[float], beat_s: float
    ) -> None:
        count = len(ids)
        self._own = own
        self.ids = tuple(ids)
        self.delays_s = list(delays_s)
        self.index = {cluster: y for y, cluster in enumerate(ids)}
        self.known = [False] * count
        self.accepting = [False] * count
        """known, hears us, and neither draining nor full: what is eligible for a forward."""
        self.accept = [0.0] * count
        self.reject_near = [1.0] * count
        self.queue_length = [0] * count
        self.reported_s = [-math.inf] * count
        self.degraded = [False] * count
        self.failed_share = [0.0] * count
        """Of the work that ended there lately, as last reported."""
        self._invited = [False] * count
        """degraded, and takes one probe."""
        self._knowledge: Knowledge | None = None
        self._heard_s = [-math.inf] * count
        self._report: list[LoadReport | None] = [None] * count
        self._silence_s = [
            max(BEATS_MISSED_MIN * beat_s, SILENCE_S_MAX - SILENCE_MARGIN_S - delay)
            for delay in delays_s
        ]
        self.next_silence_s = math.inf
        """When to call `expire` next."""

    def __len__(self) -> int:
        return len(self.ids)

    def knowledge(self) -> Knowledge:
        """Returns what is known now: the same object until something changes."""
        if self._knowledge is None:
            well = [a and not d for a, d in zip(self.accepting, self.degraded, strict=True)]
            self._knowledge = Knowledge(
                NeighborLoads(
                    tuple(self.reject_near), tuple(self.queue_length), tuple(self.delays_s)
                ),
                tuple(self.accept),
                tuple(self.reported_s),
                tuple(self.known),
                tuple(self.accepting),
                tuple(self.degraded),
                tuple([w or i for w, i in zip(well, self._invited, strict=True)]),
                any(well),
            )
        return self._knowledge

    def heard(self, y: int, report: LoadReport | None, now_s: float) -> bool:
        """Takes a sign of life from neighbor y, with a report or (None) without one, and returns
        whether it has become known by it.

        A report of the same epoch that is not newer than the one held is a sign of life, no more.
        One of an earlier epoch is not even that while y lives: it tells of another life. After a
        silence any other epoch is taken, since a sender whose wall clock went back while it was
        down must not stay unheard for good.
        """
        held, was_known = self._report[y], self.known[y]
        if report is not None and held is not None:
            if report.epoch < held.epoch and was_known:
                return False
            if report.epoch == held.epoch and report.sequence <= held.sequence:
                report = None
        self._heard_s[y] = now_s
        self.next_silence_s = min(self.next_silence_s, now_s + self._silence_s[y])
        if report is not None:
            self._adopt(y, report, now_s)
        elif held is not None and not was_known:
            self._believe(y, held)
        return self.known[y] and not was_known

    def probe(self, y: int) -> None:
        """One request is on its way to y: the next one waits for another report."""
        if self._invited[y]:
            self._invited[y] = False
            self._knowledge = None

    def lost(self, y: int) -> bool:
        """Takes note that the link to y is down, and returns whether y was known: it is unknown
        until it reports again.

        What it said before is void, since it may come back as another life of the same cluster.
        """
        was_known = self.known[y]
        self._forget(y)
        self._report[y] = None
        return was_known

    def expire(self, now_s: float) -> list[int]:
        """Make the neighbors unknown that were silent for too long; their indices.

        Their last report is believed again at the next sign of life: it was a pause, or the way.
        """
        silent = []
        self.next_silence_s = math.inf
        for y in range(len(self.ids)):
            if not self.known[y]:
                continue
            until_s = self._heard_s[y] + self._silence_s[y]
            if until_s <= now_s:
                self._forget(y)
                silent.append(y)
            else:
                self.next_silence_s = min(self.next_silence_s, until_s)
        return silent

    def excuse(self, late_s: float) -> None:
        """Do not count this time as silence: nobody here was listening."""
        for y in range(len(self.ids)):
            self._heard_s[y] += late_s
        self.next_silence_s += late_s

    def accept_probability_with(self, own: float) -> float:
        """R: that the cluster itself, which accepts with probability `own`, or a neighbor does."""
        return 1.0 - neighborhood_reject_probability(own, self.accept, self.known)

    def heard_now(self) -> tuple[ClusterId, ...]:
        """Returns the neighbors that are known, for the reports: `LoadReport.hears`."""
        if all(self.known):
            return self.ids
        return tuple([y for y, known in zip(self.ids, self.known, strict=True) if known])

    def view(self, now_s: float) -> list[NeighborView]:
        return [
            NeighborView(
                id=cluster,
                accept_probability=self.accept[y],
                neighborhood_accept_probability=1.0 - self.reject_near[y],
                queue_length=self.queue_length[y],
                age_s=now_s - self.reported_s[y] if self.reported_s[y] > -math.inf else None,
                alive=self.known[y],
                degraded=self.degraded[y],
            )
            for y, cluster in enumerate(self.ids)
        ]

    def check(self) -> None:
        for y in range(len(self.ids)):
            assert self.known[y] or not self.accepting[y], f"{self.ids[y]} unknown yet eligible"
            assert not self.known[y] or self._report[y] is not None, f"{self.ids[y]} never spoke"
            assert not self._invited[y] or self.degraded[y], f"{self.ids[y]} needs no probe"
            assert not self.known[y] or self.next_silence_s < math.inf, "nobody watches for silence"

    def _adopt(self, y: int, report: LoadReport, now_s: float) -> None:
        self._report[y] = report
        self.reported_s[y] = now_s
        self.queue_length[y] = report.queue_length
        self._believe(y, report)

    def _believe(self, y: int, report: LoadReport) -> None:
        """One that does not hear us accepts nothing from us, whatever it says of itself."""
        hears_us = self._own in report.hears
        self.known[y] = True
        self.accepting[y] = report.accepting and hears_us
        self.accept[y] = report.accept_probability if hears_us else 0.0
        near = report.neighborhood_accept_probability if hears_us else 0.0
        self.reject_near[y] = 1.0 - near
        self.degraded[y] = report.degraded
        self.failed_share[y] = report.failed_share
        self._invited[y] = report.degraded and self.accepting[y]
        self._knowledge = None

    def _forget(self, y: int) -> None:
        self.known[y] = self.accepting[y] = self.degraded[y] = self._invited[y] = False
        self.failed_share[y] = 0.0
        self._knowledge = None
