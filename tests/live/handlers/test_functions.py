"""What the functions of users are: awaited or not, and with a context or not."""

from __future__ import annotations

import asyncio
import time
from functools import partial

import msgspec
import pytest

from spillover.core.overflow.events import Start
from spillover.live.handlers.python.functions import is_async, takes_context
from spillover.live.handlers.python.handler import AsyncWorkers
from spillover.model.request import Outcome, Request
from support.loop import until


async def awaited(payload):
    return payload


def plain(payload):
    return payload


class Awaited:
    """An object that is called as a coroutine."""

    async def __call__(self, payload, ctx):
        return payload, ctx


class Plain:
    """One that is called as a function."""

    def __call__(self, payload, other=None):
        return payload, other


@pytest.mark.parametrize(
    ("function", "expected"),
    [(awaited, True), (Awaited(), True), (plain, False), (Plain(), False), (len, False)],
)
def test_who_is_awaited(function, expected):
    assert is_async(function) is expected


@pytest.mark.parametrize(
    ("function", "takes"),
    [
        (plain, False),
        (awaited, False),
        (lambda payload, anything: (payload, anything), True),
        (lambda payload, ctx=None: (payload, ctx), True),
        (lambda payload, context=None: (payload, context), True),
        (lambda payload, other=None: (payload, other), False),
        (lambda payload, *, ctx=None: (payload, ctx), False),
        (lambda *payload: payload, False),
        (Awaited(), True),
        (Plain(), False),
        (partial(lambda ctx, payload: (ctx, payload), None), False),
        (len, False),
        (max, False),
    ],
)
def test_who_gets_a_context(function, takes):
    """Who cannot be called without a second argument, or names it so. Some of CPython's own
    functions do not tell what they take."""
    assert takes_context(function) is takes


def test_what_is_cancelled_on_the_loop_has_taken_the_time_up_to_then():
    async def handle(payload):
        await asyncio.Event().wait()

    async def main():
        ends = []
        workers = AsyncWorkers(handle, "a", lambda event, _: ends.append(event))
        began_s = time.monotonic() - 5.0
        request = Request("r", keyed=False, work=msgspec.Raw(b"{}"))
        workers.start(Start(7, request, began_s, began_s + 60.0))
        workers.stop(7)
        await until(lambda: ends)
        (event,) = ends
        assert (event.ref, event.outcome) == (7, Outcome.CANCELLED)
        assert 5.0 <= event.service_s <= time.monotonic() - began_s

    asyncio.run(main())
