"""A node that drains tells its clients to go: at both doors each answer closes its connection, and
who asks nothing is let go of. What comes goes to neighbors before it is refused.
"""

import asyncio

import pytest

from spillover.core.overflow.events import Drain, Resume
from support import federation, proxy_doors
from support.passed_requests import get

OPTIONS = b"OPTIONS / HTTP/1.0\r\n\r\n"
POST = b"POST /requests HTTP/1.1\r\nHost: a\r\nContent-Length: 14\r\n\r\n" + b'{"payload": 1}'
ASYNC = POST.replace(b"Host: a", b"Host: a\r\nPrefer: respond-async")
STATE = b"GET /state HTTP/1.1\r\nHost: a\r\n\r\n"


async def connect(url):
    port = int(url.rpartition(":")[2])
    return proxy_doors.Client(*await asyncio.open_connection("127.0.0.1", port))


async def is_closed(client):
    """Whether the other side closes the connection, and says nothing before."""
    async with asyncio.timeout(30):
        rest = await client.reader.read()
    client.close()
    return rest == b""


@pytest.mark.parametrize("asked", [POST, STATE])
async def test_each_answer_of_a_node_that_drains_is_the_last_of_its_connection(asked):
    """Also where nobody else takes what is asked. After a resume connections are kept again."""
    topology = federation.topology_of("a")
    async with federation.Federation(topology) as nodes:
        node = nodes["a"]
        node.shell.leaving.on_change.append(
            lambda leaves: node.server.leave(0.2 if leaves else None)
        )
        client, idle = await connect(node.url), await connect(node.url)
        assert (await client.ask(asked)).get(b"connection") == ""
        node.shell.feed(Drain())
        answer = await client.ask(asked)
        assert (answer.status == 503) == (asked is POST)
        assert answer.get(b"connection") == "close"
        assert await is_closed(client)
        assert await is_closed(idle), "after a while"
        node.shell.feed(Resume())
        client = await connect(node.url)
        for _ in range(2):
            answer = await client.ask(asked)
            assert (answer.status, answer.get(b"connection")) == (200, "")
        client.close()


async def test_what_comes_during_a_drain_is_handed_on_unless_its_result_is_for_later():
    """A node that drains may have ended before anybody asks for that."""
    async with federation.Federation(federation.topology_of("a", "b")) as nodes:
        node = nodes["a"]
        node.shell.feed(Drain())
        client = await connect(node.url)
        assert b'"cluster":"b"' in (await client.ask(POST)).body
        refused = await client.ask(ASYNC)
        assert (refused.status, refused.get(b"retry-after")) == (503, "1")
        client.close()


async def test_the_door_of_a_service_tells_its_clients_to_go():
    """A stream that has begun goes on; the connection closes with the next answer."""
    async with proxy_doors.in_front() as here:
        door, shell = here.doors["a"], here["a"].shell
        shell.leaving.on_change.append(lambda leaves: door.leave(0.2 if leaves else None))
        client, idle = await here.client("a"), await here.client("a")
        assert (await client.ask(get())).get(b"connection") == ""
        shell.feed(Drain(5.0))
        answer = await client.ask(get())
        assert (answer.status, answer.get(b"connection")) == (200, "close")
        assert await is_closed(client)
        assert await is_closed(idle), "after a while"


async def test_balancers_may_ask_whether_a_node_is_ready_as_haproxy_does():
    """At both doors; at that of a service only what asks nothing of a service."""
    async with proxy_doors.in_front() as here:
        node = here["a"]
        for client, told in ((await here.client("a"), 0), (await connect(node.url), 34)):
            answer = await client.ask(OPTIONS)
            assert (answer.status, len(answer.body)) == (200, told)
            assert "HEAD" in answer.get(b"allow")
            client.close()
        client = await here.client("a")
        assert (await client.ask(OPTIONS.replace(b"\r\n", b"\r\nHost: h\r\n", 1))).body == b"ok"
        assert len(here.service.seen) == 1
        node.shell.feed(Drain(5.0))
        for client in (await here.client("a"), await connect(node.url)):
            answer = await client.ask(OPTIONS)
            assert (answer.status, b"draining" in answer.body) == (503, True)
            client.close()
