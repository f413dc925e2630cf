"""The exact waiting times that added latency is counted from, against a model that is slow and
plain."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillover.tools.bench.node import latency
from spillover.tools.bench.node.latency import added, ideal_system_times_ms

ARRIVALS = st.lists(st.integers(0, 200), max_size=40).map(sorted)


@given(arrivals_ms=ARRIVALS, servers=st.integers(1, 4), service_ms=st.integers(1, 30))
def test_ideal_system_times_are_those_of_a_fifo(arrivals_ms, servers, service_ms):
    """Walked through tick by tick: a server that is free takes who has waited longest."""
    left = [0] * servers
    queue, ends = [], {}
    for tick_ms in range(200 + 40 * 30 + 1):
        queue += [i for i, arrival in enumerate(arrivals_ms) if arrival == tick_ms]
        for server in range(servers):
            if left[server] == 0 and queue:
                ends[queue.pop(0)] = tick_ms + service_ms
                left[server] = service_ms
        left = [max(0, ticks - 1) for ticks in left]
    expected = [ends[i] - arrival for i, arrival in enumerate(arrivals_ms)]
    arrivals_s = [arrival / 1e3 for arrival in arrivals_ms]
    times_ms = ideal_system_times_ms(arrivals_s, servers=servers, service_ms=service_ms)
    assert times_ms == pytest.approx(expected)


def test_added_latency_is_what_came_on_top_of_each():
    """Not the percentiles' difference: a long wait is no added latency."""
    ideal_ms = [4.0, 400.0, 4.0]
    assert added([7.0, 401.0, 6.0], ideal_ms) == (2.0, 3.0)


def test_half_load_is_half_of_what_the_servers_can_do():
    assert latency.RATE_PER_S * latency.SERVICE_MS / 1e3 == latency.SERVERS / 2
