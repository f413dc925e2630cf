"""The driver between a machine and real time, with machines small enough to see through."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from dataclasses import dataclass

import pytest

from spillover.core.driver import Driver
from spillover.live.engine.timers import Timers
from support.loop import until


@dataclass
class Note:
    """An event and a command of the machine below."""

    text: str


WOKE = Note("woke")


class Recorder:
    """A machine that notes what it is given and commands what the test has put down for it."""

    def __init__(self):
        self.seen = []
        self.commands = {}
        self.deadline_s = math.inf
        self.entered = False

    def handle(self, event, now_s):
        assert not self.entered, "the machine was entered twice"
        self.entered = True
        self.seen.append((event.text, now_s))
        if event is WOKE:
            self.deadline_s = math.inf
        self.entered = False
        return self.commands.get(event.text, [])

    def next_deadline(self):
        return self.deadline_s

    def check(self):
        pass

    def texts(self):
        return [text for text, _ in self.seen]


class Bench:
    """A driver of a Recorder, started; `failures` is what it was told of."""

    def __init__(self, **options):
        self.machine = Recorder()
        self.timers = Timers(asyncio.get_running_loop())
        self.carried_out = []
        self.on_command = self.carried_out.append
        self.journal = []
        self.failures = []
        self.driver = Driver(
            self.machine,
            self.timers,
            {Note: self.carry_out},
            self.failures.append,
            journal=lambda event, now_s: self.journal.append((event.text, now_s)),
            **options,
        )
        self.driver.start(WOKE)

    def carry_out(self, command):
        self.on_command(command)


async def test_what_is_due_rings_before_an_event():
    """Though the loop has not come round, the machine sees things in the order they were meant."""
    bench = Bench()
    due_s = time.monotonic() + 0.001
    bench.timers.at(due_s, lambda at_s: bench.driver.feed(Note("due"), at_s))
    while time.monotonic() < due_s:
        pass
    bench.driver.feed(Note("event"))
    assert bench.machine.texts() == ["due", "event"]
    assert bench.machine.seen[0] == ("due", due_s)
    assert bench.journal == bench.machine.seen


async def test_events_from_commands_wait_their_turn():
    """All commands of one event are carried out before the next event is handled."""
    bench = Bench()
    bench.machine.commands = {"a": [Note("first"), Note("second")]}

    def on_command(command):
        bench.carried_out.append((command.text, bench.machine.texts()))
        bench.driver.feed(Note(f"from {command.text}"))

    bench.on_command = on_command
    bench.driver.feed(Note("a"))
    assert bench.carried_out == [("first", ["a"]), ("second", ["a"])]
    assert bench.machine.texts() == ["a", "from first", "from second"]


async def test_the_deadline_is_armed_wherever_it_moves():
    """Set, moved earlier, moved later: the machine is woken at the last one, at its own instant."""
    bench = Bench()
    start_s = time.monotonic()
    for delay_s in (0.2, 0.02, 0.06):
        bench.machine.deadline_s = start_s + delay_s
        bench.driver.feed(Note("move"))
    await until(lambda: "woke" in bench.machine.texts())
    # The earlier wake stays armed: the machine finds nothing to do and tells its deadline.
    assert bench.machine.seen[-1] == ("woke", start_s + 0.02)
    bench.machine.deadline_s = start_s + 0.06
    bench.driver.feed(Note("still"))
    await until(lambda: bench.machine.texts().count("woke") == 2)
    assert bench.machine.seen[-1] == ("woke", start_s + 0.06)
    assert len(bench.timers) <= 1


async def test_a_machine_that_stays_due_ends_the_node_instead_of_spinning():
    """Woken at its deadline a machine must move it, else it would be woken for ever."""
    bench = Bench()
    bench.machine.handle = lambda *_: []
    bench.machine.deadline_s = time.monotonic()
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    bench.driver.feed(Note("event"))
    await until(lambda: bench.failures)
    assert "still due" in str(bench.failures[0])


async def test_events_before_the_start_wake_nobody():
    """A node may be asked before its machine is started; its deadline is armed at the start."""
    bench = Bench()
    driver = Driver(bench.machine, bench.timers, {}, bench.failures.append)
    bench.machine.deadline_s = time.monotonic() + 0.005
    driver.feed(Note("early"))
    assert len(bench.timers) == 0
    driver.start(WOKE)
    await until(lambda: "woke" in bench.machine.texts())


@pytest.mark.parametrize("catch_up_s_max", [0.01, 60.0])
async def test_after_a_long_pause_the_machine_is_told_the_true_time(catch_up_s_max):
    """Periods that were slept through are left out, not made up for one by one; short ones are."""
    bench = Bench(catch_up_s_max=catch_up_s_max)
    late_s = bench.machine.deadline_s = time.monotonic() - 5.0
    bench.driver.feed(Note("paused"))
    await until(lambda: "woke" in bench.machine.texts())
    at_s = bench.machine.seen[-1][1]
    assert at_s == late_s if catch_up_s_max > 5.0 else at_s > late_s + 4.0


async def test_a_machine_that_is_woken_late_is_told_so_first_and_once():
    """At the instant that it is late for, before whatever comes in; also while it catches up on
    what was due meanwhile. A next pause is told again."""
    told = []

    def on_late(late_s):
        told.append(late_s)
        return Note("late")

    bench = Bench(on_late=on_late, late_s_min=0.1)
    driver = bench.driver
    for pause in (1, 2):
        due_s = bench.machine.deadline_s = time.monotonic() + 0.02
        driver.feed(Note("set"))
        bench.machine.seen.clear()
        threading.Event().wait(0.3)
        driver.feed(Note("event"))
        assert bench.machine.texts() == ["late", "woke", "event"]
        assert [at_s for _, at_s in bench.machine.seen[:2]] == [due_s, due_s]
        bench.machine.deadline_s = due_s + 0.05
        driver.feed(Note("more"))
        await until(lambda: bench.machine.texts()[-1] == "woke")
        assert len(told) == pause
        assert 0.2 < told[-1] < 5.0


class Hourglass:
    """Timers that a test rings, and whose time it sets."""

    next_s = math.inf

    def __init__(self):
        self.now_s = 0.0
        self.set = []

    def clock(self):
        return self.now_s

    def at(self, due_s, ring):
        self.set.append((due_s, ring))
        return self

    def cancel(self):
        """It rings all the same."""

    def run_due(self, now_s):
        """The test does."""

    def ring(self, number):
        due_s, ring = self.set[number]
        ring(due_s)


def test_where_the_least_lateness_counts_the_machine_is_told_each_time():
    """Of a clock of its own, whose instants it gets; one that was cancelled wakes nobody."""
    glass, machine, told = Hourglass(), Recorder(), []

    def on_late(late_s):
        told.append(late_s)
        return Note("late")

    driver = Driver(
        machine, glass, {}, told.append, on_late=on_late, late_s_min=0.0, catch_up_s_max=0.0
    )
    machine.deadline_s = 7.0
    driver.start(WOKE)
    machine.deadline_s = 5.0
    driver.feed(Note("sooner"))
    glass.now_s = 5.5
    glass.ring(0)
    assert machine.seen == [("sooner", 0.0)]
    glass.ring(1)
    assert machine.seen[1:] == [("late", 5.0), ("woke", 5.5)]
    machine.deadline_s = 6.0
    driver.feed(Note("next"))
    glass.now_s = 6.0
    glass.ring(2)
    assert machine.seen[3:] == [("next", 5.5), ("late", 6.0), ("woke", 6.0)]
    assert told == [0.5, 0.0]


async def test_a_machine_that_fails_is_never_entered_again():
    """The error comes out where the event came in, is told once, and nothing follows."""
    bench = Bench()
    bench.machine.commands = {"bad": [Note("command")]}

    def fail(_):
        bench.driver.feed(Note("never"))
        raise RuntimeError("boom")

    bench.on_command = fail
    with pytest.raises(RuntimeError, match="boom"):
        bench.driver.feed(Note("bad"))
    bench.driver.feed(Note("after"))
    assert bench.machine.texts() == ["bad"]
    assert [str(error) for error in bench.failures] == ["boom"]


async def test_a_closed_driver_hands_nothing_in():
    """What ends after the node has been closed ends because of that."""
    bench = Bench()
    bench.driver.close()
    bench.driver.feed(Note("late"))
    bench.driver.feed(Note("late"), -math.inf)
    assert bench.machine.seen == []
