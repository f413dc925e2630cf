"""Places for requests, taken in a client's loop and in threads."""

import asyncio
import threading
from contextlib import asynccontextmanager

import pytest

from spillover.client.slots import Slots
from support.loop import turn, until


@asynccontextmanager
async def some_slots(places):
    slots = Slots(places, asyncio.get_running_loop())
    yield slots
    # As many as ever are free in the end.
    assert [slots.take() for _ in range(places + 1)] == [True] * places + [False]


async def test_there_are_as_many_as_was_said():
    async with some_slots(2) as slots:
        assert [slots.take() for _ in range(3)] == [True, True, False]
        slots.give_back()
        async with slots:
            assert not slots.take()
        assert slots.take()
        for _ in range(2):
            slots.give_back()


async def test_who_waits_in_the_loop_is_first_and_in_turn():
    async with some_slots(1) as slots:
        assert slots.take()
        got = []

        async def wait(name):
            await slots.wait()
            got.append(name)

        waits = [asyncio.create_task(wait(name)) for name in "ab"]
        await turn()
        assert got == []
        threading.Thread(target=slots.give_back).start()
        await until(lambda: got == ["a"])
        slots.give_back()
        assert not slots.take(), "it is b's"
        await until(lambda: got == ["a", "b"])
        await asyncio.gather(*waits)
        slots.give_back()


@pytest.mark.parametrize("given_back", [False, True])
async def test_who_waits_no_longer_takes_no_place(given_back):
    """Also where it was given one in that moment."""
    async with some_slots(1) as slots:
        assert slots.take()
        waits = [asyncio.create_task(slots.wait()) for _ in range(2)]
        await turn()
        if given_back:
            slots.give_back()
            slots._wake()
        waits[0].cancel()
        await asyncio.wait(waits[:1])
        assert waits[0].cancelled()
        if not given_back:
            assert not waits[1].done()
            assert len(slots._waiting) == 1
            slots.give_back()
        await waits[1]
        slots.give_back()
        await until(lambda: not slots._waiting)
