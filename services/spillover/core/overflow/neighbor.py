"""One neighbor, and what is believed of it: its newest report, the newest load that it told, and
which own requests it cannot have known of then. `neighbors` has the table of all of them."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, cast

from spillover.core.overflow.sizes import Sizes
from spillover.core.overflow.standing import Standing
from spillover.model.ids import ClusterId
from spillover.model.load import LoadNow, LoadReport
from spillover.policy.overflow.degradation import BAD, degraded_rank
from spillover.policy.overflow.estimate import learned_way_s
from spillover.policy.overflow.ramp import RAMP_S, ramp_limit
from spillover.policy.overflow.report_terms import first_departure, overload, sure_drain

if TYPE_CHECKING:
    from spillover.core.overflow.visit import Visit

SILENCE_S_MAX = 1.0
"""The longest time, in seconds, for which a dead or cut-off neighbor stays known (design, decision
3), over links of up to 0.45 s. Over longer ones it is BEATS_MISSED_MIN signs of life and the link's
delay."""

SILENCE_MARGIN_S = 0.05
"""The part of that, in seconds, which is left for timers and a busy machine, so that the promise
above is kept and not just aimed at."""

BEATS_MISSED_MIN = 2
"""The number of signs of life that must be missing before a neighbor is unknown, however long the
link."""

TRIAL_PAUSE_S = 10.0
"""The time, in seconds, for which a neighbor that has failed own work, and says that it is well, is
given none. Then it gets one request at a time, until enough of them have succeeded in a row."""

FREE_TRIAL_PAUSE_S = 5.0
"""The pause, in seconds, before a trial with a request that may run twice: if it is lost, it is
decided again."""

SENDS_MAX = 1024
"""The largest number of own requests to one neighbor that are counted as not yet known to it."""


class Away(dict[int, "Visit"]):
    """The requests from here that one neighbor has, by ref, in the order in which they left."""

    def __init__(self) -> None:
        super().__init__()
        self.looked_s = -math.inf
        """The time of the last look for requests that are late."""
        self.counts_s = -math.inf
        """The time from which on lateness counts. Before, the neighbor was silent, or nobody
        listened here."""
        self.busy_s = -math.inf
        """The time when the neighbor last told that something waits there."""
        self.known_s = -math.inf
        """The time when the neighbor last became known: the loss of requests that left before says
        nothing of it."""
        self.came_back_s = -math.inf
        """The time when the neighbor last said anything of one of them."""
        self.missed = 0
        """The number of requests that it has lost, or answered too late."""


class Neighbor:
    """One neighbor, and what is believed of it."""

    degraded: bool
    failed_share: float
    """The share of work that failed there lately, as last reported."""
    least_failed: float
    """The share of its clients' work that fails at the best place that the work can reach, or at
    the next best if the best is this cluster."""
    relay_hops: int
    """The number of hops to a cluster that is well and to which the neighbor, being degraded, hands
    on what it is given."""
    leads_back: bool
    """True if that cluster is the own one."""
    invited: bool
    """True if the neighbor takes one probe: it is degraded, or fails own work."""
    rank: float

    def __init__(self, handle: int, cluster: ClusterId, delay_s: float, beat_s: float) -> None:
        self.handle = handle
        self.id = cluster
        self.use_delay(delay_s, beat_s)
        self.report: LoadReport | None = None
        """The newest report; None after the link has gone down."""
        self.epoch = -1
        """The epoch of the newest report, or of the last one before the link went down."""
        self.reported_s = -math.inf
        self.heard_s = -math.inf
        self.known = False
        self.hears_us = False
        self.willing = False
        """True if the neighbor accepts, by its last report or, where that counts, by another
        message."""
        self.said = 0
        """The number of the message that said so, as in `told`."""
        self.accepting = False
        """True if the neighbor is eligible for a forward: it is known, hears this cluster, neither
        drains nor is full, and is not held back."""
        self.away = Away()
        """The requests that are there from here and not answered yet."""
        self.ramp_since_s: float | None = None
        """The time since which the neighbor is given more and more; infinity before it was heard,
        None without a ramp."""
        self.held_back = False
        """True if the neighbor has as many requests as its ramp allows."""
        self.parting = False
        """True if the neighbor is to leave: its messages count, and it is given nothing."""
        self.accept = 0.0
        self.reject_near = 1.0
        self.queue_length = 0
        self.there, self.sizes = Standing(), Sizes()
        """The ends of work that the neighbor got from here, and the size up to which requests come
        back. The tables of all groups of types share it."""
        self.trial_s = 0.0
        """The time when a degraded neighbor is tried next, by whatever means."""
        self.free_only = False
        """True if, until then, only requests that may run twice are tried."""
        self._tell_no_failures()
        self.serves = True
        """True if the neighbor serves the group whose table this row is in."""
        self.servers = 1
        self.ahead = 0
        self.load = 0.0
        self.departure_s = 0.0
        self.residual = 1.0
        self._work_out()
        self.told = 0
        """The number of the message that told `ahead` and `load`, within the report's epoch."""
        self.told_s = -math.inf
        """The time when that message came."""
        self.sent_s: deque[float] = deque(maxlen=SENDS_MAX)
        """The times when own requests left that the neighbor could not know of by then, oldest
        first."""

    def use_delay(self, delay_s: float, beat_s: float) -> None:
        self.delay_s = delay_s
        """The one-way delay of the link, in seconds."""
        self.way_s = delay_s
        """The time, in seconds, that a request takes there: the delay, until some were answered."""
        self._way_mean_s: float | None = None
        self.silence_s = max(BEATS_MISSED_MIN * beat_s, SILENCE_S_MAX - SILENCE_MARGIN_S - delay_s)
        """The longest time, in seconds, for which the neighbor may be silent."""

    def ramp_is_full(self, now_s: float) -> bool:
        """Returns whether the neighbor has as many requests as its ramp allows; ends a ramp that is
        over."""
        since_s = cast("float", self.ramp_since_s)
        if now_s >= since_s + RAMP_S:
            self.ramp_since_s = None
            return False
        return len(self.away) >= ramp_limit(self.servers, now_s - since_s)

    def hold_back(self, held_back: bool) -> None:  # noqa: FBT001
        self.held_back = held_back
        self._take_it_at_its_word()

    def _take_it_at_its_word(self) -> None:
        self.accepting = self.willing and self.hears_us and not self.held_back
        self.invited = self.invited and self.accepting
        if self.leads_back and not self.invited:
            self.accepting = False

    def judge(self) -> None:
        """Judge anew how good a place for work the neighbor is (`policy.overflow.degradation`), as
        it has said something, or work there has ended."""
        self.rank = 0.0
        self.free_only = self.free_only and self.there.degraded
        if self.there.degraded:
            self.rank = degraded_rank(self.there.share.last, 0)
        elif self.degraded:
            self.rank = degraded_rank(self.failed_share, self.relay_hops)

    def try_again(self, now_s: float) -> bool:
        """Returns whether the neighbor is invited from now on to be tried, which it was not
        before."""
        early_s = self.trial_s - (TRIAL_PAUSE_S - FREE_TRIAL_PAUSE_S)
        due = self.there.degraded and not self.degraded and now_s >= early_s
        free_only = now_s < self.trial_s
        if not due or not self.accepting or (self.invited and self.free_only is free_only):
            return False
        self.invited, self.free_only = True, free_only
        return True

    def usual(self, now_s: float) -> float:
        """Returns the share of work that is believed to fail there, or at a better place to which
        the neighbor says it can hand on."""
        there = self.there.failed_share(now_s)
        has_better = self.least_failed < self.failed_share
        if self.rank >= BAD and not (self.leads_back and has_better):
            return max(there, self.failed_share)
        return min(there, self.least_failed) if has_better else there

    @property
    def avoided(self) -> bool:
        """Returns whether the neighbor speaks, and is given nothing because of how work from here
        ended."""
        return self.known and self.there.degraded

    @property
    def tells_load(self) -> bool:
        """Returns whether the neighbor tells what is needed to ask it for work."""
        return self.report is not None and self.report.ahead is not None

    def took(self, way_s: float) -> bool:
        """Note how long a request was on its way there. Returns whether the way differs from what
        was believed."""
        mean_s, told_s = self._way_mean_s, self.way_s
        if mean_s is None:
            mean_s = max(0.0, way_s)
        self._way_mean_s, self.way_s = learned_way_s(mean_s, told_s, way_s)
        return self.way_s != told_s

    def take_report(self, report: LoadReport, now_s: float) -> None:
        """Take a report, which is newer than the one held."""
        is_another_life = self.report is None or self.report.epoch != report.epoch
        if report.epoch != self.epoch:
            self.epoch = report.epoch
            self.there.acquit()
            self.sizes.acquit()
        elif self.report is None:
            self.trial_s = now_s  # the way there may be another
            self.sizes.try_at_once(now_s)
        self.report = report
        self.reported_s = now_s
        self.queue_length = report.queue_length
        self.servers = max(1, report.servers)
        self.departure_s = report.departure_s
        self.residual = report.residual
        if is_another_life or report.sequence > self.said:
            self.said, self.willing = report.sequence, report.accepting
        if is_another_life or report.sequence > self.told:
            ahead = report.queue_length if report.ahead is None else report.ahead
            self._take_load(report.sequence, ahead, report.load, now_s)
        self._work_out()

    def take_load(self, load: LoadNow, now_s: float, counts: bool) -> bool:  # noqa: FBT001
        """Take the load that another message than a report has brought. Returns whether it is news.
        `counts` says whether its word on accepting counts, too."""
        held = self.report
        if held is None or load.epoch != held.epoch or load.sequence <= self.told:
            return False
        self._take_load(load.sequence, load.ahead, load.load, now_s)
        self._work_out()
        if counts:
            self.said, self.willing = load.sequence, load.accepting
            self._take_it_at_its_word()
        return True

    def _take_load(self, number: int, ahead: int, load: float, now_s: float) -> None:
        self.told, self.told_s = number, now_s
        if ahead > 0 or self.ahead > 0:
            self.away.busy_s = now_s
        self.ahead, self.load = ahead, load
        sent_s, unknown_s = self.sent_s, now_s - 2.0 * self.way_s
        while sent_s and sent_s[0] <= unknown_s:
            sent_s.popleft()

    def _work_out(self) -> None:
        """Work out the terms of `adaptive`, once for all choices until there is a newer report."""
        load = self.load
        self.overload = overload(load)
        self.sure_drain = sure_drain(load)
        self.first_departure = first_departure(self.residual, load, self.servers)

    def believe(self, report: LoadReport, hears_us: bool, own: ClusterId) -> None:  # noqa: FBT001
        """Believe a report. A neighbor that does not hear this cluster accepts nothing from it,
        whatever it says of itself; nor does one that is parted from."""
        hears_us = hears_us and not self.parting
        self.known = True
        self.hears_us = hears_us
        self.accept = report.accept_probability if hears_us else 0.0
        near = report.neighborhood_accept_probability if hears_us else 0.0
        self.reject_near = 1.0 - near
        self.failed_share = report.failed_share
        self.leads_back = report.relay_by == own
        told = report.next_failed if self.leads_back else report.least_failed
        self.least_failed = report.failed_share if told is None else told
        does = self.degraded, self.relay_hops > 0
        self.degraded = report.degraded
        self.relay_hops = 0 if self.leads_back else report.relay_hops
        if does != (self.degraded, self.relay_hops > 0):
            self.there.acquit()  # it has found out by itself, and does something else with work
        self.invited = report.degraded and (report.invites or not report.relay_hops)
        self.free_only = False
        self._take_it_at_its_word()
        self.judge()

    def forget(self) -> None:
        self.known = self.hears_us = self.accepting = False
        self._tell_no_failures()

    def _tell_no_failures(self) -> None:
        self.degraded = self.leads_back = self.invited = False
        self.failed_share = self.least_failed = 0.0
        self.relay_hops = 0
        self.judge()
