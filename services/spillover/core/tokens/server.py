"""One server of a pool of unlike servers: what it may take, what it works on, who waits at it."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Generic

from spillover.core.tokens.health import ServerHealth
from spillover.core.tokens.sharing import SharedServer
from spillover.core.tokens.waiting import V

UNLIMITED = 2**62


class UnlikeServer(Generic[V]):
    """It is *closed*, so that it takes nothing new, while it is out (an operator's word), down (its
    handler's), degraded, or resting: what runs its jobs has asked to be left alone. After that it
    has a slow start: it counts as full beyond as many jobs as it has served since, and one, where
    another server could take the job as well."""

    def __init__(self, number: int, id_: str, rate: float, classes: tuple[int, ...]) -> None:
        self.number = number
        self.id = id_
        self.rate = rate
        self.classes = classes
        """The numbers of those whose jobs it serves."""
        self.is_out = self.is_down = self.is_closed = False
        self.health = ServerHealth()
        self.rest_until_s = math.inf
        """When its rest ends; infinity without one."""
        self.running = 0
        """Jobs on it, and those that have failed and count for a while."""
        self.line: OrderedDict[int, V] = OrderedDict()
        """The jobs that have their tokens and wait here, by number, where jobs run one after
        another."""
        self.idle_number = number - UNLIMITED
        """The smaller, the longer ago it last ended a job."""
        self.allowance = UNLIMITED
        """How many jobs it may have in its slow start."""
        self.clock = SharedServer(rate)

    @property
    def state(self) -> str:
        """Returns up, out, down, resting or degraded."""
        if self.is_out:
            return "out"
        if self.is_down:
            return "down"
        if self.is_resting:
            return "resting"
        return "degraded" if self.health.degraded else "up"

    @property
    def is_resting(self) -> bool:
        return self.rest_until_s < math.inf

    @property
    def back_s(self) -> float:
        """Returns when it takes jobs again by itself; infinity if it does, or is not to."""
        if self.is_out or self.is_down:
            return math.inf
        times_s = (self.rest_until_s, self.health.again_s)
        return max((at_s for at_s in times_s if at_s < math.inf), default=math.inf)

    @property
    def order(self) -> tuple[bool, float, int]:
        """Returns what is smallest for the least busy server."""
        jobs = self.running + len(self.line)
        return jobs >= self.allowance, jobs / self.rate, self.idle_number
