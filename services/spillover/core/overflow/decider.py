"""The decider asks the policy, with what is known of the neighbors, and puts its reasons on
record."""

from __future__ import annotations

from random import Random
from typing import cast

from spillover.core.overflow.decisions import AFFINITY, FORWARDED, KEPT, REFUSED, STARTED, Decision
from spillover.core.overflow.history import WENT_FIRST, History, Note
from spillover.core.overflow.knowledge import Knowledge
from spillover.core.overflow.neighbors import Neighbors
from spillover.core.overflow.pool import Granted, ServerPool
from spillover.core.overflow.shadow import Shadow
from spillover.core.overflow.visit import Visit
from spillover.model.ids import ClusterId
from spillover.model.request import Refusal
from spillover.policy.overflow.base import KEEP, OwnLoad
from spillover.policy.overflow.choosers import CHOOSERS


class Decider:
    """One cluster's decisions. It reads the neighbors' table and writes only the history."""

    def __init__(
        self,
        policy: str,
        neighbors: Neighbors,
        random: Random,
        records_max: int,
        shadow: str | None = None,
    ) -> None:
        self.log = History(records_max)
        self._shadows = {name: Shadow(name) for name in CHOOSERS}
        """The shadow of each policy: its sums go on when it comes back."""
        self.use(policy, shadow)
        self._neighbors = neighbors
        self._random = random
        self.neighbors_changed()

    def use(self, policy: str, shadow: str | None) -> None:
        """Decide by this policy from now on, and ask the shadow along, if any."""
        self.policy = policy
        self._choose = CHOOSERS[policy]
        self.shadow = None if shadow is None else self._shadows[shadow]

    def shadow_of(self, policy: str) -> Shadow:
        """Returns the shadow of this policy, in use or not."""
        return self._shadows[policy]

    def neighbors_changed(self) -> None:
        self._nobody = (False,) * len(self._neighbors)
        self._weights = [0.0] * len(self._neighbors)

    def choose(  # noqa: PLR0917
        self,
        visit: Visit,
        own: OwnLoad,
        now_s: float,
        objection: Refusal | None,
        may_forward: bool,  # noqa: FBT001 - by position: on the way of every request
        rank: float,
        health: str,
    ) -> int:
        """Returns the handle of the neighbor to give the visit to, or KEEP.

        No server is free for the visit. KEEP is returned even where keeping is not allowed, if no
        neighbor is eligible. `objection` is why the visit may not be kept, if there is a reason to
        tell. `rank` is how good a place for it this cluster is: a cluster that is not well gives it
        to the best place that accepts, whichever that is.
        """
        neighbors = visit.group.neighbors
        known = neighbors.known_now or neighbors.knowledge()
        if rank:
            willing = known.as_good_as(rank)
        else:
            willing = known.takes if visit.request.keyed else known.takes_unkeyed
        eligible = willing if may_forward else self._nobody
        if known.limits_bytes is not None:
            eligible = _within_limits(eligible, known.limits_bytes, visit.request.size_bytes)
        if visit.request.path or visit.tried:
            eligible = _without_those_asked(eligible, known, visit)
        draw, shadow = self._random.random(), self.shadow
        choice = self._choose(own, known.loads, eligible, self._weights, draw)
        record = Decision(
            now_s,
            visit.request.id,
            _kept_or_refused(visit, objection) if choice == KEEP else FORWARDED,
            choice,
            self.policy,
            own.queue_length,
            own.servers,
            own.servers,
            len(visit.request.path),
            own.may_keep,
            own.service_s,
            draw,
            known,
            objection,
            eligible,
            tuple(self._weights),
            health,
            own,
            None if shadow is None else shadow.ask(own, known.loads, eligible, draw, choice),
            visit.group.id,
        )
        self.log.add(record)
        if choice != KEEP:
            choice = known.handles[choice]
            neighbors.sent(choice, now_s, visit.request.size_bytes)
        return choice

    def left_for_place(
        self, visit: Visit, handle: int, servers: ServerPool, now_s: float, health: str
    ) -> None:
        """Put on record that a request is handed on for the sake of a place there, and count it as
        on its way. The policy was not asked."""
        self.note(visit, FORWARDED, servers, now_s, None, health)
        decision = cast("Decision", self.log.last)
        decision.choice = decision.knowledge.handles.index(handle)
        decision.policy = AFFINITY
        visit.group.neighbors.sent(handle, now_s, visit.request.size_bytes)

    def granted(self, visit: Visit, grant: Granted | None, now_s: float) -> None:
        """Put on record what a visit was granted that starts: with the decision, if that has just
        been made."""
        if grant is None:
            return
        last, name = self.log.last, visit.request.id
        if isinstance(last, Decision) and (last.request_id, last.outcome) == (name, STARTED):
            last.granted = grant
        else:
            self.log.add(Note(now_s, name, STARTED, granted=grant))

    def older_went(self, decision: Decision, older: Visit, neighbor: ClusterId) -> None:
        """Put on record that the request of this decision is kept, and that an older one is handed
        on in its place."""
        decision.outcome, decision.older_went = KEPT, True
        self.log.add(Note(decision.at_s, older.request.id, WENT_FIRST, neighbor))

    def note(
        self,
        visit: Visit,
        outcome: str,
        servers: ServerPool,
        now_s: float,
        objection: Refusal | None,
        health: str,
    ) -> None:
        """Put on record an outcome for which the policy was not asked: STARTED, since a server was
        free; KEPT, to wait for one whatever a policy would say; or REFUSED."""
        neighbors = visit.group.neighbors
        self.log.add(
            Decision(
                now_s,
                visit.request.id,
                outcome,
                KEEP,
                self.policy,
                0 if outcome == STARTED else servers.site_waiting,
                servers.site_busy,
                servers.site_total,
                len(visit.request.path),
                outcome != REFUSED,
                servers.service_s,
                0.0,
                neighbors.known_now or neighbors.knowledge(),
                objection,
                (),
                (),
                health,
                None,
                None,
                visit.group.id,
            )
        )


def _within_limits(
    willing: tuple[bool, ...], limits_bytes: tuple[float, ...], size_bytes: int
) -> tuple[bool, ...]:
    """Returns which of the neighbors that take work do not lose requests of this size."""
    limited = zip(willing, limits_bytes, strict=True)
    return tuple([is_willing and size_bytes < limit for is_willing, limit in limited])


def _without_those_asked(
    willing: tuple[bool, ...], known: Knowledge, visit: Visit
) -> tuple[bool, ...]:
    """Returns which of the neighbors that take work have not refused this visit, and have not had
    the request."""
    path, tried = visit.request.path, visit.tried
    return tuple(
        [
            is_willing and cluster not in path and neighbor not in tried
            for is_willing, cluster, neighbor in zip(willing, known.ids, known.handles, strict=True)
        ]
    )


def _kept_or_refused(visit: Visit, objection: Refusal | None) -> str:
    return REFUSED if visit.is_new and objection is not None else KEPT
