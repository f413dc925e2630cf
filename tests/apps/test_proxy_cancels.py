"""Clients of a door that leave at random instants, over any number of hops: nothing of their
requests is left anywhere. `make soak` has 10 000 of them leave."""

import asyncio
import os
from pathlib import Path
from random import Random

import pytest

from spillover.core.overflow.events import ServersDown
from support.federation import run, turn, until
from support.passed_requests import get, post
from support.proxy_doors import doors

COUNT = 5_000 if "SPILLOVER_SOAK_S" in os.environ else 75
AT_ONCE = 25
SITES = {"a": {"servers": 8}, "b": {"queue_limit": 20}, "c": {"servers": 30}}
KEYED = (b"A: b", b"Idempotency-Key: %d")
BODY = (b"Content-Length: 5",)


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


class Busy:
    """How the service answers: at once, as a stream, or without end. `running` counts."""

    def __init__(self, random):
        self.random = random
        self.running = 0

    async def answer(self, talk, *_):
        self.running += 1
        try:
            return await self._answer(talk, self.random.randrange(4))
        finally:
            self.running -= 1

    async def _answer(self, talk, how):
        if how == 0:
            await talk.say(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            return True
        if how == 1:  # before its head
            await talk.until_closed()
            return False
        await talk.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(self.random.randrange(5)):
            await talk.say(b"2\r\nab\r\n")
            await turn(0)
        if how == 2:
            await talk.until_closed()
            return False
        await talk.say(b"0\r\n\r\n")
        return True


async def leave(here, random, number):
    """One client that asks, and leaves after some turns."""
    client = await here.client()
    here.clients.remove(client)
    key = random.choice(KEYED).replace(b"%d", b"%d" % number)
    client.writer.write(random.choice((get(key), post(key, *BODY))))
    for _ in range(random.randrange(120)):
        await turn(0)
    client.close()


@pytest.mark.slow
@pytest.mark.parametrize("ids", ["a", "abc"])
def test_nothing_is_left_of_who_has_left(ids):
    async def main():
        async with doors(*ids, each=SITES, max_hops=2) as here:
            if ids != "a":
                here["a"].shell.feed(ServersDown())  # b hands on what is too much for it
            random = Random(7)
            service = Busy(random)
            here.service.answer = service.answer
            before = descriptors()
            left = 0
            while left < COUNT:
                await asyncio.gather(*(leave(here, random, left + k) for k in range(AT_ONCE)))
                left += AT_ONCE
            await until(here.is_idle)
            await until(lambda: service.running == 0)  # no orphan
            await until(lambda: not here.doors["a"].connections)
            for node in here.nodes.nodes.values():
                shell = node.shell
                assert (
                    len(shell.requests.relays),
                    shell.requests.relays.begun,
                    shell.room.moving.bytes,
                ) == (0, 0, 0)
                assert not shell.requests.workers._calls
                assert all(one.running >= 0 for one in shell.requests.workers.upstreams._all)
                assert node.machine.held.request_bytes == 0
                await until(lambda node=node: not node.machine.servers.busy)
            ledger = here["a"].ledger.home
            ends = ledger["done"] + ledger["cancelled"] + ledger["failed"] + ledger["expired"]
            assert ledger["accepted"] == ends <= COUNT
            assert ledger["cancelled"] > COUNT / 8
            received = [here[id_].ledger.foreign["received"] for id_ in ids[1:]]
            assert all(count > COUNT / 50 for count in received), "what is there to see?"
            # What is kept for the next request, and no more than was open at once.
            await until(lambda: descriptors() < before + 8 * AT_ONCE)

    run(main, limit_s=COUNT / 20 + 10.0)
