"""What a node says of its end: what it still waits for, and what is lost with it."""

import asyncio
import logging
import re

import msgspec
import pytest

from spillover.core.overflow.events import Arrived
from spillover.core.overflow.idempotency import IdempotencyTable
from spillover.live.overflow import ending
from spillover.live.overflow.ending import Left
from spillover.live.overflow.home_requests import HomeRequests
from spillover.live.overflow.relay import Relays
from spillover.live.overflow.waiters import Waiters
from spillover.model.request import DONE, Answer, Request
from support.loop import turn

ANSWER = Answer(DONE, ("a",), msgspec.Raw(b"1"), None)


@pytest.fixture(autouse=True)
def every_line(caplog):
    caplog.set_level(logging.INFO, ending.__name__)


class Foreign:
    """Neighbors' requests, so many of them."""

    def __init__(self, number=0):
        self.settled, self.number = asyncio.Event(), number

    def __len__(self):
        return self.number

    def end(self):
        self.number -= 1
        self.settled.set()


class Clockwork:
    """Timers that never ring."""

    def at(self, due_s, ring):
        pass


def home(kept_s=60.0):
    """A node's own requests, and what takes one in."""
    refs, fed, waiters = iter(range(1, 100)), [], Waiters()
    relays = Relays(fed.append, waiters, Clockwork())
    names = IdempotencyTable(kept_s, 100, 10**6)
    held = HomeRequests("a", names, lambda: next(refs), fed.append, waiters, relays)

    def take(name, *, asynchronous=False):
        entry = held.take(Request(name, True, msgspec.Raw(b"1")), 1e9, asynchronous=asynchronous)
        assert isinstance(fed.pop(), Arrived)
        return entry

    return held, take


async def ended(held, timeout_s, results_timeout_s, foreign=None):
    """How long is waited. Nothing goes on behind it."""
    loop = asyncio.get_running_loop()
    before, began_s = asyncio.all_tasks(), loop.time()
    foreign = foreign or Foreign()
    await ending.wait_for_the_end(held, foreign, timeout_s, results_timeout_s)
    took_s = loop.time() - began_s
    await turn()
    assert asyncio.all_tasks() == before
    return took_s


def waits(caplog):
    """What is said to be waited for, and how long at most."""
    found = [
        re.fullmatch(r"ending: waits for (.*), at most (\d+\.\d) s more", one.getMessage())
        for one in caplog.records
    ]
    return [(one[1], float(one[2])) for one in found]


async def test_requests_are_waited_for_as_long_as_was_said(caplog):
    """It is told once for all, and not with each that ends."""
    held, take = home()
    first, _ = take("x"), take("y")
    asyncio.get_running_loop().call_later(0.05, held.answered, first.ref, ANSWER)
    assert 0.3 - 0.01 <= await ended(held, 0.3, 60.0) < 5.0
    assert waits(caplog) == [("2 requests under way", 0.3)]
    assert len(held) == 1


async def test_results_alone_are_waited_for_until_they_are_fetched_or_their_time_is_over(caplog):
    """From when the last of them came."""
    held, take = home()
    entry = take("x", asynchronous=True)
    held.answered(entry.ref, ANSWER)
    assert 0.2 - 0.01 <= await ended(held, 60.0, 0.2) < 5.0
    assert waits(caplog) == [("1 result that nobody has fetched", 0.2)]
    asyncio.get_running_loop().call_later(0.05, held.fetch, entry)
    assert await ended(held, 60.0, 50.0) < 5.0
    assert waits(caplog)[1:] == [("1 result that nobody has fetched", 50.0)]


async def test_neighbors_requests_are_waited_for_as_the_own_are(caplog, monkeypatch):
    """And the end of either is seen at once, not only at the next look."""
    monkeypatch.setattr(ending, "LOOK_EVERY_S", 9.0)

    held, take = home()
    entry, foreign = take("x"), Foreign(2)
    assert Left.of(held, foreign) == (3, 0)
    loop = asyncio.get_running_loop()
    ends = (foreign.end, lambda: held.answered(entry.ref, ANSWER), foreign.end)
    for number, end in enumerate(ends):
        loop.call_later(0.02 * number, end)
    assert await ended(held, 60.0, 60.0, foreign) < 5.0
    assert waits(caplog) == [("3 requests under way", 60.0)]


async def test_results_that_grow_too_old_are_waited_for_no_more(caplog, monkeypatch):
    """Nobody gives a sign of that."""
    monkeypatch.setattr(ending, "LOOK_EVERY_S", 0.02)

    held, take = home(kept_s=0.1)
    entry = take("x", asynchronous=True)
    held.answered(entry.ref, ANSWER)
    assert await ended(held, 60.0, 50.0) < 10.0
