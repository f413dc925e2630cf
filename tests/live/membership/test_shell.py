"""The configuration of a node as a running thing: what becomes of what neighbors say, of proposals,
and of all that is under way as the node ends."""

import asyncio
import logging
import math
import socket
import sys
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from spillover.core.membership import configuration
from spillover.core.membership.events import Reason
from spillover.inputs.topology_file import short_text
from spillover.live.engine.timers import Timers
from spillover.live.membership import shell
from spillover.live.membership.reading import KNOWN_MAX, TopologyReader
from spillover.live.membership.shell import ConfigurationShell, NotTaken
from spillover.live.membership.store import ConfigurationStore
from spillover.live.membership.wire import encode_configuration
from spillover.model.configuration import Stamp, of_file
from spillover.model.errors import PeerError
from spillover.model.ids import ClusterId
from spillover.model.topology import Cluster, Topology
from support.loop import turn, until

PLAIN = Topology(name="plain", clusters=(Cluster(id=ClusterId("a"), servers=1),))
AT_FIRST = of_file(PLAIN, short_text(PLAIN))


def next_of(before, by, max_hops):
    topology = replace(PLAIN, max_hops=max_hops)
    return before.next((by, 1), topology, short_text(topology))


class Node:
    """A node around it: whom it has asked, and what it has been told. `answers` are what neighbors
    say, by name; one that is not there says nothing."""

    def __init__(self, answers, store=None):
        self.answers = answers
        self.asked, self.cut_off, self.adopted, self.superseded, self.failures = [], [], [], [], []
        self.timers = Timers(asyncio.get_running_loop())
        self.shell = ConfigurationShell(
            *(ClusterId("a"), 1, AT_FIRST, self.timers),
            ask=self.ask,
            adopt=self.adopted.append,
            tell_superseded=self.superseded.append,
            fail=self.failures.append,
            store=store,
        )

    async def ask(self, neighbor):
        self.asked.append(neighbor)
        if neighbor not in self.answers:
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                self.cut_off.append(neighbor)
                raise
        answer = self.answers[neighbor]
        if isinstance(answer, Exception):
            raise answer
        return answer


@asynccontextmanager
async def with_node(answers, store_of=lambda: None):
    node = Node(answers, store_of())
    try:
        async with asyncio.timeout(20.0):
            yield node
    finally:
        node.shell.close()
        node.timers.close()
        await asyncio.gather(*node.shell._tasks, return_exceptions=True)  # its last words


async def test_nobody_is_asked_any_more_once_the_node_ends():
    """A question that is under way is given up: its connection would outlive the node."""
    async with with_node({}) as node:
        node.shell.heard("silent", Stamp(7, "b", 1))
        await until(lambda: node.asked == ["silent"])
        node.shell.close()
        await until(lambda: node.cut_off == ["silent"])
        node.shell.heard("silent", Stamp(8, "b", 1))
        assert not node.shell._tasks
        assert node.failures == []


async def test_what_a_neighbor_goes_by_counts_here_too():
    newer = next_of(AT_FIRST, "b", 5)

    async with with_node({"b": encode_configuration(newer)}) as node:
        node.shell.heard("b", AT_FIRST.stamp)
        node.shell.heard("b", newer.stamp)
        await until(lambda: node.adopted == [newer])
        assert node.asked == ["b"]
        assert node.shell.machine.current == newer
        assert node.shell.metrics.changes == 1


