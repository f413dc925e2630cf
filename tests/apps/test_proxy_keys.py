"""Requests to a service under one key: at the same time, and one right after the other."""

import asyncio

import pytest

from support.federation import until
from support.passed_requests import get
from support.proxy_doors import in_front

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
HOPS = pytest.mark.parametrize("hops", [0, 1])


@HOPS
async def test_a_key_that_was_given_up_can_be_used_again_at_once(hops):
    """Before the node knows that the first client has gone, and before the recall has come back.
    Who gives up waiting is forgotten, and where the first one gets its answer once is enough."""
    async with in_front(hops) as here:
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def answer(talk, head, _):
            if b"/ok" not in head:
                begun.set()
                await asyncio.wait(
                    [asyncio.create_task(go_on.wait()), asyncio.create_task(talk.until_closed())],
                    return_when=asyncio.FIRST_COMPLETED,
                )
            await talk.say(OK)
            return True

        here.service.answer = answer
        key = b"Idempotency-Key: k"
        for _ in range(5):
            begun.clear()
            client = await here.client()
            client.writer.write(get(key))
            await begun.wait()
            client.writer.close()
            assert (await here.ask(get(key, target=b"/ok"))).body == b"ok"
        begun.clear()
        first = await here.client()
        first.writer.write(get(key))
        await begun.wait()
        waiting = [await here.client() for _ in range(2)]
        for client in waiting:
            client.writer.write(get(key, target=b"/ok"))
        shell = here["a"].shell
        ref = shell.requests.home.find("k").ref
        await until(lambda: len(shell.requests.waiters.of(ref)) == 3)
        waiting[0].close()
        go_on.set()
        assert (await first.answer()).body == b"ok"
        assert (await waiting[1].answer()).status == 409
        await until(lambda: shell.room.moving.bytes == 0 and len(shell.requests.waiters) == 0)
        assert len(here.service.seen) == 11
