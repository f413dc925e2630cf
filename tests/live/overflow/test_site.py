"""The other nodes of a site, as one node calls them: the streams on which they hear it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from spillover.core.overflow import events as ev
from spillover.core.overflow.quotas import Use
from spillover.core.overflow.sibling import NO_DEMAND
from spillover.core.overflow.sibling_messages import Give, SiblingLoad
from spillover.core.overflow.siblings import Siblings
from spillover.live.overflow import sibling_wire
from spillover.live.overflow.configured import Configured
from spillover.live.overflow.peer_clients import CONNECTIONS_TLS_MAX, PeerClients
from spillover.live.overflow.report_streams import STREAMS_PER_NEIGHBOR_MAX
from spillover.live.overflow.site import PASSED_ON_MAX, Site
from spillover.live.overflow.wire import Caller
from spillover.model.errors import PeerError
from spillover.model.topology import Cluster, ClusterNode, Topology
from support.loop import until
from support.ports import free_port
from support.scripted_server import answer, scripted

GIVE = Give((1, 1), 2)

STREAM = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n"
"""A stream of one chunk."""


@asynccontextmanager
async def site_of_two(
    feed: Callable[[Any], None],
    other: str,
    refused: Callable[[int, str], None] = pytest.fail,
    clients: PeerClients | None = None,
    *,
    urls: tuple[str, ...] = (),
) -> AsyncIterator[Site]:
    """Node 1 of a site whose node 2 is at this url; with `urls` they are processes."""
    nodes = ClusterNode(url="http://127.0.0.1:1"), ClusterNode(url=other)
    cluster = Cluster(id="a", servers=4, nodes=nodes)
    clients = clients or PeerClients(Topology(name="test", clusters=(cluster,)), None)
    site = Site(
        cluster,
        Siblings(1, 2, 4, 0.0),
        Caller("a", "a"),
        clients,
        Configured(),
        urls=urls,
        feed=feed,
        on_failure=pytest.fail,
        on_refused=refused,
        result_ttl_s=1.0,
    )
    try:
        yield site
    finally:
        await site.close()


@asynccontextmanager
async def listening(site: Site) -> AsyncIterator[None]:
    async def listen() -> None:
        async with asyncio.TaskGroup() as group:
            site.start(group)
            await asyncio.Event().wait()

    task = asyncio.create_task(listen())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


def taken_by(lines: list[bytes]) -> Callable[[bytes], bool]:
    """Returns a reader that keeps up."""

    def put(line: bytes) -> bool:
        lines.append(line)
        return True

    return put


async def test_a_stream_ends_with_the_first_line_that_cannot_be_written():
    async with site_of_two(pytest.fail, "http://127.0.0.1:2") as site:
        heard = []
        streams = site.open(2, lambda _: False), site.open(2, taken_by(heard))
        site.tell(ev.TellSibling(2, GIVE))
        assert [stream.ended for stream in streams] == [True, False]
        assert heard == [sibling_wire.encode(GIVE)]


async def test_a_new_stream_begins_with_the_load_that_was_told_last():
    """Until then its reader does not hear the node, and may go on without it."""
    async with site_of_two(pytest.fail, "http://127.0.0.1:2") as site:
        heard, load = [], SiblingLoad((2,), (1, 1), 0, 0, 2, 0.0, 0.0)
        site.tell(ev.TellSibling(2, load))
        site.tell(ev.TellSibling(2, GIVE))
        site.greet(site.open(2, taken_by(heard)))
        assert [sibling_wire.decode(line) for line in heard[1:]] == [load]


async def test_news_of_tenants_that_find_no_room_end_no_stream():
    async with site_of_two(pytest.fail, "http://127.0.0.1:2") as site:
        news, heard = {"shop": Use(1, 0, 1, 0)}, []
        site.open(2, taken_by(heard))
        assert site.say_uses(news)
        full = site.open(2, lambda _: False)
        assert not site.say_uses(news)
        assert not full.ended
        assert heard == [sibling_wire.encode(sibling_wire.Uses(news))] * 2


async def test_a_stream_of_whoever_says_that_he_is_the_sibling_does_not_end_the_other_one():
    async with site_of_two(pytest.fail, "http://127.0.0.1:2") as site:
        tell = site.tell
        heard = [[] for _ in range(STREAMS_PER_NEIGHBOR_MAX + 1)]
        assert site.open(3, taken_by(heard[0])) is None
        streams = [site.open(2, taken_by(lines)) for lines in heard[:-1]]
        tell(ev.TellSibling(2, GIVE))
        line = sibling_wire.encode(GIVE)
        assert heard[:-1] == [[line]] * STREAMS_PER_NEIGHBOR_MAX
        streams.append(site.open(2, taken_by(heard[-1])))
        assert [stream.ended for stream in streams].index(False) == 1, "the oldest makes room"
        site.drop(2, streams[1])
        tell(ev.TellSibling(2, GIVE))
        assert [len(lines) for lines in heard] == [1, 1, 2, 2, 1]


async def test_the_stream_of_a_sibling_breaks_off_once_what_it_told_was_dropped():
    heard, refused = [], []
    took = site_of_two(heard.append, "http://127.0.0.1:2", lambda *told: refused.append(told))
    async with took as site:
        line = sibling_wire.encode(GIVE)
        site.hear(2, line)
        site.distrust(ev.DistrustSibling(2, OverflowError("a bug")))
        with pytest.raises(PeerError, match="by a bug"):
            site.hear(2, line)
    assert heard == [ev.SiblingHeard(2, GIVE)]
    assert refused == [(2, "raised")]


async def test_a_view_number_out_of_range_ends_the_stream_and_is_counted():
    fed = []
    line = b'{"prepare":{"view":[-1,2]}}\n'
    async with scripted(STREAM % (len(line), line)) as server:
        refused = asyncio.Queue()
        took = site_of_two(fed.append, server.url, lambda *told: refused.put_nowait(told))
        async with took as site, listening(site):
            assert await asyncio.wait_for(refused.get(), 20.0) == (2, "line")
    assert not any(isinstance(event, ev.SiblingHeard) for event in fed)


@pytest.mark.parametrize("listens", [True, False])
async def test_a_sibling_is_dead_where_nothing_listens_any_more_and_over_if_it_drained(listens):
    """Also where this node drains. One that does not drain may have been cut off, with requests
    under way."""
    fed = asyncio.Queue()
    async with scripted(answer(503)) as server:
        url = server.url if listens else f"http://127.0.0.1:{free_port()}"
        async with site_of_two(fed.put_nowait, url) as site, listening(site):
            lost = await asyncio.wait_for(fed.get(), 20.0)
        assert lost == ev.SiblingLost(2, is_dead=not listens)
        server.answers(b"")
        async with site_of_two(pytest.fail, url) as site:
            timeout_s = 0.1 if listens else 9.0  # who is refused is told so, however late
            with pytest.raises(PeerError) as failed:
                await site.pass_on(
                    2, "GET", "/requests/x", headers=[], body=b"", timeout_s=timeout_s
                )
            for leaves in (False, True):
                told = SiblingLoad((1,), (1, 1), 0, 0, 0, 0.0, 0.0, leaves)
                site.siblings.heard(2, told, 0.0)
                assert site.is_over(2, failed.value) is (leaves and not listens)
            site.siblings.demands(NO_DEMAND._replace(leaves=True), 0.0)
            assert site.is_over(2, failed.value) is not listens


async def test_a_node_that_is_removed_is_heard_until_it_has_ended():
    fed = asyncio.Queue()
    url = f"http://127.0.0.1:{free_port()}"
    async with site_of_two(fed.put_nowait, url) as site, listening(site):
        await asyncio.wait_for(fed.get(), 20.0)
        assert site.open(2, taken_by([])) is not None, "it is to come back"
        nodes = (ClusterNode(url="http://127.0.0.1:1"),)
        site.go_by(Cluster(id="a", servers=4, nodes=nodes), 1.0)
        await until(lambda: site.open(2, taken_by([])) is None, what="its end")


async def test_a_new_stream_says_first_which_configuration_the_node_goes_by():
    async with site_of_two(pytest.fail, "http://127.0.0.1:2") as site:
        lines = []
        site.greet(site.open(2, taken_by(lines)))
        site.say_configuration()
        assert lines == [sibling_wire.encode(sibling_wire.GoesBy("0  0"))] * 2


async def test_no_more_wait_for_a_sibling_than_it_has_connections():
    """They would be tried again and again, 50 times in a second each."""
    shown: Any = SimpleNamespace(on_look=[], client=None, failed_out=None)
    nodes = ClusterNode(url="https://a.test:1"), ClusterNode(url="https://a.test:2")
    cluster = Cluster(id="a", servers=4, nodes=nodes)
    secure = PeerClients(Topology(name="test", clusters=(cluster,)), shown)
    async with site_of_two(pytest.fail, "https://127.0.0.1:2", clients=secure) as site:
        assert site.passed_on_max == CONNECTIONS_TLS_MAX
    async with site_of_two(pytest.fail, "http://127.0.0.1:2") as site:
        assert site.passed_on_max == PASSED_ON_MAX


def operated(at_ms, drains, policy="paper", shadow=None):
    """What a sibling says that operators have told it."""
    return sibling_wire.encode(sibling_wire.Operated(at_ms, drains, policy, shadow))


PROCESSES = "http://127.0.0.1:1", "http://127.0.0.1:2"


async def test_a_process_does_what_operators_have_told_another_one():
    """Once, whoever says it again; what was told later holds. One that is not drained does not
    resume: it may have been told to end. Nodes are operated each by itself."""
    fed = []
    async with site_of_two(fed.append, PROCESSES[1], urls=PROCESSES) as site:
        for line, events in (
            (operated(4, False), [ev.PolicySet("paper")]),
            (operated(5, True), [ev.Drain()]),
            (operated(6, True), []),
            (operated(6, False), []),
            (operated(9, False), [ev.Resume()]),
            (operated(7, True, "isolated"), []),
            (operated(10, False, "isolated", "paper"), [ev.PolicySet("isolated", "paper")]),
            (operated(11, False, "of a later version"), []),
        ):
            site.hear(2, line)
            assert fed == events
            fed.clear()
    async with site_of_two(pytest.fail, PROCESSES[1]) as site:
        site.hear(2, operated(5, True))


async def test_a_new_stream_of_a_process_says_what_operators_have_told_it():
    async with site_of_two(pytest.fail, PROCESSES[1], urls=PROCESSES) as site:
        site.operate("isolated", "paper", drains=True)
        lines = []
        site.greet(site.open(2, taken_by(lines)))
        told = sibling_wire.decode(lines[1])
        assert (told.policy, told.shadow, told.drains) == ("isolated", "paper", True)
        site.hear(2, operated(told.at_ms, False))  # as long ago, and so not later
