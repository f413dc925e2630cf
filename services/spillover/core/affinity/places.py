"""The choice of the place at which a request runs, where one node sends all that the places get:
engines behind one handler. The node knows what it has sent and when first bytes came. It learns
from these how fast places work and how much of the work they reuse.

Work that is under way at a place is *pending* until its first byte: what comes after, such as the
tokens of an answer, is done beside other work.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from spillover.core.affinity.memory import Claim, SessionMemory
from spillover.model.affinity import PLACES_MAX, OwnPlace, PlaceLoad, SessionWork
from spillover.model.ranges import WORK_MAX
from spillover.policy.affinity import miss_weight

SESSIONS = 160_000
"""The number of places in the memory of sessions: they take 4.5 MB. Of 100,000 sessions that run in
turn 99.5 % are remembered there, as sets of names are not equally full; of as many places as
sessions 90 % were."""
BUSY_REQUESTS = 20.0
"""The time over which the busy share of places is averaged, in requests that need not wait. So
nobody has to know it in seconds."""
WINDOW_S_MIN = 1e-3
"""The least time for that average, in seconds, also while it is not known how long requests
take."""
SPEED_WEIGHT = 0.05
"""The weight of the newest first byte in the mean speed."""
BUSY_STEPS = 256
"""The number of steps in which the busy share is told: idle places are told of as the same in the
end."""


@dataclass(slots=True, eq=False)
class Dispatch:
    """A request that was sent to a place."""

    place: int
    session: int
    work: float
    expected: float
    """The work that it is expected to make there."""
    is_first: bool
    """Whether nothing else was pending there when it was sent, so that it need not wait."""
    sent_s: float
    claim: Claim | None
    taken: float
    """The work that the place has then taken on, that of this request included."""
    reused: float
    """The work that need not be done again: as expected or, once that was seen, as it was."""
    is_pending: bool = True


class Places:
    """The places behind one handler. A session of 0 is none."""

    def __init__(self, count: int, slots: float) -> None:
        self._memory = SessionMemory(SESSIONS)
        self._slots = 1.0
        """The number of requests that a place runs at a time, by what the cluster says of all."""
        self._pending = [0.0] * count
        self._waiting = [0] * count
        """The number of requests at each place whose first byte has not come."""
        self._taken = [0.0] * count
        self._since_s = [0.0] * count
        """The time when each place began its present work, as far as first bytes tell."""
        self._busy = [0.0] * count
        self._looked_s = [0.0] * count
        self._work = self._time_s = 0.0
        self.use(slots)

    def use(self, slots: float) -> None:
        """Go by this number of requests that all places run at a time."""
        self._slots = max(1.0, slots / len(self._taken))

    def choose(
        self,
        session: int,
        work: float,
        running: Sequence[tuple[int, int]],
        run_s: float,
        now_s: float,
    ) -> int:
        """Returns the place of the least cost among those given; the first one if there are
        several. `running` has at least one place, and how many requests run there. `run_s` is how
        long a request runs."""
        per_s, taken = self._per_s(), self._taken
        candidates = [
            (place, self._wait_s(place, count, run_s, now_s), 0.0, per_s, taken[place])
            for place, count in running
        ]
        weight = 1.0  # without a memory a miss counts the same everywhere
        if session:
            busy = sum([self._busy_at(place, now_s) for place, _ in running]) / len(running)
            weight = miss_weight(busy)
        choice = self._memory.cheapest(session, work, candidates, weight)
        assert choice is not None  # there is at least one place
        return choice.place

    def seen(
        self,
        session: int,
        work: float,
        running: Sequence[tuple[int, int]],
        run_s: float,
        now_s: float,
    ) -> SessionWork:
        """Returns what `choose` would go by, for the choice between here and other sites."""
        memory, taken = self._memory, self._taken
        ran = {one.place: one for one in memory.runs(session)} if session else {}
        places = []
        for place, count in running:
            wait_s, known = self._wait_s(place, count, run_s, now_s), ran.get(place)
            reusable = 0.0 if known is None else memory.reusable(known, work, taken[place])
            places.append(OwnPlace(wait_s, self._busy_at(place, now_s), reusable))
        return SessionWork(session, work, self._told_per_s(), tuple(places))

    def loads(
        self, running: Sequence[tuple[int, int]], run_s: float, now_s: float
    ) -> tuple[PlaceLoad, ...]:
        """Returns the loads of the places, as neighbors are told. A place that is not among those
        given takes nothing for now."""
        counts, told_per_s, per_s = dict(running), self._told_per_s(), self._per_s()
        told = []
        for place, taken in enumerate(self._taken[:PLACES_MAX]):
            wait = WORK_MAX
            if place in counts:
                wait = min(self._wait_s(place, counts[place], run_s, now_s) * per_s, WORK_MAX)
            busy = round(self._busy_at(place, now_s) * BUSY_STEPS) / BUSY_STEPS
            told.append(PlaceLoad(wait, busy, told_per_s, min(taken, WORK_MAX)))
        return tuple(told)

    def sent(self, session: int, work: float, place: int, now_s: float) -> Dispatch:
        expected, claim, is_first = work, None, not self._waiting[place]
        if session:
            known = [(place, 0.0, 0.0, 1.0, self._taken[place])]
            choice = self._memory.cheapest(session, work, known, 1.0)
            assert choice is not None  # there is a place
            expected -= choice.reusable
            taken = self._taken[place] + expected
            claim = self._memory.note(session, place, work, taken)
        self._look(place, now_s)
        if is_first:
            self._since_s[place] = now_s
        self._taken[place] += expected
        self._pending[place] += expected
        self._waiting[place] += 1
        told = is_first, now_s, claim, self._taken[place], work - expected
        return Dispatch(place, session, work, expected, *told)

    def began(self, sent: Dispatch, now_s: float) -> None:
        """Note that the first byte of an answer has come; only the first call counts. A request
        that need not wait shows how fast the place is, or how much it has reused."""
        if not self._end_pending(sent, now_s) or not sent.is_first:
            return
        took_s = max(now_s - sent.sent_s, 1e-6)
        if sent.claim is None:
            weight = SPEED_WEIGHT if self._time_s else 1.0
            self._work += weight * (sent.work - self._work)
            self._time_s += weight * (took_s - self._time_s)
        elif self._time_s > 0.0:
            reused = sent.work - took_s * self._per_s()
            sent.reused = min(max(reused, 0.0), sent.claim.work)
            self._memory.learn(sent.claim, sent.reused)

    def failed(self, sent: Dispatch, now_s: float) -> None:
        """Note that a request came to no good end: the work that it was to leave at the place is
        not there."""
        if self._end_pending(sent, now_s) and sent.session:
            self._memory.forget(sent.session, sent.place, sent.work)

    def _end_pending(self, sent: Dispatch, now_s: float) -> bool:
        if not sent.is_pending:
            return False
        sent.is_pending = False
        place = sent.place
        self._look(place, now_s)
        self._waiting[place] -= 1
        self._since_s[place] = now_s
        # A remainder of rounding must not count as work.
        self._pending[place] = self._pending[place] - sent.expected if self._waiting[place] else 0.0
        return True

    def _wait_s(self, place: int, count: int, run_s: float, now_s: float) -> float:
        """Returns how many seconds a request that is sent to a place now waits there, where so many
        requests run."""
        wait_s = self._left(place, now_s) / self._per_s() if self._waiting[place] else 0.0
        beyond = count + 1 - self._slots
        if self._time_s > 0.0 and beyond > 0.0:
            wait_s = max(wait_s, beyond * run_s / self._slots)
        return wait_s

    def _left(self, place: int, now_s: float) -> float:
        """Returns the pending work of a place that has some, less about what it has done of the
        request that it works on."""
        pending, waiting = self._pending[place], self._waiting[place]
        if self._time_s <= 0.0:
            return max(0.0, pending)  # sums of what came and went may be below 0 by rounding
        done = (now_s - self._since_s[place]) * self._per_s()
        return max(0.0, pending - min(done, pending / waiting))

    def _per_s(self) -> float:
        """Returns the work per second; before anything is known, any number will do."""
        return self._work / self._time_s if self._time_s > 0.0 else 1.0

    def _told_per_s(self) -> float:
        """Returns the work per second; 0 before anything is known."""
        return self._per_s() if self._time_s > 0.0 else 0.0

    def _look(self, place: int, now_s: float) -> None:
        """Average over the time since the last change."""
        self._busy[place] = self._busy_at(place, now_s)
        self._looked_s[place] = now_s

    def _busy_at(self, place: int, now_s: float) -> float:
        window_s = max(BUSY_REQUESTS * self._time_s, WINDOW_S_MIN)
        faded = math.exp((self._looked_s[place] - now_s) / window_s)
        is_busy = 1.0 if self._waiting[place] else 0.0
        return is_busy + (self._busy[place] - is_busy) * faded
