"""What the log of a node says of the servers of its pool, where these are unlike: which takes jobs
and which does not, and which does none of a type that it is to serve.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any, cast

from spillover.core.overflow.machine import NodeMachine
from spillover.core.tokens.answers import REJECTED, Run
from spillover.live.process.logs import Message, OncePerPeriod

if TYPE_CHECKING:
    from spillover.core.tokens.servers import TokenServers

_log = logging.getLogger(__name__)
_log.addFilter(OncePerPeriod())

SAID_AGAIN_S = 600.0
"""The earliest that the same is said again of a server and a type; once while it goes on."""

TROUBLED = ("down", "degraded", "resting")
"""States of a server that somebody should look at."""

AT_FAULT = "if the server is at fault, have it say so (not_run_statuses, NotRun): others run it"
"""A rejection is final, the client's own fault (contract, section 2)."""


class PoolLog:
    """Of one node."""

    def __init__(self, machine: NodeMachine) -> None:
        pool = cast("TokenServers[Any]", machine.servers)
        self._cluster = machine.settings.cluster
        self._pool = pool
        self._types = [kind.id for kind in pool.kinds.values()]
        self._states = [server.state for server in pool.servers]
        """As they were last told."""
        self._said: dict[tuple[int, int], tuple[Run, float]] = {}
        """By server and type: what was said last, and when."""

    def look(self, now_s: float) -> None:
        """Say what is new."""
        for server, before in zip(self._pool.servers, self._states, strict=True):
            if (now := server.state) != before:
                self._states[server.number] = now
                self._say_state(server.number, before, now, now_s)
        if self._pool.answers:
            for number, kind, run, done_elsewhere in self._pool.answers.telling():
                said, at_s = self._said.get((number, kind), (None, -math.inf))
                if run is not said and now_s >= at_s + SAID_AGAIN_S:
                    self._said[number, kind] = run, now_s
                    self._say_run(number, kind, run, done_elsewhere)

    def _say_state(self, number: int, before: str, now: str, now_s: float) -> None:
        server, told = self._pool.servers[number], {}
        if now in TROUBLED:
            runs = list(self._pool.answers.of(number))
            told = {
                "failed_share": round(server.health.failed_share(now_s), 2),
                "not_done": {self._types[kind]: run.count for kind, run, _ in runs} or None,
                "answered": runs[-1][1].problem if runs else None,
            }
        level = logging.WARNING if now in TROUBLED else logging.INFO
        fields = {"cluster": self._cluster, "server": server.id, "state": now, "before": before}
        _log.log(level, Message("a server has changed", **fields, **told))

    def _say_run(self, number: int, kind: int, run: Run, done_elsewhere: int) -> None:
        type_, server = self._types[kind], self._pool.servers[number]
        joins = [id_ for id_ in self._pool.kinds[type_].class_ids if self._has(number, id_)]
        says = f"the topology says that it serves {type_}: classes {', '.join(joins)}"
        _log.warning(
            Message(
                "a server does no job of a type that it is to serve",
                cluster=self._cluster,
                server=server.id,
                type=type_,
                how=run.how,
                in_a_row=run.count,
                done_elsewhere=done_elsewhere,
                answered=run.problem,
                look_at=f"{says}; {AT_FAULT}" if run.how == REJECTED else says,
            )
        )

    def _has(self, number: int, class_id: str) -> bool:
        return self._pool.class_ids.index(class_id) in self._pool.servers[number].classes


def pool_log(machine: NodeMachine) -> PoolLog | None:
    """Returns that of a node; None where its servers are alike."""
    return None if machine.settings.pool is None else PoolLog(machine)
