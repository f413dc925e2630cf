"""Asking the policy, with what is known of the neighbors, and putting its reasons on record."""

from __future__ import annotations

import math
from random import Random

from spillover.core.overflow.decisions import FORWARDED, KEPT, REFUSED, STARTED, Decision
from spillover.core.overflow.health import WELL
from spillover.core.overflow.history import History
from spillover.core.overflow.neighbors import Knowledge, Neighbors
from spillover.core.overflow.servers import Servers
from spillover.core.overflow.visit import Visit
from spillover.model.request import Refusal
from spillover.policy.overflow.base import KEEP, OwnLoad
from spillover.policy.overflow.choosers import CHOOSERS
from spillover.policy.overflow.estimate import learned


class Decider:
    """One cluster's decisions. It reads the neighbors' table and writes only the history.

    `service_s` is the running mean of the service times that `served` was told, from the first
    guess given, and `service_spread_s` their running standard deviation.
    """

    __slots__ = (
        "_choose",
        "_neighbors",
        "_nobody",
        "_random",
        "_served",
        "_service_variance_s2",
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
        service_s: float,
        records_max: int,
    ) -> None:
        self.log = History(records_max)
        self.service_s = service_s
        self._service_variance_s2 = 0.0
        self._served = 0
        self.use(policy)
        self._neighbors = neighbors
        self._nobody = (False,) * len(neighbors)
        self._random = random
        self._weights = [0.0] * len(neighbors)

    def use(self, policy: str) -> None:
        """Decide by this policy from now on."""
        self.policy = policy
        self._choose = CHOOSERS[policy]

    @property
    def service_spread_s(self) -> float:
        return math.sqrt(self._service_variance_s2)

    def choose(
        self,
        visit: Visit,
        queue_length: int,
        servers: int,
        now_s: float,
        *,
        objection: Refusal | None,
        may_keep: bool,
        may_forward: bool,
        all_degraded: bool = False,
        health: str = WELL,
    ) -> int:
        """Returns the neighbor to hand the visit to, or KEEP, which comes out also where keeping is
        not allowed and no neighbor is eligible. None of the `servers` is free. `objection` is why
        the visit may not be kept, as far as there is a reason to tell. `all_degraded`: so is this
        cluster and every neighbor that could take it, which then counts for nothing.
        """
        known = self._neighbors.knowledge()
        eligible = self._eligible(known, visit, all_degraded) if may_forward else self._nobody
        draw = self._random.random()
        own = OwnLoad(queue_length, servers, may_keep, self.service_s)
        choice = self._choose(own, known.loads, eligible, self._weights, draw)
        self.log.add(
            Decision(
                now_s,
                visit.request.id,
                _outcome(choice, visit, objection),
                choice,
                self.policy,
                queue_length,
                servers,
                servers,
                len(visit.request.path),
                may_keep,
                self.service_s,
                draw,
                known,
                objection,
                eligible,
                tuple(self._weights),
                health,
            )
        )
        if choice != KEEP:
            self._neighbors.probe(choice)
        return choice

    def started(
        self, visit: Visit, busy: int, servers: int, now_s: float, health: str = WELL
    ) -> None:
        """Put on record that a server was free, so that nothing was to be decided."""
        self._note(visit, STARTED, 0, busy, servers, now_s, None, health)

    def refused(
        self, visit: Visit, queue_length: int, servers: Servers, now_s: float, reason: Refusal
    ) -> None:
        """Put on record that a request was not taken, without a choice."""
        busy, total = servers.busy, servers.total
        self._note(visit, REFUSED, queue_length, busy, total, now_s, reason)

    def served(self, service_s: float) -> None:
        """A server took this time: move the running mean and variance. To be told also where nobody
        waited for the end any more, or it failed late: without the long ones the mean would be too
        low."""
        self._served += 1
        self.service_s, self._service_variance_s2 = learned(
            self.service_s, self._service_variance_s2, self._served, service_s
        )

    def _eligible(
        self,
        known: Knowledge,
        visit: Visit,
        all_degraded: bool,  # noqa: FBT001 - on the way of every request
    ) -> tuple[bool, ...]:
        """Neighbors that take work, have not refused this visit, and have not had the request."""
        willing = known.accepting if all_degraded else known.takes
        path, tried = visit.request.path, visit.tried
        if not path and not tried:
            return willing
        return tuple(
            [
                is_willing and cluster not in path and y not in tried
                for y, (is_willing, cluster) in enumerate(
                    zip(willing, self._neighbors.ids, strict=True)
                )
            ]
        )

    def _note(  # noqa: PLR0917 - by position: on the way of every request
        self,
        visit: Visit,
        outcome: str,
        queue_length: int,
        busy: int,
        servers: int,
        now_s: float,
        objection: Refusal | None,
        health: str = WELL,
    ) -> None:
        self.log.add(
            Decision(
                now_s,
                visit.request.id,
                outcome,
                KEEP,
                self.policy,
                queue_length,
                busy,
                servers,
                len(visit.request.path),
                outcome == STARTED,
                self.service_s,
                0.0,
                self._neighbors.knowledge(),
                objection,
                (),
                (),
                health,
            )
        )


def _outcome(choice: int, visit: Visit, objection: Refusal | None) -> str:
    if choice != KEEP:
        return FORWARDED
    return REFUSED if visit.is_new and objection is not None else KEPT
