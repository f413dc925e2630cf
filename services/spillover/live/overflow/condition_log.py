"""The log lines about a node's condition. They say where somebody should look: where work fails, at
what runs it; where a neighbor loses work, at the neighbor or at the way there; where the ledger is
off, at this program."""

from __future__ import annotations

import logging

from spillover.core.overflow.decisions import RESTING
from spillover.core.overflow.health import DEGRADED
from spillover.core.overflow.machine import NodeMachine
from spillover.live.process.logs import Message, OncePerPeriod
from spillover.model.ids import ClusterId

_log = logging.getLogger(__name__)
_log.addFilter(OncePerPeriod())


class ConditionLog:
    """The condition log of one node."""

    def __init__(self, machine: NodeMachine) -> None:
        self._machine = machine
        self._condition = machine.condition
        """The condition that was last logged."""
        self._avoided: set[ClusterId] = set()
        """The neighbors that were avoided when something was last logged."""

    def look(self, now_s: float) -> None:
        machine = self._machine
        before, now = self._condition, machine.condition
        if now != before:
            self._condition = now
            level = logging.WARNING if now in (DEGRADED, RESTING) else logging.INFO
            share = machine.health.failed_share(now_s)
            told = {"health": now, "before": before, "failed_share": share}
            _log.log(level, Message("health has changed", **told))
        avoided = {one.id for one in machine.neighbors if one.avoided}
        if avoided != self._avoided:
            for one in avoided - self._avoided:
                missed = machine.neighbors.by_handle[machine.neighbors.index[one]].away.missed
                _log.warning(Message("neighbor is avoided", neighbor=one, missed=missed))
            for one in self._avoided - avoided:
                _log.info(Message("neighbor is avoided no more", neighbor=one))
            self._avoided = avoided
        if imbalance := machine.ledger.imbalance():
            ledger = machine.ledger.as_dict()
            _log.error(Message("the ledger is off", imbalance=imbalance, ledger=ledger))
