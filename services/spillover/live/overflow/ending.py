"""The end of a node that drains: what it still waits for, for how long, and what it logs of that.

What a drain means for requests is the machine's business; how a process ends is the server's.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from spillover.core.overflow.events import Drain
from spillover.core.overflow.machine import NodeMachine
from spillover.live.overflow.foreign_requests import ForeignRequests
from spillover.live.overflow.home_requests import HomeRequests
from spillover.live.process.logs import Message

TELL_EVERY_S = 3.0
"""The time, in seconds, between two log lines of a drain on what it waits for."""

LOOK_EVERY_S = 0.5
"""The time, in seconds, between two looks at what is left, even without a sign of change: answers
that nobody fetches grow old."""

ENDING = "ending: "
"""The beginning of every log line about the end."""

DRAINED = "was drained before it was told to end"
"""The log's words on a node that an operator has taken out of service: whoever looks after the node
leaves it so."""

NAMES_PER_LINE, NAMES_MAX = 50, 10_000
"""The largest numbers of names of lost results, in a line and in all. A line has to be readable,
and an end must not take minutes to log."""

_log = logging.getLogger(__name__)


class Left(NamedTuple):
    """The losses of a node if it ended now."""

    requests: int
    """The number of requests under way, including those of neighbors."""
    results: int
    """The number of results of asynchronous requests that nobody has fetched: they are in memory
    alone."""

    @classmethod
    def of(cls, home_requests: HomeRequests, foreign_requests: ForeignRequests) -> Left:
        return cls(len(home_requests) + len(foreign_requests), home_requests.unfetched)

    def __str__(self) -> str:
        parts = []
        if self.requests:
            parts.append(f"{_count(self.requests, 'request')} under way")
        if self.results:
            parts.append(f"{_count(self.results, 'result')} that nobody has fetched")
        return " and ".join(parts) or "nothing"


class Leaving:
    """The state in which clients of a node are to go elsewhere, since it drains."""

    def __init__(self, machine: NodeMachine) -> None:
        self._machine = machine
        self._told = False
        self.on_change: list[Callable[[bool], None]] = []
        """The callables that tell clients to go, or that they may stay."""
        self.lame_duck_s = 0.0
        """The time, in seconds, for which a node that drains serves clients as ever; the server of
        the node sets it."""

    def look(self) -> None:
        """Tell clients to go, or that they may stay, if that has changed. This is called whenever
        it may have."""
        if self._machine.draining is not self._told:
            self._told = self._machine.draining
            for tell in self.on_change:
                tell(self._told)


async def serve_as_lame_duck(
    machine: NodeMachine, feed: Callable[[Any], None], lame_duck_s: float
) -> None:
    """Begin to drain, and return when the lame duck is over: until then clients are served as if
    nothing were."""
    feed(Drain(lame_duck_s))
    if machine.lame_duck:
        rest_s = machine.admission.lame_until_s - time.monotonic()
        _log.info("%sserves clients for %.1f s more, till balancers know", ENDING, rest_s)
        await asyncio.sleep(rest_s)
        feed(Drain())  # also if somebody has resumed it: it ends


async def wait_for_the_end(
    home_requests: HomeRequests,
    foreign_requests: ForeignRequests,
    timeout_s: float,
    results_timeout_s: float,
) -> float:
    """Return when nothing is left of what is here now, or after `timeout_s`. Returns how much of
    that is left.

    If only results are left, they are waited for no longer than `results_timeout_s`, from now or
    from the time when the last of them came. Clients may go on to send requests that neighbors
    take; those are not waited for, or there would be no end.
    """
    begun_s = time.monotonic()
    newest = home_requests.newest
    told_s = -math.inf
    while True:
        left, now_s = Left.of(home_requests, foreign_requests), time.monotonic()
        is_busy = len(foreign_requests) > 0 or home_requests.has_up_to(newest)
        results_until_s = max(begun_s, home_requests.result_s) + results_timeout_s
        until_s = begun_s + timeout_s
        if not is_busy:
            until_s = min(until_s, results_until_s)
        if not (is_busy or left.results) or now_s >= until_s:
            return max(0.0, begun_s + timeout_s - now_s)
        if now_s >= told_s + TELL_EVERY_S:
            told_s = now_s
            _log.info("%swaits for %s, at most %.1f s more", ENDING, left, until_s - now_s)
        await _sign(home_requests, foreign_requests, min(until_s - now_s, LOOK_EVERY_S))


async def wait_for_requests(
    home_requests: HomeRequests, foreign_requests: ForeignRequests, timeout_s: float
) -> None:
    """Return when no request is under way, or after `timeout_s`."""
    until_s = time.monotonic() + timeout_s
    while home_requests or foreign_requests:
        rest_s = until_s - time.monotonic()
        if rest_s <= 0:
            return
        await _sign(home_requests, foreign_requests, min(rest_s, LOOK_EVERY_S))


async def _sign(
    home_requests: HomeRequests, foreign_requests: ForeignRequests, timeout_s: float
) -> None:
    """Wait until less may be left than before."""
    parts = (home_requests, foreign_requests)
    for part in parts:
        part.settled.clear()
    waits = [asyncio.ensure_future(part.settled.wait()) for part in parts]
    try:
        await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


def tell_lost(left: Left, results: Sequence[str] = ()) -> None:
    """Log what is lost now that the node ends, if anything is, with the names of the results."""
    if not any(left):
        return
    _log.warning("%slost %s", ENDING, left)
    told = results[:NAMES_MAX]
    for at in range(0, len(told), NAMES_PER_LINE):
        names = list(told[at : at + NAMES_PER_LINE])
        _log.warning(Message("results that are lost", names=names))
    if len(results) > NAMES_MAX:
        _log.warning(Message("more results are lost", count=len(results) - NAMES_MAX))


def tell_drained(machine: NodeMachine) -> None:
    """Log that an operator had drained the node. This is called when the node is told to end,
    before it drains because of that."""
    if machine.draining:
        _log.info("%s%s", ENDING, DRAINED)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
