"""`map` of the asynchronous client, with whole nodes; its window alone."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from spillover.client import AsyncSpillover, InputError
from spillover.client.mapping import Window
from spillover.model.errors import Cancelled
from support.loop import until

LONG = {"service_ms": 60_000}


def with_client(nodes, check, servers=50):
    async def main():
        topology = nodes.topology_of("a", clusters={"a": {"servers": servers}})
        federation = nodes.Federation(topology)
        async with federation, AsyncSpillover(federation["a"].url) as client:
            await check(client, federation["a"])

    nodes.run(main)


def lasting(*times_ms):
    return [{"service_ms": time_ms} for time_ms in times_ms]


async def results_of(answers):
    return [answer.result["service_ms"] async for answer in answers]


def test_payloads_may_be_awaited_and_endless(nodes):
    async def endless():
        number = 0
        while True:
            yield {"service_ms": number}
            number += 1

    async def check(client, node):
        seen = []
        async with aclosing(client.map(endless(), at_most=2)) as answers:
            async for answer in answers:
                seen.append(answer.result["service_ms"])
                if len(seen) == 10:
                    break
        assert seen == list(range(10))
        assert node.ledger.home["accepted"] <= 12

    with_client(nodes, check)


def test_an_answer_does_not_wait_for_the_next_payload(nodes):
    async def check(client, node):
        go_on = asyncio.Event()

        async def slow():
            yield {"service_ms": 1}
            await go_on.wait()
            yield {"service_ms": 2}

        answers = client.map(slow())
        assert (await anext(answers)).result == {"service_ms": 1.0}
        go_on.set()
        assert await results_of(answers) == [2]

    with_client(nodes, check)


def test_the_first_error_ends_it_and_cancels_what_is_under_way(nodes):
    async def check(client, node):
        answers = client.map([{"service_ms": 100}, object(), LONG, LONG])
        assert (await anext(answers)).result == {"service_ms": 100.0}
        with pytest.raises(InputError, match="payload"):
            await anext(answers)
        await until(lambda: node.ledger.home["cancelled"] == 2)

    with_client(nodes, check)


def test_keys_of_payloads_make_it_repeatable(nodes):
    async def check(client, node):
        def named(payload):
            return f"job {payload['service_ms']}"

        first = [answer async for answer in client.map(lasting(1, 2), key=named)]
        again = [answer async for answer in client.map(lasting(1, 2, 3), key=named)]
        assert [answer.id for answer in first] == ["job 1", "job 2"]
        assert [answer.replayed for answer in again] == [True, True, False]

    with_client(nodes, check)


def test_what_payloads_raise_comes_out(nodes):
    def broken():
        yield LONG
        raise KeyError("no more")

    async def broken_later():
        yield LONG
        raise KeyError("no more")

    async def check(client, node):
        for number, payloads in enumerate((broken(), broken_later()), start=1):
            with pytest.raises(KeyError):
                await results_of(client.map(payloads))
            home = node.ledger.home
            await until(lambda home=home: home["running"] == home["queued"] == 0)
            assert home["cancelled"] <= number

    with_client(nodes, check)


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


def test_a_map_goes_on_after_one_that_held_up_all_others(nodes):
    async def check(client, node):
        payloads = [{"service_ms": 300}, *lasting(*range(60))]
        results = await results_of(client.map(payloads, at_most=2))
        assert results == [300, *range(60)]

    with_client(nodes, check)
