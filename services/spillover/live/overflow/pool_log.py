"""The log lines on the servers of a node's pool, where these are unlike: which server takes jobs
and which does not, and which does no job of a type that it is to serve.

Each server has its own limit of lines, so that no server hides another one.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any

from spillover.core.overflow.machine import NodeMachine
from spillover.core.overflow.pools import unlike_servers
from spillover.core.tokens.answers import REJECTED, JobRun
from spillover.live.process.logs import Message
from spillover.model.ids import ClusterId
from spillover.policy.backoff import backoff_s

if TYPE_CHECKING:
    from spillover.core.tokens.servers import TokenServers

_log = logging.getLogger(__name__)

SAID_AGAIN_S = 600.0
"""The time, in seconds, after which the same is logged again of a server and a type; it is logged
once while it goes on. A server that has not turned for so long counts as one that never has."""

TURN_S = 1.0
"""The time, in seconds, for which no turn is logged after a server's first one. It doubles each
time, up to SAID_AGAIN_S. A server may turn each second, all day: a full one says 429 and
`Retry-After: 1`."""

RUN_S = 1.0
"""The least time, in seconds, between two lines on types that a server does not do."""

TROUBLED = ("down", "degraded", "resting")
"""The states of a server that somebody should look at."""

AT_FAULT = "if the server is at fault, have it say so (not_run_statuses, NotRun): others run it"
"""The advice to an operator where a server rejects all: a rejection is final, since it counts as
the client's own fault."""


class _Turns:
    """The turns of one server: those that were logged, and those that are to be."""

    def __init__(self, state: str) -> None:
        self.said = self.now = state
        self.count = 0
        """The number of turns that no line has told yet."""
        self.lines = 0
        """The number of lines that came one soon after the other."""
        self.next_s = -math.inf
        """The earliest time of the next line."""

    def are_to_be_told(self, state: str, now_s: float) -> bool:
        """Take note of the state, and return whether a line is due now."""
        self.count += state != self.now
        self.now = state
        if not self.count or now_s < self.next_s:
            return False
        if now_s >= self.next_s + SAID_AGAIN_S:
            self.lines = 0
        self.next_s = now_s + backoff_s(self.lines, TURN_S, SAID_AGAIN_S, 0.0)
        self.lines += 1
        return True

    def told(self) -> None:
        self.said, self.count = self.now, 0


class PoolLog:
    """The log lines of one node on the servers of its pool."""

    def __init__(self, cluster: ClusterId, pool: TokenServers[Any]) -> None:
        self._cluster = cluster
        self._pool = pool
        self._types = [kind.id for kind in pool.kinds.values()]
        self._turns = [_Turns(server.state) for server in pool.servers]
        self._said: dict[tuple[int, int], tuple[JobRun, float]] = {}
        """The run that was last logged of each server and type, and the time."""
        self._said_s = [-math.inf for _ in pool.servers]
        """The time of the last such line, by server."""

    def look(self, now_s: float) -> None:
        for server, turns in zip(self._pool.servers, self._turns, strict=True):
            if turns.are_to_be_told(server.state, now_s):
                self._say_turns(server.number, turns, now_s)
                turns.told()
        if self._pool.answers:
            for number, kind, run, done_elsewhere in self._pool.answers.telling():
                if now_s < self._said_s[number] + RUN_S:
                    continue
                said, at_s = self._said.get((number, kind), (None, -math.inf))
                if run is not said and now_s >= at_s + SAID_AGAIN_S:
                    self._said[number, kind] = run, now_s
                    self._said_s[number] = now_s
                    self._say_run(number, kind, run, done_elsewhere)

    def _say_turns(self, number: int, turns: _Turns, now_s: float) -> None:
        """Log the turns of a server. One that is back may have been away meanwhile, more than
        once."""
        server, told = self._pool.servers[number], {}
        if turns.now in TROUBLED:
            runs = list(self._pool.answers.of(number))
            told = {
                "failed_share": round(server.health.failed_share(now_s), 2),
                "not_done": {self._types[kind]: run.count for kind, run, _ in runs} or None,
                "answered": runs[-1][1].problem if runs else None,
            }
        fields = {"cluster": self._cluster, "server": server.id, "state": turns.now}
        if turns.count > 1:
            told["turns"] = turns.count
        level = logging.WARNING if turns.now in TROUBLED else logging.INFO
        _log.log(level, Message("a server has changed", **fields, before=turns.said, **told))

    def _say_run(self, number: int, kind: int, run: JobRun, done_elsewhere: int) -> None:
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
    """Returns the log of a node's pool; None where its servers are alike."""
    servers = unlike_servers(machine.servers)
    return None if servers is None else PoolLog(machine.settings.cluster, servers)
