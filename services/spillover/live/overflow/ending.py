"""The end of a node that drains: what it still waits for, how long, and that it says so.

What a drain means for requests is the machine's business, how a process ends is the server's.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Sequence
from typing import NamedTuple

from spillover.live.overflow.foreign_requests import ForeignRequests
from spillover.live.overflow.home_requests import HomeRequests
from spillover.live.process.logs import Message

TELL_EVERY_S = 3.0
"""So often a drain says what it waits for."""

LOOK_EVERY_S = 0.5
"""Also without a sign: answers that nobody fetches grow old."""

ENDING = "ending: "
"""How every log line about the end begins."""

NAMES_PER_LINE, NAMES_MAX = 50, 10_000
"""Of results that are lost: a line can be read, and an end does not take minutes to tell."""

_log = logging.getLogger(__name__)


class Left(NamedTuple):
    """What a node would lose if it ended now."""

    requests: int
    """Under way, neighbors' too."""
    results: int
    """Of asynchronous requests, that nobody has fetched: they are in memory alone."""

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


async def wait_for_the_end(
    home_requests: HomeRequests,
    foreign_requests: ForeignRequests,
    timeout_s: float,
    results_timeout_s: float,
) -> None:
    """Return when nothing is left, or after `timeout_s`. Where only results are left, they are
    waited for no longer than `results_timeout_s` from now or from when the last of them came."""
    begun_s = time.monotonic()
    told_s = -math.inf
    while True:
        left, now_s = Left.of(home_requests, foreign_requests), time.monotonic()
        results_until_s = max(begun_s, home_requests.result_s) + results_timeout_s
        until_s = begun_s + timeout_s
        if not left.requests:
            until_s = min(until_s, results_until_s)
        if not any(left) or now_s >= until_s:
            return
        if now_s >= told_s + TELL_EVERY_S:
            told_s = now_s
            _log.info("%swaits for %s, at most %.1f s more", ENDING, left, until_s - now_s)
        await _sign(home_requests, foreign_requests, min(until_s - now_s, LOOK_EVERY_S))


async def _sign(
    home_requests: HomeRequests, foreign_requests: ForeignRequests, timeout_s: float
) -> None:
    """Wait until there may be less left than before."""
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
    """Say what is lost now that the node ends, if anything is, and the names of the results."""
    if not any(left):
        return
    _log.warning("%slost %s", ENDING, left)
    told = results[:NAMES_MAX]
    for at in range(0, len(told), NAMES_PER_LINE):
        names = list(told[at : at + NAMES_PER_LINE])
        _log.warning(Message(f"{ENDING}results that are lost", names=names))
    if len(results) > NAMES_MAX:
        _log.warning(Message(f"{ENDING}more results are lost", count=len(results) - NAMES_MAX))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
