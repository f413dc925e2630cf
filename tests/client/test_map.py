"""`map` of the asynchronous client, with whole nodes; its window alone."""

from contextlib import asynccontextmanager

import pytest

from spillover.client import AsyncSpillover
from spillover.client.mapping import Window
from spillover.model.errors import Cancelled


@asynccontextmanager
async def a_client(nodes, servers=50):
    topology = nodes.topology_of("a", clusters={"a": {"servers": servers}})
    federation = nodes.Federation(topology)
    async with federation, AsyncSpillover(federation["a"].url) as client:
        yield client, federation["a"]


def lasting(*times_ms):
    return [{"service_ms": time_ms} for time_ms in times_ms]


async def test_keys_of_payloads_make_it_repeatable(nodes):
    async with a_client(nodes) as (client, _):

        def named(payload):
            return f"job {payload['service_ms']}"

        first = [answer async for answer in client.map(lasting(1, 2), key=named)]
        again = [answer async for answer in client.map(lasting(1, 2, 3), key=named)]
        assert [answer.id for answer in first] == ["job 1", "job 2"]
        assert [answer.replayed for answer in again] == [True, True, False]


@pytest.mark.parametrize("ordered", [True, False])
def test_a_window_counts_each_that_was_begun_and_what_it_came_to(ordered):
    """Failures make room as answers do: for one each."""
    window = Window(3, 9, ordered=ordered)
    for number in range(3):
        assert window.has_room
        assert window.start() == number
    assert not window.has_room
    for number in (0, 1):
        window.end(number, Cancelled(f"{number}"))
        assert (window.under_way, window.progress.failed, window.progress.done) == (
            2,
            number + 1,
            0,
        )
        assert str(window.take()) == f"{number}"
        window.start()
        assert not window.has_room
    told = window.progress
    assert (told.started, told.done, told.under_way) == (5, 0, 3)