@pytest.mark.parametrize("said", [PeerError("it has left"), b"nonsense"], ids=["gone", "nonsense"])
async def test_a_neighbor_that_gives_none_is_told_of_once(said, caplog, monkeypatch):
    """Until it gives one: it is asked again every second, and no other has to wait for that."""
    monkeypatch.setattr(shell._log, "filters", [])  # other tests may just have said the same
    one = next_of(AT_FIRST, "c", 5)
    two = next_of(one, "b", 6)
    higher = Stamp(9, "b", 1)

    def levels():
        return [record.levelname for record in caplog.records]

    with caplog.at_level(logging.DEBUG, shell.__name__):
        async with with_node({"b": said, "c": encode_configuration(one)}) as node:
            node.shell.heard("b", higher)
            await until(lambda: levels() == ["INFO"])
            node.shell.heard("b", higher)
            assert node.asked == ["b"], "it is left alone for a while"
            node.shell.heard("c", higher)
            await until(lambda: node.adopted == [one])
            monkeypatch.setattr(configuration, "PAUSE_S", -math.inf)
            monkeypatch.setattr(configuration, "COSTS_PAUSED", 0)
            node.shell.machine._left_alone.clear()  # as if the while were over
            node.shell.heard("b", higher)
            await until(lambda: levels() == ["INFO", "DEBUG"])
            node.answers["b"] = encode_configuration(two)
            node.shell.heard("b", higher)
            await until(lambda: node.adopted == [one, two])
            node.answers["b"] = said
            node.shell.heard("b", higher)
            await until(lambda: levels() == ["INFO", "DEBUG", "INFO"])
            assert node.failures == []
    lines = {record.getMessage().partition(" reason=")[0] for record in caplog.records}
    assert lines == {"no configuration neighbor=b"}


async def test_the_loop_has_its_turns_while_a_large_text_is_read():
    """Also of an older node, which tells it in YAML; nobody's turn is left short after that."""
    clusters = tuple(Cluster(id=ClusterId(f"c{n}"), servers=1) for n in range(1_000))
    large = replace(PLAIN, clusters=clusters)
    said = encode_configuration(of_file(large, short_text(large)))

    usual_s = sys.getswitchinterval()
    reading = asyncio.create_task(TopologyReader("plain").read(said, "b"))
    turns = 0
    while not reading.done():
        await turn(0.001)
        turns += 1
    assert (await reading)[0].topology == large
    assert turns > 10
    assert sys.getswitchinterval() == usual_s


async def test_a_proposal_is_taken_as_the_next_version_or_refused(caplog, monkeypatch):
    """Whoever has proposed hears of it; so does everybody that no store keeps it."""
    monkeypatch.setattr(shell._log, "filters", [])
    with caplog.at_level(logging.INFO):
        async with with_node({}) as node:
            topology = replace(PLAIN, max_hops=5)
            stamp = await node.shell.propose(AT_FIRST.stamp.version, topology, "text")
            assert stamp == Stamp(AT_FIRST.stamp.version + 1, "a", 1)
            assert [one.topology for one in node.adopted] == [topology]
            with pytest.raises(NotTaken) as refused:
                await node.shell.propose(AT_FIRST.stamp.version, topology, "text")
            assert refused.value.refused.reason is Reason.VERSION_CONFLICT
            assert str(refused.value) == f"the configuration is of version {stamp}"
            assert node.shell._answers == {}
    (record,) = caplog.records
    assert record.getMessage().startswith("only running nodes remember the configuration")


async def test_what_was_taken_here_and_lost_is_told(caplog, monkeypatch):
    monkeypatch.setattr(shell._log, "filters", [])
    other = next_of(AT_FIRST, "z", 7)

    with caplog.at_level(logging.WARNING):
        async with with_node({"z": encode_configuration(other)}) as node:
            own = await node.shell.propose(
                AT_FIRST.stamp.version, replace(PLAIN, max_hops=5), "text"
            )
            node.shell.heard("z", other.stamp)
            await until(lambda: node.superseded == [own])
            assert node.adopted[-1] == other
            assert node.shell.metrics.superseded == 1
            assert node.shell.metrics.changes == 2
    assert "configuration superseded" in caplog.records[-1].getMessage()


