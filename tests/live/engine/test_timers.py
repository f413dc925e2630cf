"""The one heap of deadlines of a node, on both event loops and on the real clock."""

import asyncio
import math
import random
import sys
import time
from functools import partial

import pytest
import uvloop

from spillover.live.engine.alarms import LoopAlarm, TimerFdAlarm
from spillover.live.engine.timers import Timers
from support.loop import turn, until

LIMIT_S = 20.0

BY_NAME = {
    "asyncio": (asyncio.new_event_loop, LoopAlarm),
    "uvloop": (uvloop.new_event_loop, LoopAlarm),
    "timerfd on asyncio": (asyncio.new_event_loop, TimerFdAlarm),
    "timerfd on uvloop": (uvloop.new_event_loop, TimerFdAlarm),
}


@pytest.fixture(params=BY_NAME)
def kind(request, require):
    """An event loop's factory and an alarm."""
    factory, alarm = BY_NAME[request.param]
    require(alarm is LoopAlarm or sys.platform == "linux", "timerfd is of Linux")
    return factory, alarm


@pytest.fixture
def made():
    """Timers that were made, to be closed before their loop."""
    return []


@pytest.fixture
def new_timers(kind, made):
    """Makes timers of this kind."""

    def new(loop):
        made.append(Timers(loop, kind[1]))
        return made[-1]

    return new


@pytest.fixture
def run(kind, made):
    """Runs a coroutine to its end on either event loop, under a time limit."""

    async def limited(main):
        try:
            await asyncio.wait_for(main, LIMIT_S)
        finally:
            for timers in made:
                timers.close()

    def run_to_end(main):
        with asyncio.Runner(loop_factory=kind[0]) as runner:
            return runner.run(limited(main))

    return run_to_end


class Bell:
    """Notes the instants it rang for, and those it rang at; `rung` once there are `count`."""

    def __init__(self, count):
        self.due = []
        self.at = []
        self.count = count
        self.rung = asyncio.Event()

    def ring(self, due_s):
        self.due.append(due_s)
        self.at.append(time.monotonic())
        if len(self.due) >= self.count:
            self.rung.set()


async def test_timers_ring_in_order_never_early_and_with_their_own_instant(new_timers):
    """What was asked for is what is handed in, in order of time, and never before its time."""
    timers, bell = new_timers(asyncio.get_running_loop()), Bell(200)
    start_s, draw = time.monotonic(), random.Random(1)
    wanted = [start_s + draw.random() * 0.2 for _ in range(200)]
    for due_s in wanted:
        timers.at(due_s, bell.ring)
    await bell.rung.wait()
    assert bell.due == sorted(wanted)
    assert all(at_s >= due_s for at_s, due_s in zip(bell.at, bell.due, strict=True))
    assert len(timers) == 0


async def test_it_wakes_about_once_for_each_instant(kind, made):
    """No busy spin: an early wake of the loop costs one more, not many."""
    count, woken = 10, []

    def make_alarm(loop, wake):
        return kind[1](loop, lambda: (woken.append(1), wake()))

    timers, bell = Timers(asyncio.get_running_loop(), make_alarm), Bell(count)
    made.append(timers)
    start_s = time.monotonic()
    for number in range(count):
        timers.at(start_s + 0.0034 * (number + 1), bell.ring)
    await bell.rung.wait()
    await turn(0.005)
    assert len(woken) <= 2 * count + 1


async def test_the_largest_lag_is_told_once(new_timers):
    """However punctual the timers after it are; and what was told is forgotten."""
    timers, bell, last = new_timers(asyncio.get_running_loop()), Bell(1), Bell(1)
    timers.at(time.monotonic() - 0.5, bell.ring)
    await bell.rung.wait()
    timers.at(time.monotonic() + 0.005, last.ring)
    await last.rung.wait()
    assert 0.5 <= timers.take_lag_s() < LIMIT_S
    assert timers.take_lag_s() == 0.0


async def test_timers_set_while_ringing_ring_too(new_timers):
    """Set for the past or for now they ring in the same round, set for later at their time."""
    timers, bell = new_timers(asyncio.get_running_loop()), Bell(4)
    start_s = time.monotonic()

    def ring(due_s):
        bell.ring(due_s)
        for delay_s in (0.03, 0.0, -1.0):
            timers.at(due_s + delay_s, bell.ring)

    timers.at(start_s + 0.01, ring)
    await bell.rung.wait()
    first_s = start_s + 0.01
    assert bell.due == [first_s, first_s - 1.0, first_s, first_s + 0.03]


