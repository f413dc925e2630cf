"""A node's shell by itself: whom it tells of what its machine says, and all that its end closes.
Nobody runs it, so that nothing happens but what a test has happen."""

import asyncio
import time
from dataclasses import replace

import msgspec
import pytest

from spillover.core.driver import LATE_S_MIN
from spillover.core.overflow import events as ev
from spillover.live.overflow.foreign_requests import Asker
from spillover.live.overflow.shell import NodeShell
from spillover.live.overflow.site import SiteProcess
from spillover.live.overflow.wire import Forwarded
from spillover.model.errors import NotDelivered
from spillover.model.request import DONE, Answer, Refusal, Request
from spillover.model.topology import Link
from support.federation import topology_of
from support.loop import turn, until

URLS = {"a": "http://127.0.0.1:1", "b": "http://127.0.0.1:2", "c": "http://127.0.0.1:3"}
PROCESSES = ("http://127.0.0.1:4", "http://127.0.0.1:5")
LONG = {"service_ms": 60_000.0}


class Here:
    """The shell of a, between b and c, and what neighbors that listen have heard."""

    def __init__(self, **fields):
        topology = topology_of("b", "a", "c", clusters={"a": LONG | fields}).with_urls(URLS)
        self.shell = NodeShell(topology, "a", seed=1)
        self.handles = self.shell.machine.neighbors.index
        self.feed = self.shell.feed

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self.shell.close()

    def say(self, command):
        """Have it obey this, as if its machine had said it."""
        self.shell.interpreters[type(command)](command)

    def listen(self, cluster):
        heard = []
        self.shell.neighborhood.streams.open(self.handles[cluster], heard.append)
        return heard

    def take(self, name="x", **told):
        request = Request(name, True, msgspec.Raw(b"1"))
        return self.shell.requests.home.take(request, time.monotonic() + 600.0, **told)

    def take_over(self, name="y"):
        """Returns what its sender is told."""
        request, told = Request(name, True, msgspec.Raw(b"1"), ("b",)), []
        asker = Asker(lambda _, one, __: told.append(one), lambda: told.append("broken off"))
        deadline_s = time.monotonic() + 600.0
        forwarded = Forwarded(request, 600.0, None, pulled=False)
        self.shell.requests.foreign.take(forwarded, deadline_s, self.handles["b"], asker)
        return told

    def counted(self, cluster="b"):
        return self.shell.metrics.handed_to(self.handles[cluster])


async def test_the_end_of_a_node_closes_all_it_has_and_tells_all_who_wait():
    """Those who hold connections open come first."""
    async with Here() as at:
        shell, order, told = at.shell, [], []
        stream = shell.neighborhood.streams.open(at.handles["b"], lambda _: None)
        for name in ("first", "second"):
            shell.on_close.append(lambda name=name: order.append((name, stream.ended)))
        shell.on_close.append(lambda: told.append(at.take("late").reason))
        entry = at.take()
        shell.requests.waiters.wait(entry.ref, told.append)
        foreign = at.take_over()
        rang = []
        shell.timers.at(time.monotonic() + 0.001, rang.append)
        await shell.close()
        assert order == [("first", False), ("second", False)]
        assert stream.ended
        late = shell.neighborhood.streams.open(at.handles["b"], lambda _: None)
        assert late is None, "an open stream would hold up its server"
        assert told == [Refusal.DRAINING, None]
        assert foreign == [None]
        assert not any(shell.requests.left)
        assert (shell.requests.home.closed, shell.requests.foreign.closed) == (True, True)
        with pytest.raises(NotDelivered, match="was closed"):
            await shell.neighborhood.links[at.handles["b"]].ask_federation(b"", 5.0)
        assert shell._failed.cancelled()
        await turn(0.01)
        assert rang == [], "timers ring no more"


async def test_a_changed_topology_is_gone_by_everywhere():
    """Names, terms, limits of what passes; and whoever goes by it besides is told."""
    async with Here() as at:
        shell, changes = at.shell, []
        shell.on_change.append(lambda: changes.append(shell.topology.max_hops))
        clusters = tuple(
            replace(one, handler="proxy:http://h", passed_stall_ms=7000.0) if one.id == "a" else one
            for one in shell.topology.clusters
        )
        changed = replace(
            shell.topology, clusters=clusters, max_hops=2, result_ttl_s=5.0, result_limit=7
        )
        shell.go_by(changed)
        assert changes == [2]
        assert shell.cluster is clusters[1]
        assert shell.requests.relays.stall_s == 7.0
        assert (shell.room.kept._ttl_s, shell.room.kept._limit) == (5.0, 7)
        assert shell.neighborhood.peers.agreements[0]._terms.max_hops == 2


