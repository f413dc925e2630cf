"""A client that follows: what nodes announce is which nodes it has, and the node of its session is
the one that it asks."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random

import pytest

from spillover.client import AsyncSpillover
from spillover.client.nodes import Nodes
from spillover.client.session import FederationFollower
from spillover.core.membership.session_events import SessionServer
from spillover.live.http1.trust import Trust
from spillover.live.membership.session_wire import encode_announcement, encode_head
from support.loop import turn, until
from support.scripted_server import done, scripted

SHOWN = ((b"authorization", b"Bearer of-tests"),)


class Door:
    """Where clients have sessions; `said` is what it says to each first."""

    def __init__(self):
        self.url = ""
        self.said = b""
        self.heads = []
        self._sessions = set()

    async def talk(self, reader, writer):
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                self.heads.append(head)
                if head.startswith(b"GET /session"):
                    self._sessions.add(writer)
                    writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + self.said)
                else:
                    writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._sessions.discard(writer)
            writer.close()

    @property
    def sessions(self):
        return len(self._sessions)

    def announce(self, cluster, version, **urls):
        servers = [SessionServer(name, url) for name, url in urls.items()]
        head = encode_head(cluster, 1, (version, cluster, 1), servers)
        self.said = encode_announcement(head, 1, 0, 0.0)
        for writer in self._sessions:
            writer.write(self.said)

    def hang_up(self):
        for writer in self._sessions:
            writer.transport.abort()


@asynccontextmanager
async def doors(count):
    async with AsyncExitStack() as stack:
        made = [Door() for _ in range(count)]
        for door in made:
            server = await stack.enter_async_context(
                await asyncio.start_server(door.talk, "127.0.0.1", 0)
            )
            door.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield made
        for door in made:
            door.hang_up()
            await until(lambda door=door: not door.sessions)


class AtOnce(Random):
    """Draws nothing to wait for."""

    def random(self):
        return 0.0


@asynccontextmanager
async def following(*urls, random=None):
    nodes = Nodes(urls, Random(1))
    client = FederationFollower(nodes, SHOWN, Trust(None))
    client._random = random or client._random
    assert client.session is None
    client.start()
    try:
        yield client, nodes
    finally:
        await client.close()


def paths(door):
    return [head.split()[:2] for head in door.heads]


async def test_it_has_the_nodes_that_are_announced_and_asks_that_of_its_session():
    async with doors(2) as (one, other), following(one.url, random=AtOnce()) as (client, nodes):

        async def announced(version, **urls):
            for door in (one, other):
                door.announce("a" if door is one else "b", version, **urls)
            await until(lambda: set(nodes.urls) == set(urls.values()))

        await until(lambda: one.sessions)
        await announced(1, a=one.url)
        await until(lambda: client.session.in_use)
        assert nodes.current == client.session.in_use.url == one.url
        await announced(2, a=one.url, b=other.url)
        order = nodes.urls
        await announced(3, b=other.url, a=one.url)
        await turn(0.02)
        assert nodes.urls == order, "they are the same"


async def test_it_shows_its_token_and_says_goodbye():
    async with doors(1) as (door,):
        door.announce("a", 1, a=door.url)
        async with following(door.url) as (client, _):
            await until(lambda: client.session.in_use)
            assert len(client._clients) == 1, "one for each url"
        method, path = paths(door)[-1]
        assert (method, path.startswith(b"/session?client=")) == (b"DELETE", True)
        assert all(b"authorization: Bearer of-tests\r\n" in head for head in door.heads)
        await until(lambda: not door.sessions)
        assert [client.idle + client.busy for client in client._clients.values()] == [0]


@pytest.mark.parametrize("follow", [False, True])
async def test_a_session_begins_with_the_first_request_where_one_is_wanted(follow):
    async with scripted(done(7)) as server:
        async with AsyncSpillover(server.url, follow=follow) as client:
            await turn(0.02)
            assert server.seen == []
            assert (await client.run(1)).result == 7
            await turn(0.05)
        asked = [words.partition("?")[0] for words, _ in server.seen]
        assert asked[0] in ("POST /requests", "GET /session")
        assert ("GET /session" in asked) is follow


async def test_each_client_has_them_in_an_order_of_its_own():
    """Where one node fails, not all go to one other. Those that it was given are all, until it
    hears of others."""
    async with doors(1) as (door,), AsyncExitStack() as stack:
        urls = [door.url, *(f"http://127.0.0.1:{port}" for port in range(1, 9))]
        clients = [await stack.enter_async_context(following(*urls)) for _ in range(8)]
        assert all(set(nodes.urls) == set(urls) for _, nodes in clients)
        assert len({nodes.urls for _, nodes in clients}) > 1
