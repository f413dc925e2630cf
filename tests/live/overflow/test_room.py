"""Answers that are kept give way to what is held, and memory that is free is given back."""

import asyncio

import msgspec
import pytest

from spillover.core.overflow.events import Accepted
from spillover.core.overflow.held import HeldBytes
from spillover.core.overflow.idempotency import ENTRY_BYTES, IdempotencyRecord, IdempotencyTable
from spillover.live.engine.moving import Moving
from spillover.live.engine.timers import Timers
from spillover.live.overflow.room import Room
from spillover.live.process.allocator import GIVEN_BACK_BYTES
from spillover.model.request import DONE, Answer, Request

KIB = 1024
LIMIT_BYTES = 100 * KIB
RESULT = msgspec.Raw(b"x" * (10 * KIB - ENTRY_BYTES))
"""What is kept with it takes ten KiB."""


class Kept:
    """A node with room for a hundred KiB, and answers of ten each."""

    def __init__(self, timers):
        self.held = HeldBytes(LIMIT_BYTES)
        self.moving = Moving(timers, self.held, lambda _: None)
        self.names = IdempotencyTable(60.0, 1000, LIMIT_BYTES)
        self.room = Room(self.held, self.moving, self.names)
        self.refs = iter(range(1, 1000))

    def keep(self, number, ended_s=0.0):
        for _ in range(number):
            ref = next(self.refs)
            entry = IdempotencyRecord(Request(f"r{ref}", True, b""), ref, b"", asynchronous=False)
            self.names.open(entry)
            self.names.settle(entry, Answer(DONE, ("a",), RESULT), ended_s)

    @property
    def kept(self):
        self.names.check()
        return self.names.kept_bytes // (10 * KIB)


@pytest.fixture
def at():
    loop = asyncio.new_event_loop()
    timers = Timers(loop)
    yield Kept(timers)
    timers.close()
    loop.close()


def test_answers_give_way_to_each_request_that_is_accepted(at):
    at.keep(10)
    assert at.kept == 10
    for held_kib, kept in ((30, 7), (35, 6), (100, 0)):
        at.held.request_bytes = held_kib * KIB
        at.room.on_accepted(Accepted(1))
        assert at.kept == kept
    at.held.request_bytes = 0
    at.room.make()
    at.keep(20)
    assert at.kept == 10, "there is room again"


def test_what_is_moving_counts_as_what_is_held(at):
    at.keep(10)
    at.held.request_bytes, at.held.moving_bytes = 10 * KIB, 20 * KIB
    at.room.on_accepted(Accepted(1))
    assert at.kept == 7


def test_a_report_forgets_what_was_kept_for_long_enough_and_makes_room(at):
    at.keep(5, ended_s=0.0)
    at.keep(5, ended_s=30.0)
    at.room.on_report(60.0)
    assert at.kept == 5
    at.held.request_bytes = 80 * KIB
    at.room.on_report(60.0)
    assert at.kept == 2


def test_memory_is_given_back_after_a_flood(at):
    """Once much less is held than there was at most, kept answers included."""
    at.held.request_bytes = GIVEN_BACK_BYTES + 50 * KIB
    at.room.make()
    at.held.request_bytes = 60 * KIB
    at.room.on_report(1000.0)
    assert at.room._freed.most_bytes == GIVEN_BACK_BYTES + 50 * KIB, "it is not little enough"
    at.keep(1, ended_s=1000.0)
    at.held.request_bytes = 40 * KIB
    at.room.on_report(1000.0)
    assert at.room._freed.most_bytes == at.room.held_bytes == 50 * KIB
