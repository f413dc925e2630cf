"""The choice whether a request leaves its home for a place at a neighbor that costs less, by what
neighbors have told of their places. Which of its places then runs the request is the neighbor's own
choice.

The home notes at once where it expects a session to run, since the next turn may come before this
one is answered; the answer corrects that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from spillover.core.affinity.memory import Claim, SessionMemory
from spillover.core.affinity.places import SESSIONS
from spillover.model.affinity import PLACES_MAX, PlaceLoad, RanAt, SessionWork
from spillover.policy.affinity import cost_s, miss_weight

LIVES = 1024
"""The number of lives of neighbors that have numbers: more than there can be neighbors. The numbers
of their places have 16 bits."""
SENT_MAX = 1024
"""The most requests to one neighbor that are remembered until the neighbor must know of them."""


Near: TypeAlias = tuple[int, float, float]
"""A neighbor that a request may go to: its handle; the time there and back, in seconds; and the
wait there, in seconds, until a server takes it, before it goes to a place."""


class Away(NamedTuple):
    """A place at a neighbor at which a request is expected to run."""

    neighbor: int
    place: int
    """The number of the place among all places of neighbors."""
    missing: float
    """The work that the request is expected to do there."""
    cost_s: float


class Expected(NamedTuple):
    """A request that was handed on: where it is expected to run, and on which memory that is
    based."""

    place: int
    claim: Claim | None


class _Site:
    """One life of a neighbor."""

    def __init__(self, epoch: int, block: int) -> None:
        self.epoch = epoch
        self.block = block
        """The number of this life among those of neighbors. Each has PLACES_MAX numbers of
        places."""
        self.first = block * PLACES_MAX
        """The number of the site's first place."""
        self._loads: Sequence[PlaceLoad] = ()
        self._sent: deque[tuple[float, int, float]] = deque(maxlen=SENT_MAX)
        """The requests to each place of which the site cannot have known when it last told: when
        they left, where to, and their work."""
        self._unreported: list[float] = []
        self.busy = 0.0
        """The sum of the busy shares of the site's places."""
        self.places = self.freest = 0
        """The number of places, and the index of the one with the least wait. All places of a site
        are taken to be as fast as each other."""
        self.wait = self.work_per_s = 0.0
        """The wait and the work per second of that place."""

    def heard(self, loads: Sequence[PlaceLoad], before_s: float) -> None:
        """Take the loads of the places, as told by the site when it knew of all that left before
        this time."""
        sent = self._sent
        while sent and sent[0][0] <= before_s:
            sent.popleft()
        self._loads, self.places = loads, len(loads)
        self.busy = sum([one.busy for one in loads])
        self._unreported = [0.0] * self.places
        for _, place, work in sent:
            self._unreported[place] += work
        self._find_freest()

    def sent(self, place: int, work: float, now_s: float) -> None:
        self._sent.append((now_s, place, work))
        self._unreported[place] += work
        self._find_freest()

    def told(self, place: int) -> tuple[float, float, float]:
        """Returns the wait in work, the work per second and the work taken on, including what was
        sent since."""
        load, sent = self._loads[place], self._unreported[place]
        return load.wait + sent, load.work_per_s, load.taken + sent

    def _find_freest(self) -> None:
        waits = [one.wait + sent for one, sent in zip(self._loads, self._unreported, strict=True)]
        self.wait = min(waits)
        self.freest = waits.index(self.wait)
        self.work_per_s = self._loads[self.freest].work_per_s


class _Rows(NamedTuple):
    """The neighbors that tell of their places among those that a request may go to."""

    near: Sequence[Near] | None
    sites: Sequence[tuple[_Site, int, float, float]]
    """Each with what `Near` says of it."""
    busy: float
    """The sum of the busy shares of all their places."""
    places: int
    by_block: Mapping[int, tuple[_Site, int, float, float]]
    """The same by the numbers of their lives."""


_NO_ROWS = _Rows(None, (), 0.0, 0, {})


