"""A node as a process of its own: how it begins, how it is told to end, and how it does."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from spillover.apps.node.server import bind_socket
from spillover.model.errors import InputError

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
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.nodes = nodes
        self.command = [sys.executable, "-c", PROGRAM, str(port), handler, workers, *options]
        self.stdin = stdin
        self.client = None
        self.url = f"http://127.0.0.1:{port}"

    def start(self):
        directory = Path(__file__).parent
        self.process = subprocess.Popen(
            self.command, stdin=self.stdin, stderr=subprocess.PIPE, cwd=directory
        )

    async def __aenter__(self):
        from spillover.live.http1 import HttpClient

        self.start()
        self.client = HttpClient(self.url)
        async with asyncio.timeout(15):
            while not await self.answers():
                assert self.process.poll() is None, self.process.stderr.read()
                await self.nodes.turn()
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
        response = await self.client.request("GET", "/state", timeout_s=5)
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
        self.process.stderr.close()
        if self.process.stdin is not None:
            self.process.stdin.close()


def test_sigterm_finishes_what_is_under_way(nodes):
    """New work is refused, the old is answered, and the status is 0, without a word."""

    async def main():
        async with Process(nodes) as node:
            sent = node.post({"service_ms": 600})
            await node.busy()
            node.process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(5):
                while (await node.post(1)).status != 503:
                    await nodes.turn()
            assert (await sent).status == 200
            assert await node.ended(3.0) == (0, "")

    nodes.run(main)


@pytest.mark.parametrize("how", ["idle", "twice", "stdin"])
def test_it_ends_at_once_where_nothing_is_to_wait_for(nodes, how):
    """Idle, at a second signal, or with its standard input: whatever is under way."""

    async def main():
        async with Process(nodes, "stdin") as node:
            sent = None
            if how != "idle":
                sent = node.post({"service_ms": 60_000})
                await node.busy()
            if how == "stdin":
                node.process.stdin.close()
            else:
                node.process.send_signal(signal.SIGTERM)
            if how == "twice":
                async with asyncio.timeout(5):
                    while not (await node.state())["draining"]:
                        await nodes.turn()
                node.process.send_signal(signal.SIGTERM)
            assert await node.ended(1.5) == (0, "")
            if sent is not None:
                assert (await sent).status == 502

    nodes.run(main)


def test_a_standard_input_that_cannot_be_watched_has_ended(nodes):
    """Started with none at all, a node that is to end with it does so."""

    async def main():
        process = Process(nodes, "stdin", stdin=subprocess.DEVNULL)
        process.start()
        assert await process.ended(10.0) == (0, "")
        process.process.stderr.close()

    nodes.run(main)


@pytest.mark.parametrize("workers", ["thread", "process"])
def test_work_that_hangs_does_not_hold_up_the_end(nodes, workers):
    """A thread that never returns is left behind, a process is killed."""

    async def main():
        handler = "python:handler_that_hangs:hang"
        async with Process(nodes, handler=handler, workers=workers) as node:
            sent = node.post("forever")
            await node.busy()
            for _ in range(2):
                node.process.send_signal(signal.SIGINT)
                async with asyncio.timeout(5):
                    while (status := node.process.poll()) is None and not await draining(node):
                        await nodes.turn()
            status, _ = await node.ended(4.0)
            assert status == 0
            assert (await sent).status == 502

    nodes.run(main)


async def draining(node):
    try:
        return (await node.state())["draining"]
    except Exception:  # noqa: BLE001 - it has ended meanwhile
        return True


def test_worker_processes_end_with_a_node_that_is_killed(nodes):
    """Even SIGKILL leaves none behind."""

    async def main():
        handler = "python:handler_that_hangs:hang"
        async with Process(nodes, handler=handler, workers="process") as node:
            worker = json.loads((await node.post("pid")).body)["result"]
            sent = node.post("forever")
            await node.busy()
            node.process.kill()
            await nodes.until(lambda: not is_alive(worker))
            await asyncio.wait([sent])
            assert sent.exception() is not None

    nodes.run(main)


def is_alive(process):
    try:
        stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize("address", [("127.0.0.1", None), ("127.0.0.1", 70_000), ("x" * 70, 1)])
def test_an_address_that_cannot_be_bound_is_bad_input(address):
    """One line that names the address."""
    host, port = address
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1] if port is None else port
        with pytest.raises(InputError) as raised:
            bind_socket(host, port)
    assert f"{host}:{port}" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_ipv6_addresses_can_be_bound(require):
    """Where the machine has IPv6."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        require(False, f"IPv6 on loopback: {error}")
    with bind_socket("::1", 0) as listening:
        assert listening.getsockname()[0] == "::1"
