"""What carries out the steps of readers, in a thread and on an event loop: what it began beside
them leaves nothing behind."""

from __future__ import annotations

import asyncio
import gc
import threading

import pytest

pytest.importorskip("redis")

from spillover.live.leases.streams.client import AsyncClient, Client
from spillover.live.leases.streams.steps import Begin, Call, Pause, Take, Wait
from support.loop import turn
from support.waiting import until

NOBODY = "redis://127.0.0.1:1/0"
FAULT = LookupError("no such thing")


def beginning(steps):
    """Begins these and takes no answer."""
    return (yield Begin(steps))


def failing():
    yield Pause(0.0)
    raise FAULT


def test_what_ends_after_its_client_was_closed_leaves_no_connection(redis_servers, tmp_path):
    gate = threading.Event()

    def reading():
        yield Call(gate.wait, (20.0,))
        yield Wait("nothing", "0-0", 0.001)

    with redis_servers.running(tmp_path) as server:

        def connections():
            """Those that were made, and those that are there, besides who asks."""
            made = server.client.info("stats")["total_connections_received"]
            return made, len(server.client.client_list()) - 1

        made, there = connections()
        assert there == 0
        client = Client(server.url, 5.0)
        ticket = client.carry_out(beginning(reading()))
        client.close()
        gate.set()
        assert ticket.result(20.0) is None
        until(lambda: connections() == (made + 1, 0))


def test_the_fault_of_what_was_begun_is_of_whoever_takes_it():
    client = Client(NOBODY, 1.0)

    def taking():
        ticket = yield Begin(failing())
        with pytest.raises(LookupError) as error:
            yield Take(ticket)
        return error.value

    assert client.carry_out(taking()) is FAULT
    client.close()


def test_a_fault_that_nobody_takes_is_none_of_the_loops():
    """Nor is what the client's end has cancelled."""

    async def main():
        heard = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: heard.append(context))
        client = AsyncClient(NOBODY, 1.0)

        def waiting():
            yield Call(loop.create_future, ())

        tickets = [await client.carry_out(beginning(one)) for one in (failing(), waiting())]
        await asyncio.wait(tickets[:1])
        await client.close()
        assert [ticket.cancelled() for ticket in tickets] == [False, True]
        del tickets
        gc.collect()
        await turn(0)
        assert heard == []

    asyncio.run(main())
