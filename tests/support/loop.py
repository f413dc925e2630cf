"""Waiting in an event loop: for a condition, under a time limit, while all else goes on. Where no
loop runs it is `support.waiting` that waits.
"""

from __future__ import annotations

import asyncio
import inspect

from support.waiting import LIMIT_S, missed

TURN_S = 0.001


async def turn(for_s=TURN_S):
    """Let the loop see to everything else, sockets too; with 0 it is one turn and no more."""
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    if for_s:
        rings = loop.call_later(for_s, future.set_result, None)
    else:
        rings = loop.call_soon(future.set_result, None)
    try:
        await future
    finally:
        rings.cancel()


async def until(condition, limit_s=LIMIT_S, what="", *, every_s=TURN_S):
    """Return what `condition()` gives once that is true, or what it gives when awaited; fail after
    `limit_s`, and say what was awaited: `what`, or the source of the condition."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + limit_s
    while not (answer := await _now(condition)):
        assert loop.time() < end_s, missed(condition, answer, limit_s, what)
        await turn(every_s)
    return answer


async def _now(condition):
    answer = condition()
    return await answer if inspect.isawaitable(answer) else answer
