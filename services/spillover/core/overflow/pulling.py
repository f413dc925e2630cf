"""The choice of neighbors that an idle cluster asks for waiting work: it knows which were asked,
and which had nothing. A cluster asks as soon as servers will be idle by the time that an answer can
be here.

At most one question is under way to each neighbor, and no more in all than servers are idle, or
will be by then. A neighbor that has nothing is left alone for a while, longer each time, and so is
one that does not answer. A neighbor whose queue is believed too short to be worth the way is not
asked at all, so that a federation at rest asks nothing. `policy.overflow.pull` has the formulas.
"""

from __future__ import annotations

from random import Random

from spillover.core.overflow.neighbor import Neighbor
from spillover.core.overflow.neighbors import Neighbors
from spillover.policy.overflow.adaptive import DEPARTURE_S_MIN, known_age_s
from spillover.policy.overflow.pull import AHEAD_MAX, ahead, pause_s, worth_s

WORK = "work"
NOTHING = "nothing"
NO_ANSWER = "no_answer"
ENDS = (WORK, NOTHING, NO_ANSWER)

ANSWER_S_MIN = 1.0
ANSWER_WAYS = 6.0
"""The time without an answer that counts as nothing, in ways to the neighbor; it is at least
ANSWER_S_MIN."""


class _Asked:
    """The results of asking one neighbor."""

    def __init__(self) -> None:
        self.since_s: float | None = None
        """The time when a question left that is not answered yet; None if there is none."""
        self.row = 0
        """The number of times in a row that the neighbor had nothing."""
        self.next_s = 0.0
        """The time before which the neighbor is not asked."""


class Pulling:
    """The questions for work of one cluster and group of types, which knows these `neighbors`. The
    pauses are drawn from `random`; `ends` counts the ends of questions, with those of other
    groups."""

    def __init__(
        self,
        neighbors: Neighbors,
        period_s: float,
        random: Random,
        ends: dict[str, int] | None = None,
    ) -> None:
        self._neighbors = neighbors
        self._period_s = period_s
        self._random = random
        self._asked: dict[int, _Asked] = {}
        self.coming = 0
        """The number of questions under way."""
        self.ends = dict.fromkeys(ENDS, 0) if ends is None else ends
        """The ends of the others, in all groups of types."""

    def next_to_ask(self, idle: int, servers: int, departure_s: float, now_s: float) -> int | None:
        """Returns the handle of the neighbor to ask now, which counts as asked from then on; None
        if there is none. Of the `servers`, `idle` have no work here; below 0, it is minus the
        number that waits."""
        if self.coming:
            self._give_up(departure_s, now_s)
        missing = idle - self.coming
        if missing + AHEAD_MAX * servers <= 0:
            return None
        best, best_s = None, 0.0
        for neighbor in self._neighbors:
            if not (neighbor.hears_us and neighbor.tells_load):
                continue
            if missing <= 0 and missing + ahead(neighbor.way_s, departure_s, servers) <= 0:
                continue
            asked = self._asked.get(neighbor.handle)
            if asked is not None and (asked.since_s is not None or now_s < asked.next_s):
                continue
            worth = self._worth_s(neighbor, now_s)
            if worth > best_s:
                best, best_s = neighbor, worth
        if best is None:
            return None
        self._asked.setdefault(best.handle, _Asked()).since_s = now_s
        self.coming += 1
        return best.handle

    def had_nothing(self, handle: int, departure_s: float, now_s: float) -> None:
        """Note that a neighbor was asked, and has nothing; `departure_s` is the own one."""
        asked = self._asked.get(handle)
        if asked is not None and asked.since_s is not None:
            self._left_alone(asked, NOTHING, departure_s, now_s)

    def _left_alone(self, asked: _Asked, end: str, departure_s: float, now_s: float) -> None:
        self._answered(asked, end)
        asked.row += 1
        asked.next_s = now_s + pause_s(asked.row, departure_s, self._random.random())

    def came(self, handle: int, *, pulled: bool) -> None:
        """Note that a request came from that neighbor, because it was asked or by itself."""
        asked = self._asked.get(handle)
        if asked is not None:
            asked.row = 0
            if pulled:
                self._answered(asked, WORK)

    def forget(self, handle: int) -> None:
        """Forget a question, as its link is down or the neighbor has left: no answer will come."""
        asked = self._asked.pop(handle, None)
        if asked is not None:
            self._answered(asked, NO_ANSWER)

    def _give_up(self, departure_s: float, now_s: float) -> None:
        """Count questions without an answer for too long as nothing. Otherwise lost questions would
        stand for idle servers, and no other neighbor would be asked."""
        for handle, asked in self._asked.items():
            answer_s = max(ANSWER_S_MIN, ANSWER_WAYS * self._neighbors.by_handle[handle].way_s)
            if asked.since_s is not None and now_s >= asked.since_s + answer_s:
                self._left_alone(asked, NO_ANSWER, departure_s, now_s)

    def _answered(self, asked: _Asked, end: str) -> None:
        if asked.since_s is not None:
            asked.since_s = None
            self.coming -= 1
            self.ends[end] += 1

    def _worth_s(self, neighbor: Neighbor, now_s: float) -> float:
        age_s = known_age_s(now_s - neighbor.told_s, self._period_s)
        departure_s = max(neighbor.departure_s, DEPARTURE_S_MIN)
        return worth_s(neighbor.ahead, age_s, neighbor.way_s, departure_s)

    def check(self) -> None:
        assert self.coming == sum(one.since_s is not None for one in self._asked.values())
