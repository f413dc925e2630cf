"""A call to Redis that is cancelled ends as cancelled, at whatever moment that comes."""

import asyncio

import pytest

from spillover.live.redis.connection import RedisLink


async def turn():
    """One turn of the loop."""
    done = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(done.set_result, None)
    await done


@pytest.mark.parametrize("command", ["call", "calls"])
async def test_no_cancellation_is_lost(redis_server, command):
    """Also one that comes while the command is written, when its end and the cancellation meet."""
    link = RedisLink(redis_server.url, 5.0)
    await link.call("PING")
    for turns in range(30):
        what = link.call("PING") if command == "call" else link.calls(("PING",), ("PING",))
        task = asyncio.ensure_future(what)
        for _ in range(turns):
            await turn()
        if task.done():
            break
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert turns >= 1
    assert await link.call("ECHO", "x") == "x"
    await link.close()


async def test_a_cancelled_task_may_still_ask(redis_server):
    link = RedisLink(redis_server.url, 5.0)

    async def work():
        try:
            await asyncio.Event().wait()
        finally:
            assert await link.call("ECHO", "x") == "x"

    task = asyncio.ensure_future(work())
    await turn()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await link.close()
