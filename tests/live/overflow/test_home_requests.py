"""Requests of a node's own clients: what is forgotten in time, and what is not taken any more."""

import math
import time

import msgspec

from spillover.core.overflow import events as ev
from spillover.core.overflow.idempotency import IdempotencyTable
from spillover.core.overflow.quotas import Quotas
from spillover.live.overflow.home_requests import HomeRequests
from spillover.live.overflow.relay import Relays
from spillover.live.overflow.waiters import Waiters
from spillover.model.access import NO_QUOTA
from spillover.model.ids import request_id_of
from spillover.model.passed import PassedRequest
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
        self.due = []
        """Other requests that are refused when the next event comes in."""
        self.refs = iter(range(1, 100))
        self.names = IdempotencyTable(kept_s, 100, 10**6)
        self.waiters = Waiters()
        fed = (lambda: next(self.refs), self._feed)
        self.relays = Relays(self._feed, self.waiters, Clockwork())
        self.held = HomeRequests("a", self.names, *fed, self.waiters, self.relays)

    def _feed(self, event):
        self.events.append(event)
        while self.due:
            self.held.refused(ev.Refuse(self.due.pop().ref, ev.HOME, Refusal.MEMORY_FULL, 1.0))
        if self.refuses:
            self.held.refused(ev.Refuse(event.ref, ev.HOME, Refusal.QUEUE_FULL, 1.0))

    def take(self, name="x", *, asynchronous=False, keyed=True, work=b"1"):
        request = Request(name, keyed=keyed, work=msgspec.Raw(work))
        return self.held.take(request, 1e9, asynchronous=asynchronous)

    def take_passed(self, sink, name="x", *, keyed=True):
        work = PassedRequest("GET", b"/", (), b"").encode()
        return self.held.take_passed(Request(name, keyed=keyed, work=work), 1e9, sink)


class Settled(list):
    """A sink for which nothing begins."""

    def settle(self, told):
        self.append(told)


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


def test_what_is_taken_while_another_request_is_refused_is_taken_all_the_same():
    """An event that comes in may find others due: each is told what it came to itself."""
    door = Door()
    door.due.append(door.take("first"))
    entry = door.take("x")
    assert door.held.find("x") is entry
    assert door.held.find("first") is None


def test_everyone_who_waits_is_told_of_the_answer():
    door = Door()
    entry, told = door.take(), []
    door.waiters.wait(entry.ref, told.append)
    door.held.settled.clear()
    door.held.answered(entry.ref, FAILED)
    assert door.held.settled.is_set()
    assert told == [FAILED]


def test_leaving_and_cancelling_are_not_the_same():
    """Whoever leaves wants no answer, whoever cancels does."""
    door = Door()
    entry = door.take()
    door.held.abandon(entry)
    door.held.cancel(entry)
    assert door.events[1:] == [ev.Cancelled(entry.ref), ev.CancelAsked(entry.ref)]


def test_what_a_tenant_uses_is_counted_until_its_request_has_ended_or_was_refused():
    """By whatever door it came in; the name that a request is given here is one of its tenant's."""
    door = Door()
    quotas = door.held.quotas = Quotas()
    quotas.go_by({"shop": NO_QUOTA, "": NO_QUOTA}, 0.0)

    def queued():
        quotas.check()
        return [quotas.uses[tenant].queued for tenant in ("shop", "")]

    entries = [
        door.take(request_id_of("shop", "x")),
        door.take(request_id_of("shop", ""), keyed=False),
        door.take("x"),
        door.take_passed(Settled(), request_id_of("shop", ""), keyed=False),
    ]
    assert queued() == [3, 1]
    for entry in entries:
        door.held.answered(entry.ref, DONE)
    assert queued() == [0, 0]
    door.refuses = True
    assert door.take(request_id_of("shop", "y")).reason is Refusal.QUEUE_FULL
    assert queued() == [0, 0]
    assert all(use.running == 0 for use in quotas.uses.values())


def test_only_results_that_somebody_has_to_come_for_hold_up_the_end():
    """Who waits for the answer on its connection has it."""
    door = Door()
    for ask in (door.take, lambda: door.take("", keyed=False), lambda: door.take_passed(Settled())):
        door.held.answered(ask().ref, DONE)
        assert (door.held.unfetched, door.held.result_s) == (0, -math.inf)


def test_what_is_refused_later_tells_all_who_wait_and_is_never_accepted():
    """Its acceptance was to be confirmed, and was not."""
    door, told, accepted = Door(), [], []
    entry = door.take()
    door.waiters.wait(entry.ref, told.append)
    door.held.confirm(ev.Confirm(entry.ref, None, ev.HOME, 1e9))
    assert door.held.is_unconfirmed(entry)
    door.held.when_accepted(entry, lambda: accepted.append(entry.name))
    door.held.settled.clear()
    refused = ev.Refuse(entry.ref, ev.HOME, Refusal.MEMORY_FULL, 1.0)
    assert door.held.refused(refused) is entry
    assert told == [refused]
    assert door.held.settled.is_set()
    assert not door.held.is_unconfirmed(entry)
    door.held.accepted(entry.ref)
    assert accepted == []


def test_all_are_told_once_that_what_was_unconfirmed_is_accepted():
    door, accepted = Door(), []
    entries = [door.take("x"), door.take("", keyed=False)]
    for entry in entries:
        door.held.confirm(ev.Confirm(entry.ref, None, ev.HOME, 1e9))
        for number in range(2):
            door.held.when_accepted(entry, lambda told=(entry, number): accepted.append(told))
        for _ in range(2):
            door.held.accepted(entry.ref)
        assert not door.held.is_unconfirmed(entry)
    assert accepted == [(entry, number) for entry in entries for number in range(2)]
    door.held.accepted(99)  # a neighbor's
