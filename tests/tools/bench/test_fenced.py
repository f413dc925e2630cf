"""What a call costs: all that its calls took, by the clock and by what Redis says it has used,
divided by their number."""

from __future__ import annotations

import asyncio
import time

import pytest

from spillover.tools.bench.leases import fenced
from spillover.tools.bench.model import BenchPlan
from spillover.tools.bench.session import Session
from support.benches import played

USER_S, SYSTEM_S = 0.002, 0.001


class Calls:
    """Counts them; none is shorter than `least_s`, which the length of a run is no multiple of. To
    the benchmark it is Redis as well, which has used so much for each."""

    def __init__(self, least_s, first_s=0.0):
        self.made = 0
        self.least_s = least_s
        self.first_s = first_s

    def __call__(self):
        self.made += 1
        least_s = self.first_s if self.made == 1 and self.first_s else self.least_s
        until_s = time.perf_counter() + least_s
        while time.perf_counter() < until_s:
            pass

    def info(self, section):
        assert section == "cpu"
        return {"used_cpu_user": self.made * USER_S, "used_cpu_sys": f"{self.made * SYSTEM_S}"}


class Clock:
    """Goes on by `each_s` with each call that is made, which lasts for so long."""

    def __init__(self, each_s):
        self.made, self.each_s = 0, each_s

    def call(self):
        self.made += 1

    def perf_counter(self):
        return 1000.0 + self.made * self.each_s


def by_hand(running):
    """How often a coroutine lets its loop see to others, and what it gives. It may not wait."""
    turns = 0
    while True:
        try:
            running.send(None)
        except StopIteration as end:
            return turns, end.value
        turns += 1


def timed(measure):
    """What it gives, and how long it took, in us."""
    began_s = time.perf_counter()
    figures = asyncio.run(measure())
    return figures, (time.perf_counter() - began_s) * 1e6


@pytest.fixture
def session():
    return Session(BenchPlan(quick=True), say=lambda _: None)


def test_a_write_costs_what_all_took_by_their_number(session):
    """The first one, before the clock runs, is none of them."""
    calls = Calls(0.03)
    side = fenced._side(session, calls, "ours", calls)
    (took_us, cpu_us), passed_us = timed(side.measure)
    assert cpu_us == pytest.approx((USER_S + SYSTEM_S) * 1e6)
    assert calls.least_s * 1e6 <= took_us <= passed_us / (calls.made - 1)


def test_a_first_write_that_takes_longer_is_not_what_a_write_costs(session):
    """It may have to be connected, and the script to be loaded."""
    calls = Calls(0.002, first_s=0.3)
    side = fenced._side(session, calls, "ours", calls)
    (took_us, _), _ = timed(side.measure)
    assert calls.made > 2
    assert took_us < 0.15e6


@pytest.mark.parametrize(("quick", "calls"), [(False, 4), (True, 1)])
def test_writes_are_made_for_half_a_second(monkeypatch, quick, calls):
    """Or less, where it is only seen that it works. Before that the loop is let go on: here Ctrl-C
    is heard."""
    clock, session = Clock(0.125), Session(BenchPlan(quick=quick), say=lambda _: None)
    monkeypatch.setattr(fenced, "time", clock)
    side = fenced._side(session, Calls(0.0), "ours", clock.call)
    turns, (took_us, _) = by_hand(side.measure())
    assert (turns, took_us) == (1, 125_000.0)
    assert clock.made == 1 + calls, "one is made before"


@pytest.mark.parametrize(("quick", "thousands"), [(False, 3), (True, 1)])
def test_checks_are_made_for_a_third_of_a_second(monkeypatch, quick, thousands):
    """A check of 120 us; they are made by the thousand."""
    clock, session = Clock(120e-6), Session(BenchPlan(quick=quick), say=lambda _: None)
    monkeypatch.setattr(fenced, "time", clock)
    turns, (took_us,) = by_hand(fenced._timed_local(session, clock.call)())
    assert (turns, took_us) == (1, pytest.approx(120.0))
    assert clock.made == thousands * fenced.LOCAL_CALLS


@pytest.mark.processes
def test_each_way_to_write_stands_beside_its_own_peers(redis_servers):
    """The time of each, and the processor time of Redis, which its clock may not see in so short a
    time; a check of a lease needs no Redis."""
    _, session = played(fenced.STAGES, runs=2)
    beside = {
        ("fenced write: time", "fenced write: CPU of Redis"): [
            "plain SET",
            "plain HSET",
            "WATCH, HGET, MULTI, SET",
        ],
        ("20 fenced writes, one call: time", "20 fenced writes, one call: CPU of Redis"): [
            "MULTI of 20 SET and an HSET"
        ],
        ("fence alone: time", "fence alone: CPU of Redis"): ["plain HGET"],
        ("local check of a lease: time",): ["time.monotonic"],
    }
    assert [(row.case, row.unit, row.peer) for row in session.rows] == [
        (case, "us", peer) for cases, peers in beside.items() for case in cases for peer in peers
    ]
    assert {len(row.values) for row in session.rows} == {2}
    times = [row for row in session.rows if "time" in row.case]
    assert all(0.0 < row.value < 1e5 for row in times)
    _, alone = played(fenced.STAGES, case=fenced.BATCH_CPU)
    assert [row.case for row in alone.rows] == [fenced.BATCH_CPU]


def test_a_check_costs_what_all_took_by_their_number(session):
    """They are made many at a time, so that the clock is not what is measured."""
    calls = Calls(60e-6)
    (took_us,), passed_us = timed(fenced._timed_local(session, calls))
    assert calls.made % fenced.LOCAL_CALLS == 0
    assert calls.least_s * 1e6 <= took_us <= passed_us / calls.made
