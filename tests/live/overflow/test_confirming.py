"""A node whose acceptances are confirmed by something else, later or not at all."""

import asyncio
from contextlib import asynccontextmanager

from spillover.apps.http.server import HttpServer
from spillover.apps.node.app import create_app
from spillover.core.overflow import events as ev
from spillover.live.http1.client import HttpClient
from spillover.live.overflow.shell import NodeShell
from spillover.live.process.listening import bind_socket
from spillover.model.request import Refusal

ASYNC = [(b"Prefer", b"respond-async")]


class Journal:
    """Is asked, and says what the test wants it to when it wants that."""

    def __init__(self):
        self.asked = []
        self.node = None

    def __call__(self, command):
        self.asked.append(command)

    def tell(self, *, ok=True):
        command = self.asked.pop(0)
        failed = ev.NotConfirmed(command.ref, Refusal.MEMORY_FULL)
        self.node.shell.feed(ev.Confirmed(command.ref) if ok else failed)


@asynccontextmanager
async def node_with(nodes, journal):
    """One node whose acceptances this journal confirms."""
    topology = nodes.topology_of("a")
    listening = bind_socket("127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    shell = NodeShell(topology.with_urls({"a": url}), "a", seed=1, confirm=journal)
    server = HttpServer(create_app(shell))
    running = asyncio.create_task(shell.run())
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    await server.ready.wait()
    node = nodes.Node(shell, server, running, serving, HttpClient(url), url)
    journal.node = node
    try:
        yield node
    finally:
        await node.close()
        listening.close()
    node.machine.check()


async def asked(nodes, journal, count=1):
    await nodes.until(lambda: len(journal.asked) == count)


async def test_nothing_is_said_and_nothing_starts_before_it_is_confirmed(nodes):
    """Whoever waits when the node ends before that is told that nothing has run."""
    journal = Journal()
    async with node_with(nodes, journal) as node:
        home, waiters = node.shell.requests.home, node.shell.requests.waiters
        post = asyncio.ensure_future(node.post({"service_ms": 5}, headers=ASYNC, id="k"))
        await asked(nodes, journal)
        command = journal.asked[0]
        assert (command.request.id, command.origin) == ("k", ev.HOME)
        again = asyncio.ensure_future(node.post({"service_ms": 5}, headers=ASYNC, id="k"))
        ref = home.find("k").ref
        await nodes.until(lambda: len(waiters.of(ref)) == 2)
        assert [post.done(), again.done()] == [False, False]
        assert node.shell.machine.surely_never_ran(ref)
        journal.tell()
        assert [(await each).status for each in (post, again)] == [202, 202]
        status, told = await node.get("/requests/k?wait_ms=5000")
        assert (status, told["state"]) == (200, "done")
        posts = [
            asyncio.ensure_future(node.post({"service_ms": 5}, headers=headers))
            for headers in (ASYNC, ())
        ]
        await asked(nodes, journal, count=2)
        closing = asyncio.ensure_future(node.shell.close())
        for post in posts:
            response = await post
            assert (response.status, b"it has not run" in response.body) == (503, True)
        await closing