async def test_an_answer_is_given_after_what_its_delivery_takes():
    """Once, and counted then."""
    async with Here() as at:
        entry, told = at.take(), []
        at.shell.requests.waiters.wait(entry.ref, told.append)
        answer = Answer(DONE, ("a",), b"1")
        at.say(ev.Reply(entry.ref, ev.HOME, answer, 0.02))
        assert (told, at.shell.metrics.ended("done")) == ([], 0)
        await until(lambda: told)
        assert (told, at.shell.metrics.ended("done")) == ([answer], 1)
        assert entry.answer is answer


async def test_neighbors_join_and_leave_all_parts_of_a_node():
    """By the link that the topology has with them."""
    async with Here() as at:
        shell, neighborhood = at.shell, at.shell.neighborhood
        d = replace(shell.topology.clusters[0], id="d", url="http://127.0.0.1:4")
        clusters = *shell.topology.clusters, d
        links = *shell.topology.links, Link(between=("a", "d"), delay_ms=30.0)
        shell.go_by(replace(shell.topology, clusters=clusters, links=links))
        at.say(ev.Connect(7, "d"))
        assert neighborhood.links[7].url == d.url
        assert neighborhood.emulated[7].faults.delay_s == 0.03
        assert neighborhood.peers.agreements[7].caller.to == "d"
        assert neighborhood.peers.agreements[7]._terms.delay_ms == 30.0
        assert set(shell.metrics.came_back("d").values()) == {0}
        stream = neighborhood.streams.open(7, lambda _: None)
        at.say(ev.Disconnect(7))
        assert stream.ended
        for by_handle in (neighborhood.links, neighborhood.emulated, neighborhood.peers.agreements):
            assert 7 not in by_handle
        with pytest.raises(KeyError):
            shell.metrics.came_back("d")


async def test_a_failure_ends_the_node_with_the_first_reason():
    at = Here()
    try:
        running = asyncio.ensure_future(at.shell.run())
        at.shell.fail(OSError("first"))
        at.shell.fail(OSError("second"))
        with pytest.raises(ExceptionGroup) as raised:
            await asyncio.wait_for(running, 10.0)
        assert [str(one) for one in raised.value.exceptions] == ["first"]
    finally:
        await at.shell.close()


@pytest.mark.slow
async def test_a_loop_that_is_held_up_tells_the_machine_for_how_long():
    """It must not take neighbors for silent that it has not heard for that reason."""
    heard = []
    topology = topology_of("b", "a", "c").with_urls(URLS)
    shell = NodeShell(topology, "a", journal=lambda event, _: heard.append(event))
    running = asyncio.ensure_future(shell.run())
    try:
        await until(lambda: sum(isinstance(one, ev.TimerFired) for one in heard) >= 2)
        held_up_s = 1.5 * LATE_S_MIN
        began_s = time.monotonic()
        while time.monotonic() < began_s + held_up_s:
            pass  # the loop is late
        late = await until(lambda: [one for one in heard if isinstance(one, ev.HeldUp)])
        assert max(one.late_s for one in late) >= LATE_S_MIN
    finally:
        running.cancel()
        await shell.close()


async def test_choices_can_be_repeated_and_no_purpose_shifts_another():
    def drawn(seed, cluster="a"):
        topology = topology_of("b", "a", "c").with_urls(URLS)
        shell = NodeShell(topology, cluster, seed=seed)
        return shell, shell.neighborhood._new_link.keywords["random"].random()

    shells = [drawn(1), drawn(1), drawn(2), drawn(1, "b"), drawn(None), drawn(None)]
    assert shells[0][1] == shells[1][1]
    assert len({number for _, number in shells}) == len(shells) - 1
    for shell, _ in shells:
        await shell.close()


@pytest.mark.parametrize(("node", "weighs"), [(1, True), (SiteProcess(1, PROCESSES), False)])
async def test_processes_tell_neighbors_nothing_of_their_services(node, weighs):
    """Each of them does not know what the others send there, as of several nodes."""
    fields = {"handler": "http:http://127.0.0.1:9/", "affinity": "json:user"}
    topology = topology_of("b", "a", "c", clusters={"a": fields}).with_urls(URLS)
    shell = NodeShell(topology, "a", node=node)
    heard = []
    shell.neighborhood.streams.open(shell.machine.neighbors.index["b"], heard.append)
    report = next(
        one
        for one in shell.machine.handle(ev.ReportAsked(), shell.now_s)
        if isinstance(one, ev.Publish)
    )
    shell.interpreters[ev.Publish](report)
    try:
        assert any(b'"places"' in line for line in heard) is weighs
        assert (shell.machine.sites is not None) is weighs
    finally:
        await shell.close()
