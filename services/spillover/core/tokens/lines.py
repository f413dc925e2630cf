"""Who waits for a server of a pool, and who is served next: those that are blocked, and those that
have their seats. What becomes of jobs and servers is in `servers`.
"""

from __future__ import annotations

from spillover.core.tokens.facts import TokenFacts
from spillover.core.tokens.jobs import Job, Kind, Place
from spillover.core.tokens.waiting import V
from spillover.policy.tokens import NONE


class TokenLines(TokenFacts[V]):
    """The lines of `TokenServers`, which makes the parts."""

    now_s: float
    """The time of what is handled. Set by the machine."""
    _startable: dict[int, None]
    """Servers at which one in a seat may be able to start."""
    _popped: tuple[V, Job[V]] | None
    """The one that was popped last, and may not have started."""

    def join(self, visit: V) -> None:
        """Take a seat where `seats` says so; else wait for a token."""
        kind = self.kind_of(visit)
        number = self.blocked.join(kind.number, visit)
        visit.place = Place(number, kind)
        self._look_for(kind)
        self._seat_blocked()

    def leave(self, visit: V) -> None:
        """Wait no longer. The token of a seat may be for another: `pop` afterwards."""
        place: Place[V] = visit.place
        visit.place = None
        if place.job is None:
            self.blocked.leave(place.kind.number, place.number)
        else:
            job = self._take_seat(visit, place)
            self.bucket.give_back(job.token, job.ref, served=False, now_s=self.now_s)
            self._seat_blocked()

    def pop(self) -> V | None:
        """Take out the next one that can start now."""
        self._drop_popped()
        if self.down or self.resting:
            return None
        if not self._shares:
            self._seat_blocked()
            return self._pop_seated()
        visit = self._first_blocked()
        if visit is not None:
            self._unblock(visit)
            visit.place = None
        return visit

    def _drop_popped(self) -> None:
        """The one that was popped has ended, if it has not started."""
        if self._popped is not None:
            job, self._popped = self._popped[1], None
            self._startable[job.server] = None
            self.bucket.give_back(job.token, job.ref, served=False, now_s=self.now_s)

    def _look_for(self, kind: Kind[V]) -> None:
        """One more of this type waits, though perhaps there are tokens: nothing starts just now, or
        it has had another."""
        oldest = self.bucket.oldest
        self.bucket.released.update((each, None) for each in kind.classes if oldest[each] != NONE)

    def _first_blocked(self) -> V | None:
        """The first of those that a released token fits. Only what was released since nobody was
        found can fit anyone."""
        released = self.bucket.released
        if not self.blocked.count:
            released.clear()
            return None
        oldest = self.bucket.oldest
        for gone in [kind for kind in released if oldest[kind] == NONE]:
            del released[gone]
        visit = self.blocked.first(released, self.may_join)
        if visit is None:
            released.clear()
        return visit

    def _unblock(self, visit: V) -> None:
        place: Place[V] = visit.place
        self.blocked.leave(place.kind.number, place.number)

    def _seat_blocked(self) -> None:
        """Give seats to those that a released token fits."""
        if self._shares or self.down or self.resting:
            return
        while (visit := self._first_blocked()) is not None:
            self._unblock(visit)
            place: Place[V] = visit.place
            job = place.job = self._take(visit, place.kind)
            server = self.servers[job.server]
            server.line[place.number] = visit
            self.seated += 1
            self._seated_foreign += not visit.is_home
            if not server.running:
                self._startable[server.number] = None

    def _take_seat(self, visit: V, place: Place[V]) -> Job[V]:
        """The job of one that has a seat, which it leaves with its token."""
        job = place.job
        assert job is not None
        del self.servers[job.server].line[place.number]
        self.seated -= 1
        self._seated_foreign -= not visit.is_home
        return job

    def _unseat(self, visit: V) -> None:
        """Let one that has a seat be blocked, as it was before."""
        place: Place[V] = visit.place
        job = self._take_seat(visit, place)
        place.job = None
        self.blocked.put_back(place.kind.number, place.number, visit)
        self._look_for(place.kind)
        self.bucket.give_back(job.token, job.ref, served=False, now_s=self.now_s)

    def _pop_seated(self) -> V | None:
        while self._startable:
            server = self.servers[next(iter(self._startable))]
            del self._startable[server.number]
            if not server.running and server.line:
                visit = next(iter(server.line.values()))
                place: Place[V] = visit.place
                self._popped = visit, self._take_seat(visit, place)
                visit.place = None
                return visit
        return None

    def _take(self, visit: V, kind: Kind[V]) -> Job[V]:
        """A token for this visit, for which there is one."""
        bucket, ref, refused_on = self.bucket, visit.ref, visit.refused_on
        chosen = bucket.choose(self.joins(visit) if refused_on else kind.classes)
        server = self.least_busy(chosen, refused_on)
        rank = bucket.ranks[chosen]
        token = bucket.seize(chosen, ref)
        ranks = kind.look(bucket.ranks) if kind.look is not None else ()
        job = Job(ref, kind, token, server.number, rank, ranks, bucket.next_number, self.now_s)
        if refused_on:
            job.refused_on = refused_on
        return job
