"""Waiting in an event loop: for a condition, under a time limit, while all else goes on. Where no
loop runs it is `support.waiting` that waits.
"""

import asyncio
import inspect

from support.waiting import LIMIT_S, missed, slack

TURN_S = 0.001


async def turn(for_s=TURN_S):
    """Let the loop see to everything else, sockets too; with 0 it is one turn and no more."""
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    rings = loop.call_later(for_s, _ring, future) if for_s else loop.call_soon(_ring, future)
    try:
        await future
    finally:
        rings.cancel()


def _ring(future):
    """The turn is over, unless whoever waits was cancelled within it."""
    if not future.done():
        future.set_result(None)


async def until(condition, limit_s=LIMIT_S, what="", *, every_s=TURN_S):
    """Return what `condition()` gives once that is true, or what it gives when awaited; fail after
    `limit_s`, by `slack()` later on a busy machine, and say what was awaited: `what`, or the source
    of the condition."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    end_s = began_s + limit_s
    while not (answer := await _now(condition)):
        if loop.time() >= end_s:
            end_s = began_s + limit_s * slack()
            assert loop.time() < end_s, missed(condition, answer, limit_s, what)
        await turn(every_s)
    return answer


async def _now(condition):
    answer = condition()
    return await answer if inspect.isawaitable(answer) else answer