class Sites:
    """The neighbors of one site that tell of their places, by their handles, and which sessions ran
    there. A request carries its work, and what the home knows of its own places."""

    def __init__(self, sessions: int = SESSIONS) -> None:
        self._memory = SessionMemory(sessions)
        self._sites: dict[int, _Site] = {}
        self._lives = 0
        self._rows = _NO_ROWS
        """What the last choice was made among; the next one mostly is made among the same."""
        self.kept: Any = None
        """What the caller has found the last `near` by; while that is the same it may pass the
        same list, which is looked through once."""

    def heard(self, neighbor: int, epoch: int, loads: Sequence[PlaceLoad], before_s: float) -> None:
        """Take the loads of a neighbor's places. It knew of all that left here before `before_s`.
        Runs in an earlier life of it, or while it had other places, are of no use."""
        self._rows = _NO_ROWS
        if not loads:
            self._sites.pop(neighbor, None)
            return
        site = self._sites.get(neighbor)
        if site is None or site.epoch != epoch or site.places != len(loads):
            site = self._sites[neighbor] = _Site(epoch, self._free_block())
        site.heard(loads, before_s)

    def _free_block(self) -> int:
        """Returns the number of a new life: the one that has not been given for longest among those
        that no neighbor lives by now. One that starts again and again must not get another's."""
        taken = {site.block for site in self._sites.values()}
        while (block := self._lives % LIVES) in taken:
            self._lives += 1
        self._lives += 1
        return block

    def left(self, neighbor: int) -> None:
        self._rows = _NO_ROWS
        self._sites.pop(neighbor, None)

    def cheaper(self, asked: SessionWork, near: Sequence[Near], queue_s: float) -> Away | None:
        """Returns the place at one of these neighbors that costs least, if it costs less than each
        place here; None where none does, or too little is known. `queue_s` is the wait here until a
        server takes the request."""
        rows = self._rows
        if rows.near is not near:
            rows = self._rows = self._rows_of(near)
        session, work, own_per_s, own = asked
        if not (rows.sites and own and own_per_s > 0.0):
            return None
        weight = 1.0  # without a memory a miss counts the same everywhere
        if session:
            busy = rows.busy + sum([one.busy for one in own])
            weight = miss_weight(busy / (rows.places + len(own)))
        here = [cost_s(one.wait_s, 0.0, work - one.reusable, own_per_s, weight) for one in own]
        least_s = queue_s + min(here)
        # The loss of others is reckoned with one speed. Learned speeds differ by a few percent
        # among places that are alike; times the weight, that would move sessions.
        weight -= 1.0
        best = None
        lost_s = weight * work / own_per_s
        for site, neighbor, way_s, queued_s in rows.sites:
            per_s = site.work_per_s or own_per_s
            cost = queued_s + way_s + (site.wait + work) / per_s + lost_s
            if cost < least_s:
                least_s, best = cost, (neighbor, site.first + site.freest, work)
        for ran in self._memory.runs(session) if session else ():
            row = rows.by_block.get(ran.place // PLACES_MAX)
            if row is None:
                continue
            site, neighbor, way_s, queued_s = row
            place = ran.place - site.first
            if place < site.places:
                wait, per_s, taken = site.told(place)
                missing = work - self._memory.reusable(ran, work, taken)
                wait_s = queued_s + (wait + missing) / (per_s or own_per_s)
                cost = cost_s(wait_s, way_s, missing, own_per_s, weight)
                if cost < least_s:
                    least_s, best = cost, (neighbor, ran.place, missing)
        return None if best is None else Away(*best, least_s)

    def _rows_of(self, near: Sequence[Near]) -> _Rows:
        """Returns what a choice among these neighbors goes by."""
        known, sites, by_block = self._sites, [], {}
        busy, places = 0.0, 0
        for neighbor, way_s, queued_s in near:
            if (site := known.get(neighbor)) is not None:
                row = site, neighbor, way_s, queued_s
                sites.append(row)
                by_block[site.block] = row
                busy += site.busy
                places += site.places
        return _Rows(near, sites, busy, places, by_block)

    def sent(self, asked: SessionWork, away: Away, now_s: float) -> Expected:
        """Note that a request is handed on. Its session is remembered where it is expected to
        run."""
        site = self._sites[away.neighbor]
        place = away.place - site.first
        claim = None
        if asked.session:
            taken = site.told(place)[2] + away.missing
            claim = self._memory.note(asked.session, away.place, asked.work, taken)
        site.sent(place, away.missing, now_s)
        return Expected(away.place, claim)

    def answered(
        self, asked: SessionWork, expected: Expected | None, neighbor: int | None, ran: RanAt | None
    ) -> None:
        """Note that a request is answered which was handed on. `neighbor` has answered it (None:
        another cluster) and may have told where it `ran`. It may have been handed on without an
        expectation."""
        site = None if neighbor is None else self._sites.get(neighbor)
        place = -1
        if ran is not None and site is not None and ran.place < site.places:
            place = site.first + ran.place
        claim = None
        if expected is not None and expected.place == place:
            claim = expected.claim
        else:
            self.came_back(asked, expected)
            if place >= 0 and ran is not None and asked.session:
                claim = self._memory.note(asked.session, place, asked.work, ran.taken)
        if claim is not None and ran is not None:
            self._memory.learn(claim, ran.reused)

    def came_back(self, asked: SessionWork, expected: Expected | None) -> None:
        """Note that a request did not run where it was expected to."""
        if expected is not None and asked.session:
            self._memory.forget(asked.session, expected.place, asked.work)
