"""What the parts of a lease member share: who it is, its times in s, what is due, what it commands.

No rules here.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

from spillover.core.leases import events as ev
from spillover.core.leases.records import check_name, check_partitions
from spillover.model.errors import InputError
from spillover.model.lease_times import LEASE_BALANCES, LeaseTimes

A = TypeVar("A", bound=ev.Ask)

PERIOD_JITTER = 0.1
"""Periods vary by this share either way, so that members do not run in lockstep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings:
    """One member of a group of `partitions` partitions. Raises InputError."""

    node: str
    partitions: int
    times: LeaseTimes = field(default_factory=LeaseTimes)
    balance: str = "count"
    """What the group is evened out by: `count` or `load`; the same for all its members."""

    def __post_init__(self) -> None:
        check_name("lease member", "node", self.node)
        check_partitions("lease member", self.partitions)
        if self.balance not in LEASE_BALANCES:
            expected = f"expected one of {', '.join(LEASE_BALANCES)}, got {self.balance!r}"
            raise InputError("lease member", "balance", expected)


class Agenda:
    """Reactions that are due, earliest first; commands, in order; numbers of asks."""

    def __init__(self, settings: MemberSettings, random: Random) -> None:
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
        self._out: list[Any] = []
        self._agenda: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._made = 0
        self._numbers = 0

    def at(self, due_s: float, react: Callable[..., None], *args: Any) -> None:
        """Have `react(*args, now_s)` called once that time has come. Nothing is taken back: what
        reacts looks whether it still should."""
        self._made += 1
        heapq.heappush(self._agenda, (due_s, self._made, react, args))

    def first_s(self) -> float:
        return self._agenda[0][0] if self._agenda else math.inf

    def run_due(self, now_s: float) -> None:
        while self._agenda and self._agenda[0][0] <= now_s:
            _, _, react, args = heapq.heappop(self._agenda)
            react(*args, now_s)

    def clear_agenda(self) -> None:
        self._agenda.clear()

    def command(self, command: Any) -> None:
        self._out.append(command)

    def ask(self, kind: type[A], now_s: float, *args: Any) -> A:
        """Command an ask of that kind."""
        self._numbers += 1
        ask = kind(self._numbers, now_s, *args)
        self._out.append(ask)
        return ask

    def tell(self, event: str, partition: int | None = None, epoch: int | None = None) -> None:
        self._out.append(ev.Tell(event, partition, epoch))

    def take_commands(self) -> list[Any]:
        commands, self._out = self._out, []
        return commands

    def period_s(self) -> float:
        """Returns a period around the normal lease time, drawn."""
        return self.normal_s * (1.0 + PERIOD_JITTER * (2.0 * self.random.random() - 1.0))

    def lease_to_s(self, sent_s: float) -> float:
        """Until when a lease asked for at `sent_s` may be relied on, whatever the way took."""
        return sent_s + self.max_lease_s * self.entitled_share
