"""What the log of a node says of its condition: where work fails, somebody should look at what runs
it, and where the ledger is off, at this program.
"""

from __future__ import annotations

import logging

from spillover.core.overflow.decisions import RESTING
from spillover.core.overflow.health import DEGRADED
from spillover.core.overflow.machine import NodeMachine
from spillover.live.process.logs import Message, OncePerPeriod

_log = logging.getLogger(__name__)
_log.addFilter(OncePerPeriod())


class ConditionLog:
    """Of one node."""

    def __init__(self, machine: NodeMachine) -> None:
        self._machine = machine
        self._condition = machine.condition
        """As it was last told."""

    def look(self, now_s: float) -> None:
        """Say what has changed."""
        machine = self._machine
        before, now = self._condition, machine.condition
        if now != before:
            self._condition = now
            level = logging.WARNING if now in (DEGRADED, RESTING) else logging.INFO
            share = machine.health.failed_share(now_s)
            told = {"health": now, "before": before, "failed_share": share}
            _log.log(level, Message("health has changed", **told))
        if imbalance := machine.ledger.imbalance():
            ledger = machine.ledger.as_dict()
            _log.error(Message("the ledger is off", imbalance=imbalance, ledger=ledger))
