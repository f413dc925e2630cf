"""Requests of a node's own clients: what is forgotten in time, and what is not taken any more."""

from __future__ import annotations

import math
import time

import msgspec

from spillover.core.overflow import events as ev
from spillover.core.overflow.idempotency import IdempotencyTable
from spillover.live.overflow.home_requests import HomeRequests
from spillover.live.overflow.relay import Relays
from spillover.live.overflow.waiters import Waiters
from spillover.model.request import Answer, Outcome, Refusal, Request

DONE = Answer(Outcome.DONE, ("a",), msgspec.Raw(b"1"), None)
FAILED = Answer(Outcome.FAILED, ("a",), None, "it broke")


class Clockwork:
    """Timers that never ring."""

    def at(self, due_s, ring):
        pass


class Door:
    """Home requests; `events` has what the machine would get, `refuses` makes it refuse all."""

    def __init__(self, *, kept_s=60.0):
        self.events = []
        self.refuses = False
        self.refs = iter(range(1, 100))
        self.names = IdempotencyTable(kept_s, 100, 10**6)
        self.waiters = Waiters()
        fed = (lambda: next(self.refs), self._feed)
        self.relays = Relays(self._feed, self.waiters, Clockwork())
        self.held = HomeRequests("a", self.names, *fed, self.waiters, self.relays)

    def _feed(self, event):
        self.events.append(event)
        if self.refuses:
            self.held.refused(ev.Refuse(event.ref, ev.HOME, Refusal.QUEUE_FULL, 1.0))

    def take(self, name="x", *, asynchronous=False, keyed=True, work=b"1"):
        request = Request(name, keyed=keyed, work=msgspec.Raw(work))
        return self.held.take(request, 1e9, asynchronous=asynchronous)


def test_a_result_that_nobody_fetches_is_not_waited_for_beyond_its_time():
    """A node that drains asks for nothing else than how many are left."""
    door = Door(kept_s=0.05)
    entry = door.take(asynchronous=True)
    door.held.answered(entry.ref, DONE)
    assert door.held.unfetched == 1
    over_s = time.monotonic() + 5.0
    while door.held.unfetched:
        assert time.monotonic() < over_s
    assert door.held.find("x") is None


def test_what_was_fetched_is_waited_for_no_more():
    """And whoever waits for the end is told."""
    door = Door()
    entry = door.take(asynchronous=True)
    assert door.held.result_s == -math.inf
    door.held.answered(entry.ref, DONE)
    assert door.held.result_s == entry.ended_s
    assert (len(door.held), door.held.unfetched) == (0, 1)
    door.held.settled.clear()
    door.held.fetch(entry)
    assert door.held.settled.is_set()
    assert door.held.unfetched == 0


def test_a_node_that_ends_takes_nothing():
    """It would never be answered."""
    door = Door()
    door.take("early")
    door.held.close()
    refused = door.take("late")
    assert (refused.reason, refused.origin) == (Refusal.DRAINING, ev.HOME)
    assert refused.retry_after_s == 0.0, "another node may take it now"
    assert [event.request.id for event in door.events] == ["early"]
    assert len(door.held) == 0


def test_what_is_refused_leaves_its_name_free_and_the_next_is_taken():
    """A refusal is not the answer to what comes after it."""
    door = Door()
    door.refuses = True
    assert door.take().reason is Refusal.QUEUE_FULL
    assert door.held.find("x") is None
    assert len(door.held) == 0
    door.refuses = False
    entry = door.take()
    assert door.held.find("x") is entry
    assert len(door.held) == 1


def test_everyone_who_waits_is_told_of_the_answer():
    door = Door()
    entry, told = door.take(), []
    door.waiters.wait(entry.ref, told.append)
    door.held.settled.clear()
    door.held.answered(entry.ref, FAILED)
    assert door.held.settled.is_set()
    assert told == [FAILED]


def test_who_has_no_name_is_given_one_that_nobody_has():
    door = Door()
    names = {door.take("", keyed=False).name for _ in range(50)}
    assert len(names) == 50
    assert all(name.startswith("a-") for name in names)


def test_leaving_and_cancelling_are_not_the_same():
    """Whoever leaves wants no answer, whoever cancels does."""
    door = Door()
    entry = door.take()
    door.held.abandon(entry)
    door.held.cancel(entry)
    assert door.events[1:] == [ev.Cancelled(entry.ref), ev.CancelAsked(entry.ref)]
