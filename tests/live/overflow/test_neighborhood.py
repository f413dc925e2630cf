"""The neighbors of a node come and go: who listens to them, and that each link is closed."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from random import Random

import pytest

from spillover.core.overflow import events as ev
from spillover.live.overflow.neighborhood import Neighborhood
from spillover.live.overflow.shell import NodeShell
from spillover.model.errors import NotDelivered
from spillover.model.topology import Link
from support.federation import topology_of
from support.loop import until

LINKED = topology_of("a", "b", "c", "d", links=[("a", "b"), ("a", "c"), ("a", "d")]).with_urls(
    {name: f"http://127.0.0.1:{port}" for port, name in enumerate("abcd", 1)}
)


class Here:
    """The neighborhood of a, to which a test adds neighbors; nobody is at the other ends."""

    def __init__(self):
        alone = replace(LINKED, links=())
        self.shell = shell = NodeShell(alone, "a")
        self.events = []
        self.neighborhood = Neighborhood(
            alone,
            shell.machine,
            shell.neighborhood.clients,
            shell.metrics,
            timers=shell.timers,
            feed=self.events.append,
            on_failure=shell.fail,
            relays=shell.requests.relays,
            random=Random(1),
            fault_random=Random(1),
            source="test",
        )
        self.links = self.neighborhood.links

    def obey(self, command):
        self.neighborhood.interpreters[type(command)](command)

    def open(self, handle, id_, delay_ms=0.0):
        link = Link(between=("a", id_), delay_ms=delay_ms)
        self.neighborhood.go_by(replace(LINKED, links=(link,)))
        self.obey(ev.Connect(handle, id_))
        return self.links[handle]

    def end(self, handle):
        link = self.links[handle]
        self.obey(ev.Disconnect(handle))
        return link

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self.neighborhood.close()
        await self.shell.close()


def speaking():
    """Of the neighbors to which something is said, by what."""
    return sorted(task.get_name() for task in asyncio.all_tasks() if " to " in task.get_name()
                  or " of " in task.get_name())  # fmt: skip


async def is_closed(link):
    """Whether it takes nothing more."""
    with pytest.raises(NotDelivered) as told:
        await link.ask_federation(b"", 5.0)
    return "was closed" in str(told.value)


async def with_group(at, check):
    """Run it while the links speak."""

    async def speak():
        async with asyncio.TaskGroup() as group:
            at.neighborhood.start(group)
            try:
                await check()
            finally:
                at.neighborhood.stop()
            raise asyncio.CancelledError

    with suppress(asyncio.CancelledError):
        await asyncio.ensure_future(speak())


async def test_links_speak_from_when_all_do_until_they_end():
    async with Here() as at:
        at.open(0, "b")
        assert speaking() == []

        async def meanwhile():
            assert speaking() == ["reports of b"]
            late = at.open(1, "c")
            assert "reports of c" in speaking()
            assert at.end(1) is late
            await until(lambda: not any(name.endswith(" c") for name in speaking()))
            assert await is_closed(late)
            assert "reports of b" in speaking()

        await with_group(at, meanwhile)
        assert (set(at.links), set(at.neighborhood.emulated)) == ({0}, {0})


async def test_what_ends_while_nothing_listens_is_closed_with_the_node():
    """Nothing is begun then; and so are all that have not ended."""
    async with Here() as at:
        early, stays = at.open(0, "b"), at.open(1, "c")
        at.end(0)
        gone = []

        async def meanwhile():
            at.neighborhood.stop()
            at.open(2, "d")
            gone.append(at.end(2))
            assert not any(name.endswith(" d") for name in speaking())

        await with_group(at, meanwhile)
        links = [early, stays, *gone]
        assert [await is_closed(link) for link in links] == [False] * 3
        await at.neighborhood.close()
        assert [await is_closed(link) for link in links] == [True] * 3
