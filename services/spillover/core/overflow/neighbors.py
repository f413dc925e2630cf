"""The knowledge of one cluster about its neighbors: the newest report of each, its age, whether it
lives.

Neighbors come and go. Each has a *handle*, a number that the table issues once when the neighbor
joins. A handle whose neighbor has left refers to nobody, even if the same cluster joins anew. Where
there are NEIGHBORS_MAX, no other can join.

A neighbor is *unknown* until it has reported, after its link has gone down, and after it has been
silent for longer than the limit. An unknown neighbor does not count as idle: it is not eligible for
a forward and is left out of R. The report of a neighbor that still gives signs of life only ages. A
neighbor that is heard but does not hear this cluster, over a link that is cut one way, accepts
nothing.

A neighbor that is *parted from* is still heard, and given nothing, as one that does not hear this
cluster. The same holds where requests pass through at one of the two and not at the other (decision
0043). A neighbor that joined with a *ramp* is given little at first: at its limit it is not
eligible for the moment.

Each has a *rank* as a place for work (`policy.overflow.degradation`): by what it says of itself,
and by how the own work ended that it was given. A *degraded* one is given nothing while there is a
better one; where it accepts all the same, it takes one probe for each of its reports. A neighbor
that fails own work, and says that it is well, is tried now and then.

Policies and decision records take `Knowledge`: a snapshot that is made anew only when something has
changed, so that a decision copies nothing and all records in between share one object. In it
neighbors stand close together, in the order in which they joined: by *position*, not by handle.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any

from spillover.core.overflow.knowledge import Knowledge, NeighborView
from spillover.core.overflow.neighbor import TRIAL_PAUSE_S, Neighbor
from spillover.model.ids import ClusterId
from spillover.model.load import LoadNow, LoadReport
from spillover.policy.overflow.base import NeighborLoads, neighborhood_reject_probability
from spillover.policy.overflow.degradation import BAD

NEIGHBORS_MAX = 1000
"""The largest number of neighbors after which none may join; more are there only from the start.
Why: each report names those that are heard, and no reader takes longer lists."""

_OF_LOADS = (
    *("reject_near", "queue_length", "way_s", "servers", "ahead"),
    *("load", "departure_s", "residual", "told_s"),
    *("overload", "sure_drain", "first_departure"),
)
"""The values of a row that policies are given, in the order of `NeighborLoads`."""

_OF_ROWS = (
    *("accept", "reported_s", "known", "accepting", "degraded", "invited", "free_only", "rank"),
    "sizes.limit_bytes",
    *_OF_LOADS,
)

_TOLD = attrgetter(*_OF_ROWS)
"""Returns all these values at once: where each message states the load, every second decision needs
them anew."""

_SENT = attrgetter("sent_s")

_NOTHING_TOLD: tuple[tuple[Any, ...], ...] = ((),) * len(_OF_ROWS)


class Neighbors:
    """The table of neighbors. It begins with those given, in that order, with handles from 0 on.

    `own` is the cluster itself, `delays_s` are the one-way delays of the links, `beat_s` the period
    of signs of life, and `period_s` that of reports. `passes` says that requests pass through the
    own cluster as they are.
    """

    def __init__(
        self,
        own: ClusterId,
        ids: Sequence[ClusterId],
        delays_s: Sequence[float],
        beat_s: float,
        period_s: float,
        passes: bool = False,  # noqa: FBT001, FBT002 - handed on by position
    ) -> None:
        self._own = own
        self._beat_s = beat_s
        self._period_s = period_s
        self._issued = 0
        self.by_handle: dict[int, Neighbor] = {}
        """Neighbors by handle, in the order in which they joined."""
        self.index: dict[ClusterId, int] = {}
        """Handles by id."""
        self.ids: tuple[ClusterId, ...] = ()
        """The ids of neighbors, by position."""
        self._passes = passes
        self.loads_count = True
        """Whether it counts what neighbors say between reports about accepting. The machine sets
        it."""
        self.known_now: Knowledge | None = None
        """The present knowledge; None if something has changed since `knowledge` was called."""
        self.next_silence_s = math.inf
        """The time when `expire` is to be called next."""
        for cluster, delay_s in zip(ids, delays_s, strict=True):
            self.join(cluster, delay_s)

    def __len__(self) -> int:
        return len(self.by_handle)

    def __iter__(self) -> Iterator[Neighbor]:
        """Yields all neighbors, in the order in which they joined."""
        return iter(self.by_handle.values())

    @property
    def known(self) -> list[bool]:
        """Returns which neighbors are known, by position."""
        return [neighbor.known for neighbor in self]

    @property
    def accepting(self) -> list[bool]:
        """Returns which neighbors are eligible for a forward, by position."""
        return [neighbor.accepting for neighbor in self]

    # --- who there is -------------------------------------------------------------------------

    def objection_to(self, cluster: ClusterId) -> str | None:
        """Returns why a cluster cannot join, in words; None if it can."""
        if cluster == self._own:
            return f"cluster {cluster} is no neighbor of its own"
        if cluster in self.index:
            return f"cluster {cluster} is a neighbor already"
        if len(self.by_handle) >= NEIGHBORS_MAX:
            return f"there are {NEIGHBORS_MAX} neighbors already, as many as there can be"
        return None

    def join(self, cluster: ClusterId, delay_s: float) -> int:
        """Take in a cluster to which there is no `objection_to`, and return its handle."""
        handle = self._issued
        self._issued += 1
        self.by_handle[handle] = Neighbor(handle, cluster, delay_s, self._beat_s)
        self._renumber()
        return handle

    def leave(self, handle: int) -> bool:
        """Take a neighbor out. Returns False if there was none. Holders of its row keep it, and it
        says that the neighbor is unknown."""
        neighbor = self.by_handle.pop(handle, None)
        if neighbor is None:
            return False
        neighbor.forget()
        neighbor.ramp_since_s, neighbor.held_back = None, False
        self._renumber()
        return True

    def part(self, handle: int, *, parting: bool) -> None:
        """Note that a neighbor is to leave, or to stay after all."""
        neighbor = self.by_handle[handle]
        neighbor.parting = parting
        if neighbor.known and neighbor.report is not None:
            self._believe(neighbor, neighbor.report)

    def use_delay(self, handle: int, delay_s: float) -> None:
        neighbor = self.by_handle[handle]
        neighbor.use_delay(delay_s, self._beat_s)
        if neighbor.known:
            self.next_silence_s = min(self.next_silence_s, neighbor.heard_s + neighbor.silence_s)
        self.known_now = None

    def pace(self, neighbor: Neighbor, now_s: float) -> None:
        """Hold a neighbor with a ramp back while it has as many requests as it may, as it was
        given one, has ended one, or was heard."""
        if neighbor.known and neighbor.ramp_since_s == math.inf:
            neighbor.ramp_since_s = now_s
        held_back = neighbor.ramp_is_full(now_s)
        if held_back is not neighbor.held_back:
            self.hold_back(neighbor.handle, held_back)

    def hold_back(self, handle: int, held_back: bool) -> None:  # noqa: FBT001
        self.by_handle[handle].hold_back(held_back)
        self.known_now = None

    def _renumber(self) -> None:
        self.index = {neighbor.id: neighbor.handle for neighbor in self}
        self.ids = tuple(self.index)
        self.known_now = None

    # --- what is known of them ----------------------------------------------------------------

    def knowledge(self) -> Knowledge:
        """Returns what is known now: the same object until something changes."""
        if self.known_now is None:
            rows = self.by_handle.values()
            columns = tuple(zip(*map(_TOLD, rows), strict=True)) if rows else _NOTHING_TOLD
            accept, reported_s, known, accepting, degraded, invited, free, *others = columns
            ranks, limits_bytes, *loads = others
            best = min([r for a, r in zip(accepting, ranks, strict=True) if a], default=math.inf)
            limit = best if best < BAD else -1.0
            asked = zip(accepting, ranks, invited, strict=True)
            takes = tuple(
                [(accepts and rank <= limit) or invited for accepts, rank, invited in asked]
            )
            unkeyed = takes
            if any(free):
                unkeyed = tuple([t and not f for t, f in zip(takes, free, strict=True)])
            self.known_now = Knowledge(
                self.ids,
                tuple(self.by_handle),
                NeighborLoads._make((*loads, self._period_s)),
                accept,
                reported_s,
                known,
                accepting,
                degraded,
                takes,
                unkeyed,
                ranks,
                best,
                limits_bytes if min(limits_bytes, default=math.inf) < math.inf else None,
            )
        return self.known_now

    def heard(self, handle: int, report: LoadReport | None, now_s: float) -> bool:
        """Take a sign of life from a neighbor, with a report or (None) without one. Returns whether
        the neighbor has become known by it; a neighbor that has left never does.

        A report of the same epoch that is not newer than the one held is a mere sign of life. A
        report of an earlier epoch is not even that while the neighbor lives, since it is about
        another life. After a silence any other epoch is taken, since a sender whose wall clock went
        back while it was down must not stay unheard for good.
        """
        if (neighbor := self.by_handle.get(handle)) is None:
            return False
        held, was_known = neighbor.report, neighbor.known
        if report is not None and held is not None:
            if report.epoch < held.epoch and was_known:
                return False
            if report.epoch == held.epoch and report.sequence <= held.sequence:
                report = None
        neighbor.heard_s = now_s
        self.next_silence_s = min(self.next_silence_s, now_s + neighbor.silence_s)
        if report is not None:
            neighbor.take_report(report, now_s)
            self._believe(neighbor, report)
        elif held is not None and not was_known:
            self._believe(neighbor, held)
        if neighbor.there.degraded and neighbor.try_again(now_s):
            self.known_now = None
        if neighbor.sizes.limited:
            neighbor.sizes.try_again(now_s)
            self.known_now = None
        if was_known or not neighbor.known:
            return False
        neighbor.away.counts_s = neighbor.away.known_s = now_s
        return True

    def heard_load(self, handle: int, load: LoadNow, now_s: float) -> None:
        """Take a load that came with another message than a report."""
        neighbor = self.by_handle.get(handle)
        if neighbor is not None and neighbor.take_load(load, now_s, self.loads_count):
            self.known_now = None

    def took(self, neighbor: Neighbor, way_s: float) -> None:
        """Note how long a request that a neighbor has answered was on its way there."""
        if neighbor.took(way_s):
            self.known_now = None

    def unreported(self) -> tuple[int, ...]:
        """Returns, by position, how many own requests a neighbor could not know of when it last
        told its load."""
        return tuple(map(len, map(_SENT, self.by_handle.values())))

    def sent(self, handle: int, now_s: float, size_bytes: int) -> None:
        """Note that a request is on its way there. If it is a probe, the next probe waits for
        another report."""
        neighbor = self.by_handle[handle]
        neighbor.sent_s.append(now_s)
        neighbor.trial_s = now_s + TRIAL_PAUSE_S
        if neighbor.sizes.limited:
            neighbor.sizes.sent(now_s, size_bytes)
            self.known_now = None
        if neighbor.invited:
            neighbor.invited = False
            self.known_now = None

    def lost(self, handle: int) -> bool:
        """Note that the link is down: the neighbor is unknown until it reports again. Returns
        whether it was known.

        Its last report is void, since it may come back as another life of the same cluster.
        """
        if (neighbor := self.by_handle.get(handle)) is None:
            return False
        was_known = neighbor.known
        self._forget(neighbor)
        neighbor.report = None
        return was_known

    def expire(self, now_s: float) -> list[int]:
        """Make the neighbors unknown that were silent for too long; returns their handles.

        Their last report is believed again at the next sign of life: only a pause, or the way, had
        kept them silent.
        """
        silent = []
        self.next_silence_s = math.inf
        for neighbor in self:
            if not neighbor.known:
                continue
            until_s = neighbor.heard_s + neighbor.silence_s
            if until_s <= now_s:
                self._forget(neighbor)
                silent.append(neighbor.handle)
            else:
                self.next_silence_s = min(self.next_silence_s, until_s)
        return silent

    def excuse(self, late_s: float) -> None:
        """Do not count this time as silence, since nobody here was listening."""
        for neighbor in self:
            neighbor.heard_s += late_s
            neighbor.away.counts_s = neighbor.heard_s
        self.next_silence_s += late_s

    def judged(self, neighbor: Neighbor, now_s: float) -> None:
        """Judge a neighbor anew, since work there has ended. A neighbor that is on trial and has
        done well is given one more request."""
        neighbor.judge()
        neighbor.trial_s = now_s + (0.0 if neighbor.there.run else TRIAL_PAUSE_S)
        if not neighbor.try_again(now_s):
            neighbor.invited = neighbor.invited and neighbor.degraded
        self.known_now = None

    def usual(self, now_s: float, but: Neighbor | None = None) -> float | None:
        """Returns the share of work that fails at the best neighbor that can be reached, except
        `but`; None where there is none."""
        shares = [one.usual(now_s) for one in self if one.hears_us and one is not but]
        return min(shares, default=None)

    def only_best(self) -> ClusterId | str:
        """Returns which of the neighbors that accept is the best place for work; an empty string if
        several are. A sender of work that is one of several is not the only way on."""
        known = self.knowledge()
        ranked = zip(known.ids, known.accepting, known.ranks, strict=True)
        best = [one for one, accepts, rank in ranked if accepts and rank == known.best]
        return best[0] if len(best) == 1 else ""

    @property
    def any_fails(self) -> bool:
        return any(neighbor.degraded for neighbor in self)

    def accept_probability_with(self, own: float) -> float:
        """Returns R: the probability that the cluster itself, which accepts with probability `own`,
        or a neighbor does."""
        accept = [neighbor.accept for neighbor in self]
        return 1.0 - neighborhood_reject_probability(own, accept, self.known)

    def heard_now(self) -> tuple[ClusterId, ...]:
        """Returns the neighbors that are known, for the reports: `LoadReport.hears`."""
        if all(self.known):
            return self.ids
        return tuple([neighbor.id for neighbor in self if neighbor.known])

    def view(self, now_s: float) -> list[NeighborView]:
        return [
            NeighborView(
                handle=neighbor.handle,
                id=neighbor.id,
                delay_s=neighbor.delay_s,
                way_s=neighbor.way_s,
                accept_probability=neighbor.accept,
                neighborhood_accept_probability=1.0 - neighbor.reject_near,
                queue_length=neighbor.queue_length,
                age_s=now_s - neighbor.reported_s if neighbor.reported_s > -math.inf else None,
                alive=neighbor.known,
                degraded=neighbor.degraded or neighbor.there.degraded,
                avoided=neighbor.avoided,
                missed=neighbor.away.missed,
                ahead=neighbor.ahead,
                load=neighbor.load,
                load_age_s=now_s - neighbor.told_s if neighbor.told_s > -math.inf else None,
            )
            for neighbor in self
        ]

    def check(self) -> None:
        assert len(self.index) == len(self.ids) == len(self.by_handle)
        for handle, row in self.by_handle.items():
            assert row.handle == handle == self.index[row.id] < self._issued, row.id
            assert row.known or not row.accepting, f"{row.id} unknown yet eligible"
            assert not (row.accepting and (row.parting or row.held_back)), row.id
            assert not row.known or row.report is not None, f"{row.id} never spoke"
            fails = row.degraded or row.there.degraded
            assert not row.invited or fails, f"{row.id} needs no probe"
            assert not row.known or self.next_silence_s < math.inf, "nobody watches for silence"

    def _believe(self, neighbor: Neighbor, report: LoadReport) -> None:
        hears_us = self._own in report.hears and report.passes is self._passes
        neighbor.believe(report, hears_us, self._own)
        self.known_now = None

    def _forget(self, neighbor: Neighbor) -> None:
        neighbor.forget()
        self.known_now = None