async def test_cancelled_timers_never_ring_and_take_no_memory(new_timers):
    """A heap of far-off timers that were cancelled is swept out."""
    timers, bell = new_timers(asyncio.get_running_loop()), Bell(1)
    start_s = time.monotonic()
    for _ in range(10_000):
        timers.at(start_s + 3600.0, bell.ring).cancel()
    assert len(timers) < 200
    timer = timers.at(start_s + 0.001, bell.ring)
    timer.cancel()
    timer.cancel()
    timers.at(start_s + 0.02, bell.ring)
    await bell.rung.wait()
    assert bell.due == [start_s + 0.02]
    assert len(timers) < 200


async def test_a_callback_that_raises_stops_no_other(new_timers):
    """Its error goes to the loop's exception handler, and the rest ring."""
    loop = asyncio.get_running_loop()
    told = []
    loop.set_exception_handler(lambda _, context: told.append(context["exception"]))
    timers, bell = new_timers(loop), Bell(2)
    start_s = time.monotonic()

    def fail(_):
        raise RuntimeError("boom")

    timers.at(start_s + 0.01, fail)
    timers.at(start_s + 0.01, bell.ring)
    timers.at(start_s + 0.02, bell.ring)
    await bell.rung.wait()
    assert [str(error) for error in told] == ["boom"]


async def test_closed_timers_stay_silent(new_timers):
    """After closing nothing rings, neither what was set before nor what is set later."""
    loop = asyncio.get_running_loop()
    timers, other, bell, last = new_timers(loop), new_timers(loop), Bell(1), Bell(1)
    start_s = time.monotonic()
    timers.at(start_s + 0.005, bell.ring)
    timers.close()
    timers.close()
    timers.at(start_s + 0.005, bell.ring)
    timers.at(-math.inf, bell.ring)
    timers.run_due(math.inf)
    other.at(start_s + 0.03, last.ring)
    await last.rung.wait()
    assert not bell.due
    assert len(timers) == 0


def test_timers_go_by_the_clock_of_their_alarm():
    """Which may be another than the loop's: that of leases goes on while a machine sleeps."""
    ahead_s = 1_000.0

    def clock():
        return time.monotonic() + ahead_s

    async def main():
        loop, bell = asyncio.get_running_loop(), Bell(2)
        timers = Timers(loop, partial(LoopAlarm, clock=clock))
        assert timers.clock is clock
        due_s = clock() + 0.02
        timers.at(due_s + 0.02, bell.ring)
        timers.at(due_s, bell.ring)
        await bell.rung.wait()
        timers.close()
        assert bell.due == [due_s, due_s + 0.02]
        assert due_s <= bell.at[0] + ahead_s

    asyncio.run(asyncio.wait_for(main(), LIMIT_S))


@pytest.mark.parametrize("wakes", [False, True])
def test_any_timers_ring_that_are_due_and_no_others(wakes):
    """As in a list that is sorted anew each time; whether an alarm wakes them or others do."""
    loop, draw, now_s = asyncio.new_event_loop(), random.Random(7), [0.0]
    timers = Timers(loop, partial(LoopAlarm, clock=lambda: now_s[0]))
    there, rung, expected = {}, [], []
    for number in range(3000):
        act = draw.random()
        if act < 0.55 or not there:
            due_s = float(draw.randrange(1000))
            there[number] = due_s, timers.at(due_s, lambda _, number=number: rung.append(number))
        elif act < 0.98:
            one = draw.choice(list(there))
            there.pop(one)[1].cancel()
        else:
            now_s[0] = draw.randrange(300)
            due = sorted((due_s, one) for one, (due_s, _) in there.items() if due_s <= now_s[0])
            expected += [one for _, one in due]
            for _, one in due:
                del there[one]
            timers._wake() if wakes else timers.run_due(now_s[0])
            assert rung == expected
            if wakes:
                assert timers.next_s == min(
                    (due_s for due_s, _ in there.values()), default=math.inf
                )
        held = [timer for _, _, timer in timers._heap]
        assert timers._cancelled == sum(timer.ring is None for timer in held)
    assert len(expected) > 50
    timers.close()
    loop.close()


@pytest.mark.parametrize("before_s", [0.0, 1.0, 1e9])
async def test_what_is_due_already_wakes_at_once_and_once(kind, before_s):
    """Also at the very beginning of the clock."""
    woken = []

    def wake():
        alarm.set(math.inf)
        woken.append(time.monotonic())

    alarm = kind[1](asyncio.get_running_loop(), wake)
    alarm.set(time.monotonic() - before_s)
    await until(lambda: woken)
    await turn(0.01)
    assert len(woken) == 1
    alarm.set(time.monotonic() + 3600.0)
    alarm.set(time.monotonic() + 0.005)
    await until(lambda: len(woken) == 2)
    alarm.set(time.monotonic() + 0.005)
    alarm.set(time.monotonic() + 3600.0)
    await turn(0.02)
    assert len(woken) == 2, "it was moved"
    alarm.set(time.monotonic() + 0.005)
    alarm.close()
    alarm.close()
    await turn(0.02)
    assert len(woken) == 2
