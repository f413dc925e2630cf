"""One server that its jobs share, against time that goes by in small steps, and by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillover.core.tokens.sharing import SharedServer


def run(server, arrivals):
    """Returns when each of the (time, work) jobs ends, by number."""
    ends = {}
    for ref, (at_s, work) in enumerate([*arrivals, (math.inf, 0.0)]):
        while (end := server.next_end()) is not None and end[0] <= at_s:
            server.remove(end[1], end[0])
            ends[end[1]] = end[0]
        if at_s < math.inf:
            server.add(ref, at_s, work)
    return ends


def stepped(rate, arrivals, step_s):
    """The same, in steps in which nothing changes."""
    left, ends, now_s = {}, {}, 0.0
    waiting = list(enumerate(arrivals))
    while waiting or left:
        while waiting and waiting[0][1][0] <= now_s + 1e-9:
            ref, (_, work) = waiting.pop(0)
            left[ref] = work
        share = rate * step_s / max(1, len(left))
        now_s += step_s
        for ref in list(left):
            left[ref] -= share
            if left[ref] <= 1e-9:
                ends[ref] = now_s
                del left[ref]
    return ends


WORKS = st.integers(1, 40).map(lambda tenths: tenths / 10)
ARRIVALS = st.lists(
    st.tuples(st.integers(0, 50).map(lambda tenths: tenths / 10), WORKS), max_size=8
)


@given(st.sampled_from([0.5, 1.0, 4.0]), ARRIVALS.map(sorted))
def test_it_ends_jobs_when_small_steps_do(rate, arrivals):
    step_s = 0.02
    ends = run(SharedServer(rate), arrivals)
    expected = stepped(rate, arrivals, step_s)
    assert ends.keys() == expected.keys()
    for ref, end_s in ends.items():
        assert end_s == pytest.approx(expected[ref], abs=step_s * (2 + len(arrivals)))


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), max_size=60))
def test_what_all_have_had_is_what_the_server_gave(steps):
    """While there is a job all of its rate is used, evenly."""
    server, now_s, busy_s, had, there = SharedServer(3.0), 0.0, 0.0, 0.0, []
    for ref, (what, later) in enumerate(steps):
        now_s += later
        busy_s += later if there else 0
        if what < 5:
            server.add(ref, now_s)
            there.append(ref)
        elif there:
            leaver = there.pop(what % len(there))
            told = server.had(leaver, now_s)
            had_now = server.remove(leaver, now_s)
            assert told == pytest.approx(had_now)
            had += had_now
    had += sum(server.had(ref, now_s) for ref in there)
    assert had == pytest.approx(3.0 * busy_s)
    assert len(server) == len(there)
    assert server.next_end() is None


def test_a_job_that_leaves_early_ends_nothing():
    server = SharedServer(1.0)
    server.add(1, 0.0, 1.0)
    server.add(2, 0.0, 5.0)
    assert server.remove(1, 1.0) == pytest.approx(0.5)
    at_s, ref = server.next_end()
    assert (at_s, ref) == (pytest.approx(5.5), 2)
    server.add(1, 2.0, 100.0)
    assert server.next_end()[1] == 2


def test_time_that_goes_back_stands_still():
    """An end is told at its ideal instant, a little after an arrival that was later."""
    server = SharedServer(1.0)
    server.add(1, 2.0)
    server.add(2, 1.0)
    assert server.remove(2, 1.5) == 0.0
    assert server.remove(1, 4.0) == 2.0
