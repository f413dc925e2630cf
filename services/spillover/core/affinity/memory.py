"""The memory of sessions at one site: the places where each ran last, bounded, and how much of its
work there is still of use.

A place forgets by what it does, not by time. So the memory holds the place's *taken*, the work that
the place had taken on by then, and the *age* of a memory is the work that the place has taken on
since. How fast places forget is learned: answers tell how much was reused.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple, TypeAlias

from spillover.policy.affinity import cost_s

SESSIONS = 512
"""The number of sessions that are remembered, unless another one is given."""
WAYS = 16
"""The number of sessions of one set: enough for a set to forget as the whole would."""
SLIGHT = 1 / 16
"""Work below this share of other work is slight beside it, as a client's question whether its job
is done: a session is then remembered by the other."""
TELLS_ALL = 1 / 256
"""The share of the usual work from which on an answer tells all that it can. Why: with a sixteenth,
a p95 of sessions of language models at a load of .95 was 5 % longer."""
TIMES_MAX = 4.0
"""The most times the usual work that one answer counts in that mean: a single huge one must not
make all others tell little."""
PACKED = Struct("<HffHff")
"""The last two runs of a session: the place, the work and the taken of each. Seven digits of
`taken` tell ages apart until a place has replaced all that it keeps some hundred thousand times."""


class Ran(NamedTuple):
    """A session's last run at a place."""

    place: int
    """The number of the place, below 65 536."""
    work: float
    """The work of the run, above 0."""
    taken: float
    """The work that the place had taken on in all, that of this run included."""


NOWHERE = Ran(0, 0.0, 0.0)
"""A run that never was: a real one has work."""


Candidate: TypeAlias = tuple[int, float, float, float, float]
"""A place where a request may run: its number; the expected wait there, and the time there and
back, in seconds; the work per second that it does, above 0; and the work that it has taken on."""


class Choice(NamedTuple):
    """The place of the least cost."""

    place: int
    cost_s: float
    reusable: float
    """The work that is expected to be reused there."""


class Claim(NamedTuple):
    """The memory of a session where it runs again."""

    age: float
    """The work that the place has taken on since."""
    work: float
    """The work that can have been reused at most, above 0."""


class Worth:
    """The share of work that is still reused, by its age, learned from answers. An older memory is
    worth no more than a younger one, so an answer tells of both sides of its age."""

    STEPS = 4
    """The number of classes in which the age doubles."""
    CLASSES = 160
    """The number of classes: ages up to 2 ** 40 are told apart."""
    RATE = 0.05
    """The weight of one answer."""

    def __init__(self) -> None:
        self._shares = [1.0] * self.CLASSES

    def of(self, age: float) -> float:
        return self._shares[self._class_of(age)]

    def learn(self, age: float, share: float, weight: float = 1.0) -> None:
        """Learn from an answer that reused this share of the work that lay `age` back, and that
        counts as much as `weight` others."""
        shares, own, rate = self._shares, self._class_of(age), self.RATE * weight
        for at in range(own, len(shares)):
            if at > own and shares[at] <= share:
                break
            shares[at] += rate * (share - shares[at])
        for at in range(own - 1, -1, -1):
            if shares[at] >= share:
                break
            shares[at] += rate * (share - shares[at])

    def _class_of(self, age: float) -> int:
        return min(int(self.STEPS * math.log2(max(age, 1.0))), self.CLASSES - 1)


