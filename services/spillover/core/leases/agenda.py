"""The parts of a lease member share this: its times in s, the alarms that are due, and the
commands. No rules are here.

No rules here.
"""

from __future__ import annotations

from random import Random
from typing import Any, TypeVar

from spillover.core.agenda import Agenda
from spillover.core.leases import events as ev
from spillover.core.leases.settings import MemberSettings

A = TypeVar("A", bound=ev.Ask)

PERIOD_JITTER = 0.1
"""Periods vary by this share either way, so that members do not run in lockstep."""


class MemberAgenda(Agenda):
    """Reactions that are due, earliest first; commands, in order; numbers of asks."""

    def __init__(self, settings: MemberSettings, random: Random) -> None:
        super().__init__()
        times = settings.times
        self.settings = settings
        self.node = settings.node
        self.partitions = settings.partitions
        self.times = times
        self.random = random
        self.normal_s = times.normal_lease_ms / 1000.0
        self.max_lease_s = times.max_lease_ms / 1000.0
        self.max_shutdown_s = times.max_shutdown_ms / 1000.0
        self.min_grab_s = times.min_grab_ms / 1000.0
        self.held_delay_s = times.held_delay_ms / 1000.0
        self.entitled_share = 1.0 - times.fence_margin_ms / times.max_lease_ms
        """How much of a time that the store grants is relied on here: clocks run unlike."""
        self._out: list[ev.Command] = []
        self._numbers = 0

    def command(self, command: ev.Command) -> None:
        self._out.append(command)

    def ask(self, kind: type[A], now_s: float, *args: Any) -> A:
        self._numbers += 1
        ask = kind(self._numbers, now_s, *args)
        self._out.append(ask)
        return ask

    def tell(self, event: str, partition: int | None = None, epoch: int | None = None) -> None:
        self._out.append(ev.Tell(event, partition, epoch))

    def take_commands(self) -> list[ev.Command]:
        commands, self._out = self._out, []
        return commands

    def period_s(self) -> float:
        """Returns a period around the normal lease time, drawn."""
        return self.normal_s * (1.0 + PERIOD_JITTER * (2.0 * self.random.random() - 1.0))

    def lease_to_s(self, sent_s: float) -> float:
        """Returns the instant until which a lease asked for at `sent_s` may be relied on, whatever
        the way took."""
        return sent_s + self.max_lease_s * self.entitled_share
