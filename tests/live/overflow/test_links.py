"""The links of a node come and go: who listens on them, and that each is closed."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from random import Random

import pytest

from spillover.core.overflow import events as ev
from spillover.live.engine.timers import Timers
from spillover.live.overflow import wire
from spillover.live.overflow.agreement import Agreement, Terms
from spillover.live.overflow.links import Links
from spillover.live.overflow.peer_clients import PeerClients
from spillover.live.overflow.peer_link import PeerLink
from spillover.model.errors import NotDelivered
from spillover.model.request import Request
from spillover.model.topology import Cluster, Neighbor, Topology
from support.loop import turn, until

TOPOLOGY = Topology(name="test", clusters=(Cluster(id="a", servers=1),))
NOBODY = "http://127.0.0.1:1"


class Here:
    """The links of a, to whatever neighbors a test opens; nobody is at the other end."""

    def __init__(self):
        self.timers = Timers(asyncio.get_running_loop())
        self.events = []
        self.links = Links(self.timers, Random(1), self._make)

    def _make(self, handle, neighbor, emulated_link):
        return PeerLink(
            neighbor=handle,
            cluster=neighbor.id,
            url=neighbor.url,
            emulated_link=emulated_link,
            away_max=10,
            agreement=Agreement(wire.Caller("a", neighbor.id), Terms()),
            timers=self.timers,
            clients=PeerClients(TOPOLOGY, None),
            random=Random(1),
            feed=self.events.append,
            on_forward=lambda _: None,
            on_refused=lambda _: None,
        )

    def open(self, handle, id_, delay_ms=0.0):
        self.links.open(handle, Neighbor(id_, delay_ms, NOBODY))
        return self.links.by_handle[handle]


def speaking():
    """Of the neighbors to which something is said, by what."""
    return sorted(task.get_name() for task in asyncio.all_tasks() if " to " in task.get_name()
                  or " of " in task.get_name())  # fmt: skip


async def is_closed(link):
    """Whether it takes nothing more."""
    with pytest.raises(NotDelivered) as told:
        await link.ask_federation(b"", 5.0)
    return "was closed" in str(told.value)


@pytest.fixture
def here(run):
    def run_with(check):
        async def main():
            at = Here()
            try:
                await check(at)
            finally:
                await at.links.close()
                at.timers.close()

        run(main())

    return run_with


async def with_group(at, check):
    """Run it while the links speak."""

    async def speak():
        async with asyncio.TaskGroup() as group:
            at.links.start(group)
            try:
                await check()
            finally:
                at.links.stop()
            raise asyncio.CancelledError

    with suppress(asyncio.CancelledError):
        await asyncio.ensure_future(speak())


def test_links_speak_from_when_all_do_until_they_end(here):
    async def check(at):
        at.open(0, "b")
        assert speaking() == []

        async def meanwhile():
            assert speaking() == ["connections to b", "reports of b"]
            late = at.open(1, "c")
            assert "reports of c" in speaking()
            assert "connections to c" in speaking()
            assert at.links.end(1) is late
            await until(lambda: not any(name.endswith(" c") for name in speaking()))
            assert await is_closed(late)
            assert "reports of b" in speaking()

        await with_group(at, meanwhile)
        assert (set(at.links.by_handle), set(at.links.emulated)) == ({0}, {0})

    here(check)


def test_what_ends_while_nothing_listens_is_closed_with_the_node(here):
    """Nothing is begun then; and so are all that have not ended."""

    async def check(at):
        early, stays = at.open(0, "b"), at.open(1, "c")
        at.links.end(0)
        gone = []

        async def meanwhile():
            at.links.stop()
            at.open(2, "d")
            gone.append(at.links.end(2))
            assert not any(name.endswith(" d") for name in speaking())

        await with_group(at, meanwhile)
        links = [early, stays, *gone]
        assert [await is_closed(link) for link in links] == [False] * 3
        await at.links.close()
        assert [await is_closed(link) for link in links] == [True] * 3

    here(check)


def test_what_is_away_over_a_link_that_ends_comes_back(here):
    async def check(at):
        link = at.open(0, "b", delay_ms=60_000.0)
        assert at.links.emulated[0].delay_s == 60.0
        request = Request("r", True, wire.NOTHING, ("a",))
        link.forward(ev.Forward(3, 0, request, time.monotonic() + 100.0))
        assert at.events == []
        at.links.end(0)
        assert [event.ref for event in at.events if hasattr(event, "ref")] == [3]
        await turn()

    here(check)