class SessionMemory:
    """The memory of one site, of a size that never changes: 28 bytes per session. It is parted into
    sets by the sessions' names; in each set the session that has not run for longest is forgotten
    first."""

    def __init__(self, limit: int = SESSIONS) -> None:
        self.worth = Worth()
        self._usual_work = 0.0
        """The mean of the work that could be reused, in which small ones count less."""
        self._ways = min(limit, WAYS)
        self._sets = limit // self._ways
        self._names = array("Q", bytes(8 * self._sets * self._ways))
        self._packed = bytearray(len(self._names) * PACKED.size)

    def runs(self, session: int) -> tuple[Ran, ...]:
        """Returns the last runs of a session, the latest first. Names are above 0 and have at most
        64 bits."""
        first = session % self._sets * self._ways
        try:
            found = self._names.index(session, first, first + self._ways)
        except ValueError:
            return ()
        fields = PACKED.unpack_from(self._packed, found * PACKED.size)
        last, before = Ran(*fields[:3]), Ran(*fields[3:])
        return (last, before) if before.work else (last,)

    def cheapest(
        self, session: int, work: float, candidates: Iterable[Candidate], weight: float
    ) -> Choice | None:
        """Returns the first candidate of the least cost for a request of a session; None where
        there is no candidate. A miss counts `weight` times."""
        ran = {one.place: one for one in self.runs(session)}
        best: Choice | None = None
        for place, wait_s, way_s, work_per_s, taken in candidates:
            known = ran.get(place)
            reusable = 0.0 if known is None else self.reusable(known, work, taken)
            cost = cost_s(wait_s, way_s, work - reusable, work_per_s, weight)
            if best is None or cost < best.cost_s:
                best = Choice(place, cost, reusable)
        return best

    def reusable(self, ran: Ran, work: float, taken: float) -> float:
        """Returns how much of a request's work is expected to be of use where its session ran, at a
        place that has taken on `taken` by now."""
        return min(ran.work, work) * self.worth.of(taken - ran.taken)

    def note(self, session: int, place: int, work: float, taken: float) -> Claim | None:
        """Remembers a run at a place that has taken on `taken`, this run included, but a slight one
        only in place of what is worth as little. Returns the memory of the session there, so that
        its answer can be learned from."""
        known, others = None, []
        for one in self.runs(session):
            if one.place == place:
                known = one
            else:
                others.append(one)
        other = others[0] if others else NOWHERE
        if len(others) > 1 and other.work < SLIGHT * others[1].work:
            other = others[1]  # slight ones go here and there, and push out nothing
        if known is None:
            self._put(session, Ran(place, work, taken), other)
            return None
        age = taken - work - known.taken
        is_slight = work < SLIGHT * known.work * self.worth.of(age)
        self._put(session, known if is_slight else Ran(place, work, taken), other)
        return Claim(age, min(known.work, work))

    def forget(self, session: int, place: int, work: float) -> None:
        """Forgets a run of this work that was expected at a place but happened at another. What one
        has left there beside which it is slight stays."""
        before = self.runs(session)
        left = [one for one in before if one.place != place or work < SLIGHT * one.work]
        if before and not left:
            self._drop(session)
        elif len(left) < len(before):
            self._put(session, left[0], NOWHERE)

    def learn(self, claim: Claim, reused: float) -> None:
        """Learns from an answer how much was reused of what was remembered. One that could reuse
        only a tiny part of what is usual tells little: its time was mostly not for its work."""
        if not self._usual_work:
            self._usual_work = claim.work
        times = min(claim.work / self._usual_work, TIMES_MAX)
        weight = min(times / TELLS_ALL, 1.0)
        self._usual_work *= 1.0 + self.worth.RATE * min(times, 1.0) * (times - 1.0)
        self.worth.learn(claim.age, min(1.0, reused / claim.work), weight)

    def _drop(self, session: int) -> None:
        """Makes room where a session stood, at the end of its set: the next new one takes it, and
        pushes no session out."""
        names, packed, size = self._names, self._packed, PACKED.size
        first = session % self._sets * self._ways
        end = first + self._ways
        place = names.index(session, first, end)
        names[place : end - 1] = names[place + 1 : end]
        packed[place * size : (end - 1) * size] = packed[(place + 1) * size : end * size]
        names[end - 1] = 0
        packed[(end - 1) * size : end * size] = bytes(size)

    def _put(self, session: int, last: Ran, before: Ran) -> None:
        """Puts a session first in its set. Those before its old place move back by one, the last
        one out if it is new."""
        names, packed, size = self._names, self._packed, PACKED.size
        first = session % self._sets * self._ways
        end = first + self._ways
        try:
            place = names.index(session, first, end)
        except ValueError:
            place = end - 1
        names[first + 1 : place + 1] = names[first:place]
        packed[(first + 1) * size : (place + 1) * size] = packed[first * size : place * size]
        names[first] = session
        PACKED.pack_into(packed, first * size, *last, *before)
