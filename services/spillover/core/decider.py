"""Asking the policy, with what is known of the neighbors, and putting its reasons on record."""

from __future__ import annotations

from random import Random

from spillover.core.decisions import FORWARDED, KEPT, REFUSED, STARTED, Decision, DecisionLog
from spillover.core.neighbors import Knowledge, Neighbors
from spillover.core.visit import Visit
from spillover.model.ids import ClusterId
from spillover.policy.acceptance import KEEP
from spillover.policy.choosers import CHOOSERS

SERVICE_WEIGHT = 1 / 16
"""Weight of the newest service time in the running mean."""


class Decider:
    """One cluster's decisions. It reads the neighbors' table and writes only the log.

    `service_s` is the running mean of the service times seen, from the first guess given.
    """

    __slots__ = (
        "_choose",
        "_neighbors",
        "_nobody",
        "_random",
        "_servers",
        "_weights",
        "log",
        "policy",
        "service_s",
    )

    def __init__(
        self,
        policy: str,
        neighbors: Neighbors,
        random: Random,
        *,
        servers: int,
        service_s: float,
        decisions_max: int,
    ) -> None:
        self.policy = policy
        self.log = DecisionLog(decisions_max)
        self.service_s = service_s
        self._choose = CHOOSERS[policy]
        self._neighbors = neighbors
        self._nobody = (False,) * len(neighbors)
        self._random = random
        self._servers = servers
        self._weights = [0.0] * len(neighbors)

    def choose(
        self,
        visit: Visit,
        queue_length: int,
        now_s: float,
        *,
        may_keep: bool,
        may_forward: bool,
    ) -> int:
        """The neighbor to hand the visit to, or KEEP; no server is free.

        KEEP comes out also where keeping is not allowed and no neighbor is eligible.
        """
        known = self._neighbors.knowledge()
        eligible = _eligible(known, self._neighbors.ids, visit) if may_forward else self._nobody
        draw = self._random.random()
        choice = self._choose(
            queue_length,
            self._servers,
            may_keep,
            self.service_s,
            known.reject_near,
            known.queue_length,
            known.delays_s,
            eligible,
            self._weights,
            draw,
        )
        self.log.append(
            Decision(
                now_s,
                visit.request.id,
                _outcome(choice, visit, may_keep=may_keep),
                choice,
                self.policy,
                queue_length,
                self._servers,
                self._servers,
                len(visit.request.path),
                may_keep,
                self.service_s,
                draw,
                known,
                eligible,
                tuple(self._weights),
            )
        )
        return choice

    def started(self, visit: Visit, busy: int, now_s: float) -> None:
        """Put on record that a server was free, so that nothing was to be decided."""
        self._note(visit, STARTED, 0, busy, now_s)

    def refused(self, visit: Visit, queue_length: int, now_s: float) -> None:
        """Put on record that a neighbor's request met a full queue."""
        self._note(visit, REFUSED, queue_length, self._servers, now_s)

    def served(self, service_s: float) -> None:
        """A request has been served in this time: move the running mean."""
        self.service_s += (service_s - self.service_s) * SERVICE_WEIGHT

    def _note(self, visit: Visit, outcome: str, queue_length: int, busy: int, now_s: float) -> None:
        self.log.append(
            Decision(
                now_s,
                visit.request.id,
                outcome,
                KEEP,
                self.policy,
                queue_length,
                busy,
                self._servers,
                len(visit.request.path),
                outcome == STARTED,
                self.service_s,
                0.0,
                self._neighbors.knowledge(),
            )
        )


def _outcome(choice: int, visit: Visit, *, may_keep: bool) -> str:
    if choice != KEEP:
        return FORWARDED
    return REFUSED if visit.is_new and not may_keep else KEPT


def _eligible(known: Knowledge, ids: tuple[ClusterId, ...], visit: Visit) -> tuple[bool, ...]:
    """Neighbors that accept, have not refused this visit, and have not had the request."""
    path, tried = visit.request.path, visit.tried
    if not path and not tried:
        return known.accepting
    return tuple(
        [
            accepting and cluster not in path and y not in tried
            for y, (accepting, cluster) in enumerate(zip(known.accepting, ids, strict=True))
        ]
    )
