"""A node as a process of its own: how it begins, how it is told to end, and how it does."""

import asyncio
import json
import signal
import subprocess
import sys
import time

import pytest

from spillover.live.http1.client import HttpClient
from spillover.live.overflow import wire
from spillover.live.overflow.identity import HELLO
from spillover.live.overflow.protocol import SPOKEN
from spillover.model.request import Request
from support import HANDLERS
from support.ports import free_port

PROGRAM = """
import asyncio, logging, sys
import uvloop
from spillover.apps.node.server import serve_node
from spillover.model.topology import Cluster, Topology

logging.basicConfig(level=logging.WARNING)
port, handler, workers = int(sys.argv[1]), sys.argv[2], sys.argv[3]
cluster = Cluster(
    id="a", servers=1, queue_limit=50, handler=handler, workers=workers,
    url=f"http://127.0.0.1:{port}",
)
serving = serve_node(
    Topology(name="test", clusters=(cluster,)), "a",
    bind=("127.0.0.1", port), end_with_stdin="stdin" in sys.argv, drain_timeout_s=20.0,
)
with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
    runner.run(serving)
"""


class Process:
    """A node started by `PROGRAM`; ready on entry, surely gone on exit."""

    def __init__(self, nodes, *options, handler="sleep", workers="thread", stdin=subprocess.PIPE):
        port = free_port()
        self.nodes = nodes
        self.command = [sys.executable, "-c", PROGRAM, str(port), handler, workers, *options]
        self.stdin = stdin
        self.stderr = subprocess.PIPE
        self.client = None
        self.url = f"http://127.0.0.1:{port}"

    def start(self):
        self.process = subprocess.Popen(
            self.command, stdin=self.stdin, stderr=self.stderr, cwd=HANDLERS
        )

    async def __aenter__(self):
        self.start()
        self.client = HttpClient(self.url)
        try:
            async with asyncio.timeout(60):
                while not await self.answers():
                    assert self.process.poll() is None, self.process.stderr.read()
                    await self.nodes.turn()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def answers(self):
        try:
            response = await self.client.request("GET", "/readyz", timeout_s=1)
        except Exception:  # noqa: BLE001 - not there yet, in whatever way
            return False
        return response.status == 200

    def post(self, payload, **fields):
        body = json.dumps({"payload": payload, **fields}).encode()
        return self.client.request("POST", "/requests", body=body, timeout_s=20)

    async def state(self):
        response = await self.client.request("GET", "/state", timeout_s=30)
        return json.loads(response.body)

    async def busy(self):
        async with asyncio.timeout(10):
            while not (await self.state())["busy"]:
                await self.nodes.turn()

    async def ended(self, within_s):
        """(exit status, what it said) once it has ended, which must be soon."""
        await self.nodes.until(lambda: self.process.poll() is not None, limit_s=within_s)
        return self.process.returncode, self.process.stderr.read().decode()

    async def __aexit__(self, *_):
        await self.client.close()
        self.process.kill()
        self.process.wait()
        if self.process.stderr is not None:
            self.process.stderr.close()
        if self.process.stdin is not None:
            self.process.stdin.close()


@pytest.mark.processes
async def test_sigterm_finishes_what_is_under_way(nodes):
    """New work is refused, the old is answered, and the status is 0, without a word."""
    async with Process(nodes) as node:
        sent = node.post({"service_ms": 600})
        await node.busy()
        node.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(30):
            while await node.answers():
                await nodes.turn()
        assert (await node.post(1)).status == 503
        assert (await sent).status == 200
        assert await node.ended(3.0) == (0, "")


@pytest.mark.processes
def test_it_ends_at_once_with_its_standard_input(nodes):
    """Whatever is under way."""

    async def main():
        async with Process(nodes, "stdin") as node:
            sent = node.post({"service_ms": 60_000})
            await node.busy()
            node.process.stdin.close()
            assert await node.ended(1.5) == (0, "")
            assert (await sent).status == 502

    nodes.run(main)


@pytest.mark.processes
async def test_work_that_hangs_does_not_hold_up_the_end(nodes):
    """A thread that never returns is left behind."""
    handler = "python:handler_that_hangs:hang"
    async with Process(nodes, handler=handler) as node:
        sent = node.post("forever")
        await node.busy()
        for _ in range(2):
            node.process.send_signal(signal.SIGINT)
            async with asyncio.timeout(30):
                while (status := node.process.poll()) is None and not await draining(node):
                    await nodes.turn()
        status, _ = await node.ended(4.0)
        assert status == 0
        assert (await sent).status == 502


async def draining(node):
    try:
        return (await node.state())["draining"]
    except Exception:  # noqa: BLE001 - it has ended meanwhile
        return True


async def test_what_comes_at_the_very_end_is_refused(nodes):
    """A neighbor that hands something on while the node ends is told that it was not taken, also if
    nothing was to be waited for: with a closed connection it could not know."""
    async with nodes.Federation(nodes.topology_of("a", "b")) as federation:
        b = federation["b"]
        client = HttpClient(b.url, headers=[(HELLO, b"from=a")])
        await client.warm(2)
        reports = asyncio.ensure_future(
            client.stream_lines("/peer/v2/reports", lambda _: None, silence_s=None)
        )
        await nodes.until(lambda: len(b.shell.neighborhood.streams._streams[0]) == 2)
        request = Request(id="r", keyed=False, work=b"1", path=("a",))
        body = wire.encode_forward(request, 5.0)
        ending = asyncio.ensure_future(federation.stop("b"))
        await reports
        under_way_s = time.monotonic() + 0.03  # it left before its sender heard of the end
        await nodes.until(lambda: time.monotonic() > under_way_s)
        told = await client.request("POST", SPOKEN[0].forward, body=body, timeout_s=30.0)
        assert (told.status, json.loads(told.body)["reason"]) == (503, "draining")
        await ending
        await client.close()
