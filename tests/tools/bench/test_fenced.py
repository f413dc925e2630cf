"""What a call costs: all that its calls took, by the clock and by what Redis says it has used,
divided by their number."""

from __future__ import annotations

import asyncio
import time

import pytest

from spillover.tools.bench.leases import fenced
from spillover.tools.bench.model import BenchPlan
from spillover.tools.bench.session import Session

USER_S, SYSTEM_S = 0.002, 0.001


class Calls:
    """Counts them; none is shorter than `least_s`, which the length of a run is no multiple of. To
    the benchmark it is Redis as well, which has used so much for each."""

    def __init__(self, least_s):
        self.made = 0
        self.least_s = least_s

    def __call__(self):
        self.made += 1
        until_s = time.perf_counter() + self.least_s
        while time.perf_counter() < until_s:
            pass

    def info(self, section):
        assert section == "cpu"
        return {"used_cpu_user": self.made * USER_S, "used_cpu_sys": f"{self.made * SYSTEM_S}"}


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


def test_a_check_costs_what_all_took_by_their_number(session):
    """They are made many at a time, so that the clock is not what is measured."""
    calls = Calls(60e-6)
    (took_us,), passed_us = timed(fenced._timed_local(session, calls))
    assert calls.made % fenced.LOCAL_CALLS == 0
    assert calls.least_s * 1e6 <= took_us <= passed_us / calls.made
