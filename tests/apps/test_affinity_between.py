"""Doors with affinity at several sites: a conversation goes where its miss, the wait and the way
cost least, and comes back to where it went.
"""

import asyncio

from spillover.core.overflow.events import Drain, Resume
from support.federation import until
from support.passed_requests import get
from support.proxy_doors import doors

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

TURN, NEXT_TURN, SMALL, LARGE = 400_000, 420_000, 1_000, 8_000_000
"""Sizes that differ by more than the mood of a machine: a large request is as long as
twenty turns."""


def ask(session, size):
    """A turn of a conversation; None is of none."""
    lines = [b"Content-Length: %d" % size]
    if session is not None:
        lines.append(b"X-Session: %b" % session)
    return get(*lines, method=b"POST") + b"x" * size


class Service:
    """Answers a turn once a few more reports have come, what is large when it is told to, and all
    else at once."""

    def __init__(self, here):
        self.here = here
        self.goes_on = asyncio.Event()

    def reports(self):
        """The number of the last report that site b has of a."""
        (row,) = self.here["b"].machine.neighbors
        return row.report.sequence

    async def answer(self, talk, _head, body):
        if len(body) == LARGE:
            await self.goes_on.wait()
        elif len(body) == TURN:
            began = self.reports()
            await until(lambda: self.reports() >= began + 4)
        await talk.say(OK)


async def keep_busy(here, cluster, neighbor):
    """Large requests are under way at a site, since its neighbor took none: the clients that wait
    for them. How far the first of them has come is believed, of those behind it nothing."""
    here[neighbor].shell.feed(Drain())
    await until(lambda: not here[cluster].may_send_to(neighbor))
    clients = [await here.client(cluster) for _ in range(3)]
    for client in clients:
        client.writer.write(ask(b"large", LARGE))
    await until(lambda: here[cluster].ledger.home["running"] == len(clients))
    here[neighbor].shell.feed(Resume())
    await until(lambda: here[cluster].may_send_to(neighbor))
    return clients


async def path_of(here, session, size):
    """Where a turn that comes to a goes, once a has heard from b what became of all before."""
    (row,) = here["a"].machine.neighbors
    before = -1 if row.report is None else row.report.sequence
    await until(lambda: row.accepting and row.report is not None and row.report.sequence > before)
    return (await here.ask(ask(session, size))).get(b"spillover-path")


async def test_a_conversation_goes_elsewhere_for_the_wait_and_comes_back_for_what_it_finds():
    """Servers are free everywhere."""
    told = {"affinity": "header:X-Session", "servers": 50}
    async with doors("a", "b", cluster=told, policy="adaptive", delay_ms=1.0) as here:
        service = Service(here)
        here.service.answer = service.answer
        assert await path_of(here, b"first", TURN) == "a"
        assert await path_of(here, None, SMALL) == "a", "of no session"
        waiting = await keep_busy(here, "a", "b")
        assert await path_of(here, b"moves", TURN) == "a,b"
        assert await path_of(here, b"x" * 4_000, SMALL) == "a,b"
        assert await path_of(here, None, SMALL) == "a,b"
        service.goes_on.set()
        for client in waiting:
            await client.answer()
        await until(here.is_idle)
        assert await path_of(here, b"moves", NEXT_TURN) == "a,b", "it finds what it had"
        assert await path_of(here, b"first", NEXT_TURN) == "a"
        assert await path_of(here, b"new", SMALL) == "a"
