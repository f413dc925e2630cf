"""Steps: what is to be asked of Redis and of handlers, in which order, without doing any of it.

A step is a generator that yields what it wants done and gets the answer, or the error, back.
`client` carries it out, synchronously or on an event loop: one logic, two kinds of use.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass
from random import Random
from time import monotonic
from typing import Any, Protocol, TypeVar

from spillover.live.redis.connection import Script
from spillover.model.errors import StoreUnreachable
from spillover.policy.backoff import backoff_s

T = TypeVar("T")

RETRY_FIRST_S = 0.02
RETRY_LONGEST_S = 1.0


@dataclass(frozen=True, slots=True)
class Run:
    """One script. Errors: StoreRefused, StoreUnreachable."""

    script: Script
    keys: tuple[str, ...]
    arguments: tuple[str | bytes | int, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait until something lies in the stream behind the id, or for so long, or until told to
    stop."""

    stream: str
    id: str
    limit_s: float


@dataclass(frozen=True, slots=True)
class Pause:
    """Pause for so long, or until told to stop."""

    for_s: float


@dataclass(frozen=True, slots=True)
class Call:
    """The user's function, plain or async. Errors: whatever it raises."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Begin:
    """Carry out other steps meanwhile; answered at once by a ticket for `Take`."""

    steps: Generator[Any, Any, Any]


@dataclass(frozen=True, slots=True)
class Take:
    """The answer, or the error, of what was begun."""

    ticket: Any


Ask = Run | Wait | Pause | Call | Begin | Take
Steps = Generator[Ask, Any, T]


class Stop(Protocol):
    """threading.Event, asyncio.Event, or a lease's."""

    def is_set(self) -> bool: ...


class Holder(Protocol):
    """The part of `renewal.lease.Lease` that steps need."""

    def check(self) -> None:
        """Raise Fenced if the holder may act no more."""

    def progress(self) -> None:
        """Say that the handler gets on; raises as well."""

    def report_load(self, amount: float) -> None:
        """Say how much work has been done."""


class NoLease:
    """The lease of a reader without one: only the epoch protects."""

    def check(self) -> None:
        return

    def progress(self) -> None:
        return

    def report_load(self, amount: float) -> None:
        del amount


class Guard:
    """Tells until when steps may go on, and when to try again."""

    def __init__(
        self, lease: Holder | None, stop: Stop | None, retry_s: float, random: Random
    ) -> None:
        self.stop: Stop = stop or threading.Event()
        self.reports = False
        """True where the lease gets progress: a handler that begins with it has to go on, in
        time."""
        self._lease = lease or NoLease()
        self._retry_s = retry_s
        self._random = random

    def check(self) -> None:
        """Raise Fenced if the holder may act no more."""
        if self.reports:
            self._lease.progress()
        else:
            self._lease.check()

    def report_load(self, records: int) -> None:
        """So many were handled: what the partition counts for, where the group goes by loads."""
        self._lease.report_load(records)

    def patiently(self, ask: Ask) -> Steps[Any]:
        """Ask until there is an answer: as long as the lease lasts, for `retry_s` at most, and once
        only after being told to stop. Raises Fenced, or StoreUnreachable at last."""
        began_s, attempt = monotonic(), 0
        while True:
            self.check()
            try:
                return (yield ask)
            except StoreUnreachable:
                if self.stop.is_set() or monotonic() - began_s > self._retry_s:
                    raise
            draw = self._random.random()
            yield Pause(backoff_s(attempt, RETRY_FIRST_S, RETRY_LONGEST_S, draw))
            attempt += 1