async def test_a_bug_in_asking_ends_no_node(caplog, monkeypatch):
    """What a neighbor says is input: it is told, and others are asked."""
    monkeypatch.setattr(shell._log, "filters", [])
    newer = next_of(AT_FIRST, "c", 5)

    with caplog.at_level(logging.ERROR):
        async with with_node(
            {"b": RuntimeError("a bug"), "c": encode_configuration(newer)}
        ) as node:
            node.shell.heard("b", Stamp(7, "b", 1))
            await until(lambda: caplog.records)
            node.shell.heard("c", newer.stamp)
            await until(lambda: node.adopted == [newer])
            assert node.failures == []
    (record,) = caplog.records
    assert record.getMessage().startswith("bug: a neighbor's configuration")


async def test_a_text_that_comes_again_is_not_read_again():
    """A neighbor gives it other stamps; both what is taken and what is refused is known."""
    other = replace(next_of(AT_FIRST, "b", 5), stamp=Stamp(9, "b", 1), lineage=())
    refused = replace(other, text="clusters: {}")

    reading = TopologyReader("plain")
    first, cost_s = await reading.read(encode_configuration(other), "b")
    again = replace(other, stamp=Stamp(10, "b", 1))
    second, _ = await reading.read(encode_configuration(again), "b")
    assert second == again
    assert second.topology is first.topology
    assert cost_s > 0.0
    whys = [(await reading.read(encode_configuration(refused), "b"))[0] for _ in range(2)]
    assert [str(one) for one in whys] == ["b: clusters: expected a list, got a mapping"] * 2
    assert len(reading._known) == 2
    for number in range(10):
        text = f"max_hops: {number}"
        await reading.read(encode_configuration(replace(other, text=text)), "b")
    assert len(reading._known) == KNOWN_MAX


# --- with a store ---------------------------------------------------------------------------------


async def test_what_cannot_be_stored_is_not_taken(caplog, monkeypatch):
    pytest.importorskip("redis")
    monkeypatch.setattr(shell._log, "filters", [])
    with socket.socket() as taken:  # and nobody listens
        taken.bind(("127.0.0.1", 0))
        url = f"redis://127.0.0.1:{taken.getsockname()[1]}/0"

        with caplog.at_level(logging.WARNING, shell.__name__):
            async with with_node({}, lambda: ConfigurationStore(url, "plain")) as node:
                with pytest.raises(NotTaken) as refused:
                    await node.shell.propose(
                        AT_FIRST.stamp.version, replace(PLAIN, max_hops=5), "text"
                    )
                assert refused.value.refused.reason is Reason.STORE_UNREACHABLE
                assert (node.adopted, node.failures) == ([], [])
                assert node.shell.machine.current == AT_FIRST
    said = [one for one in caplog.records if one.name == shell.__name__]
    assert [one.msg.words for one in said] == ["the configuration is not stored"]
    assert "cannot be reached" in said[0].getMessage()


async def test_what_the_store_has_counts_here_and_is_not_taken_anew(
    redis_server, redis_servers, caplog, monkeypatch
):
    monkeypatch.setattr(shell._log, "filters", [])
    name = redis_servers.new_name()

    with caplog.at_level(logging.WARNING, shell.__name__):
        async with with_node({}, lambda: ConfigurationStore(redis_server.url, name)) as node:
            other = ConfigurationStore(redis_server.url, name)
            version, topology = AT_FIRST.stamp.version, replace(PLAIN, max_hops=5)
            stamp = await node.shell.propose(version, topology, short_text(topology))
            assert stamp == Stamp(version + 1, "a", 1)
            second = next_of(await other.get(), "b", 6)
            assert await other.put(second, stamp) is None
            await until(lambda: node.shell.machine.current == second)
            with pytest.raises(NotTaken) as refused:
                await node.shell.propose(version + 1, topology, short_text(topology))
            assert refused.value.refused.reason is Reason.VERSION_CONFLICT
            assert [one.stamp for one in node.adopted] == [stamp, second.stamp]
            assert node.failures == []
            await other.close()
    assert [one.msg.words for one in caplog.records if one.name == shell.__name__] == []
