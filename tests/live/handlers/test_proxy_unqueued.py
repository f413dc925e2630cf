"""Requests that are passed to a service beside its servers: how many, what is told of each, once,
and that nothing is left of it. Times come by hand."""

import asyncio
import time
from contextlib import asynccontextmanager

import pytest

from spillover.core.overflow.held import HeldBytes
from spillover.live.engine.moving import Moving
from spillover.live.engine.timers import Timers
from spillover.live.handlers.proxy.handler import UNQUEUED_MAX
from spillover.live.handlers.proxy.unqueued import NotWhole, Unqueued
from spillover.model.causes import Cause
from spillover.model.passed import PassedRequest
from support.loop import until
from support.proxy_workers import Front, Saying, in_front_of, own

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
LEFT_S = 1_000.0
STALL_S = 50.0


class Beside:
    """What runs beside the servers of `front`; the timers ring by hand."""

    def __init__(self, front):
        self.loop = asyncio.get_running_loop()
        self.timers = Timers(self.loop)
        self.moving = Moving(self.timers, HeldBytes(), lambda _: None)
        self.unqueued = Unqueued(front.workers.upstreams, self.timers, self.moving)
        self.unqueued.stall_s = STALL_S

    def send(self, request=None, left_s=LEFT_S, on_piece=None):
        """The call, and all that is told of it."""
        told = []
        call = self.unqueued.send(
            own() if request is None else request,
            "r",
            time.monotonic() + left_s,
            lambda head: told.append(head.status),
            on_piece or told.append,
            told.append,
        )
        return call, told

    def ring(self, in_s):
        """All that is due until then."""
        self.timers.run_due(time.monotonic() + in_s)

    @property
    def is_idle(self):
        """Whether nothing is left of what ran: it counts nowhere, and nothing is to ring."""
        rings = [timer for _, _, timer in self.timers._heap if timer.ring is not None]
        return (self.moving.bytes, rings) == (0, []) and self.room == UNQUEUED_MAX

    @property
    def room(self):
        return UNQUEUED_MAX - self.unqueued._running


@asynccontextmanager
async def beside(*answers):
    async with in_front_of(*answers) as (front, *services):
        here = Beside(front)
        yield here, *services
        here.timers.close()


async def test_of_a_whole_answer_all_is_told_as_it_comes():
    said = Saying(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n",
        b"0\r\nA: b\r\n\r\n",
    )
    async with beside(said) as (here, service):
        call, told = here.send(own(method=b"POST", body=b"hello"))
        assert (here.moving.bytes, here.room) == (5, UNQUEUED_MAX - 1)
        assert (call.is_whole, call.size_bytes) == (False, 0), "it is handed on as it comes"
        said.go.release()
        await until(lambda: told == [200, b"ok"])
        said.go.release()
        await until(lambda: len(told) > 2)
        assert told == [200, b"ok", ((b"A", b"b"),)]
        assert here.is_idle
        call.cancel()  # as who asked closes its connection later
        here.ring(2 * LEFT_S)
        assert len(told) == 3
        assert here.is_idle
        ((head, body),) = service.seen
        assert body == b"hello"
        (line,) = [one for one in head.split(b"\r\n") if one.startswith(b"Spillover-Deadline-Ms")]
        assert 900_000 < int(line.split()[1]) <= 1_000_000


async def test_there_is_room_for_so_many_and_again_when_they_are_over():
    said = Saying()
    async with beside(said) as (here, _):
        for _ in range(2):
            calls = []
            for _ in range(UNQUEUED_MAX):
                assert not here.unqueued.is_full
                calls.append(here.send())
            assert here.unqueued.is_full
            for call, _ in calls:
                call.cancel()
            assert not here.unqueued.is_full
            assert all(told == [] for _, told in calls)


async def test_what_cannot_be_sent_is_told_at_once_and_leaves_nothing():
    async with beside(OK) as (here, service):
        bad = PassedRequest("POST", b"/", ((b"Host", b"h"), (b"A", b"b\r\nC: d")), b"hello")
        with pytest.raises(ValueError, match="another one"):
            here.send(bad)
        assert here.is_idle
        assert not service.seen


async def hang_up(talk, *_):
    talk.reset()


async def test_who_hangs_up_has_failed_and_another_one_is_asked_where_that_does_no_harm():
    async with beside(hang_up, OK) as (here, service, other):
        _, told = here.send(PassedRequest("POST", b"/", ((b"Host", b"h"),), b""))
        await until(lambda: told)
        (came_to,) = told
        assert isinstance(came_to, NotWhole)
        assert came_to.reason == "handler_failed"
        name = here.unqueued.upstreams._all[0].name
        assert came_to.detail.startswith(f"upstream {name}: the ")
        assert came_to.detail.endswith("before the answer was whole")
        assert (len(service.seen), len(other.seen)) == (1, 0)
        assert here.is_idle
        for _ in range(2):  # whoever is asked first
            _, told = here.send()
            await until(lambda told=told: told)
        assert len(other.seen) == 2


async def test_who_cannot_be_reached_is_passed_over_for_the_next_one():
    async with in_front_of(OK) as (_, service):
        front = Front(["http://127.0.0.1:1", service.url])
        here = Beside(front)
        _, told = here.send()
        await until(lambda: len(told) == 3)
        assert told == [200, b"ok", ()]
        assert [one.up for one in front.upstreams] == [False, True]
        assert here.is_idle
        here.timers.close()
        await front.workers.close()


@pytest.mark.parametrize("rings", [False, True])
async def test_where_nobody_can_be_reached_there_are_no_servers(rings):
    front = Front(["http://127.0.0.1:1"])
    here = Beside(front)
    front.workers.upstreams._on_health = lambda _: here.ring(2 * LEFT_S if rings else 0.0)
    _, told = here.send()
    await until(lambda: told)
    (came_to,) = told
    if rings:
        assert came_to.reason == "deadline_exceeded"
    else:
        assert came_to.reason == "no_servers"
        assert came_to.detail.startswith("upstream http://127.0.0.1:1/ cannot be reached: ")
    assert here.is_idle
    here.timers.close()
    await front.workers.close()


async def test_nobody_hears_of_what_was_canceled():
    said = Saying()
    async with beside(said) as (here, service):
        call, told = here.send(own(method=b"POST", body=b"hello"))
        await until(lambda: service.seen)
        for _ in range(2):
            call.cancel()
            assert here.is_idle
        await until(lambda: said.left)
        here.ring(2 * LEFT_S)
        assert told == []


async def test_what_is_late_is_given_up():
    said = Saying()
    async with beside(said) as (here, service):
        _, told = here.send()
        await until(lambda: service.seen)
        here.ring(LEFT_S / 2)
        assert told == []
        here.ring(LEFT_S)
        late = "the deadline passed before its answer was whole"
        assert told == [NotWhole("deadline_exceeded", late, Cause.TIMEOUT)]
        assert here.is_idle
        await until(lambda: said.left)


LONG = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n"


async def test_an_answer_that_nobody_reads_stands_still_for_so_long_and_no_longer():
    said = Saying(LONG)
    async with beside(said) as (here, _):
        call, told = here.send()
        said.go.release()
        await until(lambda: told == [200])
        call.pause()
        call.pause()
        here.ring(STALL_S / 2)
        assert told == [200]
        here.ring(STALL_S)
        why = "its client has read nothing of it for 50 s"
        assert told == [200, NotWhole("handler_failed", why, Cause.CLIENT)]
        assert here.is_idle
        call.pause()
        call.resume()
        assert here.is_idle
        await until(lambda: said.left)
        here.ring(2 * LEFT_S)
        assert len(told) == 2


async def test_an_answer_that_is_read_on_goes_on():
    said = Saying(LONG, b"ab", b"cd")
    async with beside(said) as (here, _):
        call, told = here.send()
        said.go.release()
        await until(lambda: told == [200])
        transport = call._exchange.connection._transport
        for piece in (b"ab", b"cd"):
            call.pause()
            call.pause()
            assert not transport.is_reading()
            call.resume()
            assert transport.is_reading()
            here.ring(2 * STALL_S)
            said.go.release()
            await until(lambda piece=piece: piece in told)
        await until(lambda: len(told) == 4)
        assert told == [200, b"ab", b"cd", ()]
        assert here.is_idle


async def test_what_is_paused_as_its_last_piece_comes_is_over_with_it():
    """Its client may read the rest when it likes."""
    async with beside(OK) as (here, _):
        calls = []
        call, told = here.send(on_piece=lambda _: calls[0].pause())
        calls.append(call)
        await until(lambda: len(told) == 2)
        assert told == [200, ()]
        assert here.is_idle
        here.ring(2 * LEFT_S)
        assert len(told) == 2
