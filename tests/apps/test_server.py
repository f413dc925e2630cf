"""A node as a process of its own: how it begins, how it is told to end, and how it does."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time

import pytest

from spillover.live.http1.client import HttpClient
from spillover.live.overflow import wire
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

    async def is_lame_duck(self):
        return (await self.state())["lame_duck"]

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
def test_sigterm_finishes_what_is_under_way(nodes):
    """New work is refused, the old is answered, and the status is 0, without a word."""

    async def main():
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

    nodes.run(main)


@pytest.mark.processes
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
                async with asyncio.timeout(30):
                    while not (await node.state())["draining"]:
                        await nodes.turn()
                node.process.send_signal(signal.SIGTERM)
            lost = "ending: lost 1 request under way" if how == "twice" else ""
            status, said = await node.ended(1.5)
            assert (status, said.strip().rpartition("overflow.ending:")[2]) == (
                0,
                lost,
            )
            if sent is not None:
                assert (await sent).status == 502

    nodes.run(main)


@pytest.mark.processes
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
                async with asyncio.timeout(30):
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


class Command(Process):
    """`spillover node` itself, for the cluster that lies at this url in this file."""

    def __init__(self, nodes, file, cluster, url, *options, stderr=subprocess.PIPE):
        super().__init__(nodes, stdin=subprocess.DEVNULL)
        self.url = url
        self.stderr = stderr
        self.command = [sys.executable, "-m", "spillover", "node", "--topology", str(file)]
        self.command += ["--cluster", cluster, "--lame-duck-s", "0", *options]


def one_cluster(tmp_path):
    """A file with one cluster, and its url."""
    url = f"http://127.0.0.1:{free_port()}"
    file = tmp_path / "one.yaml"
    file.write_text(f"clusters: [{{id: a, servers: 1, service_ms: 1, url: '{url}'}}]\n")
    return file, url


@pytest.mark.processes
def test_neighbors_at_a_socket_of_their_own(nodes, tmp_path):
    """They find each other there, requests and answers go that way, and both sockets end well."""
    public = {cluster: free_port() for cluster in "ab"}
    peer = {cluster: free_port() for cluster in "ab"}

    def command(own, other):
        # Each has its own address for clients, and the other's for neighbors.
        file = tmp_path / f"{own}.yaml"
        url = f"http://127.0.0.1:{public[own]}"
        file.write_text(
            "policy: two-choice\n"
            "clusters:\n"
            f"- {{id: {own}, servers: 1, url: '{url}'}}\n"
            f"- {{id: {other}, servers: 1, url: 'http://127.0.0.1:{peer[other]}'}}\n"
            f"links: [{{between: [{own}, {other}]}}]\n"
        )
        return Command(nodes, file, own, url, "--peer-bind", f"127.0.0.1:{peer[own]}")

    async def main():
        async with command("a", "b") as a, command("b", "a") as b:
            async with asyncio.timeout(10):
                while not all([(await n.state())["neighbors"][0]["alive"] for n in (a, b)]):
                    await nodes.turn()
            path = []
            while path != ["a", "b"]:  # until b has said that it hears a
                sent = [a.post({"service_ms": 30}) for _ in range(8)]
                paths = [json.loads((await one).body)["path"] for one in sent]
                path = max(paths, key=len)
            response = await a.client.request("GET", "/federation", timeout_s=30)
            states = json.loads(response.body)["clusters"]
            assert [state["cluster"] for state in states.values()] == ["a", "b"]
            for one in (a, b):
                response = await one.client.request("GET", "/peer/v2/reports?from=a", timeout_s=30)
                assert response.status == 404
                one.process.send_signal(signal.SIGTERM)
            for one in (a, b):
                status, said = await one.ended(5.0)
                assert (status, "Traceback" in said) == (0, False)

    nodes.run(main)


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_only_whom_nobody_waits_for_serves_on_as_a_lame_duck(nodes, tmp_path, number):
    """Not ready, but at work until a second signal; after Ctrl-C it ends without that."""
    file, url = one_cluster(tmp_path)

    async def main():
        async with Command(nodes, file, "a", url, "--lame-duck-s", "60") as node:
            node.process.send_signal(number)
            if number == signal.SIGTERM:
                await nodes.until(node.is_lame_duck)
                assert not await node.answers()
                answer = await node.post({"service_ms": 1})
                assert (answer.status, answer.headers[b"connection"]) == (200, b"close")
                node.process.send_signal(number)
            assert (await node.ended(10.0))[0] == 0

    nodes.run(main)


def said_of_the_end(said):
    """The log lines about it, without their heads."""
    return [line.partition("ending: ")[2] for line in said.splitlines() if "ending: " in line]


async def job(node, payload, name):
    body = json.dumps({"payload": payload, "id": name}).encode()
    headers = [(b"Prefer", b"respond-async")]
    response = await node.client.request(
        "POST", "/requests", body=body, headers=headers, timeout_s=30
    )
    assert response.status == 202


async def state_of(node, name, query=""):
    response = await node.client.request("GET", f"/requests/{name}{query}", timeout_s=30)
    return json.loads(response.body)["state"]


async def in_the_log(nodes, path, words):
    await nodes.until(lambda: words in path.read_text())


@pytest.mark.processes
@pytest.mark.parametrize("fetched", [False, True])
def test_results_that_nobody_fetches_hold_up_the_end_for_a_while(nodes, tmp_path, fetched):
    """Which is said, as is what was lost; once they are fetched it ends at once."""
    file, url = one_cluster(tmp_path)
    log = tmp_path / "log"
    timeout_s = "60" if fetched else "0.5"

    async def main():
        options = ("--results-timeout-s", timeout_s)
        async with Command(nodes, file, "a", url, *options, stderr=stderr) as node:
            for name in ("j0", "j1"):
                await job(node, {"service_ms": 1}, name)
            await jobs_done(node)  # asking for them would fetch them
            node.process.send_signal(signal.SIGTERM)
            await in_the_log(nodes, log, "ending: ")
            if fetched:
                for name in ("j0", "j1"):
                    assert await state_of(node, name) == "done"
            await nodes.until(lambda: node.process.poll() is not None)
            assert node.process.returncode == 0

    async def jobs_done(node):
        async with asyncio.timeout(30):
            while (await node.state())["ledger"]["home"]["done"] < 2:
                await nodes.turn()

    with log.open("wb") as stderr:
        nodes.run(main)
    first, *others = said_of_the_end(log.read_text())
    limit = "30.0" if fetched else "0.5"
    assert first == f"waits for 2 results that nobody has fetched, at most {limit} s more"
    assert others == ([] if fetched else ["lost 2 results that nobody has fetched"])
    assert ('results that are lost names=["j0", "j1"]' in log.read_text()) is not fetched


@pytest.mark.processes
def test_a_result_that_comes_during_the_end_can_still_be_fetched(nodes, tmp_path):
    """Its time counts from when it came; who waits for it gets it."""
    file, url = one_cluster(tmp_path)

    async def main():
        async with Command(nodes, file, "a", url, "--results-timeout-s", "0.4") as node:
            await job(node, {"service_ms": 1000}, "j")
            await node.busy()
            node.process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(30):
                while not (await node.state())["draining"]:
                    await nodes.turn()
            assert await state_of(node, "j", "?wait_ms=4000") == "done"
            status, said = await node.ended(3.0)
            assert status == 0
            told = said_of_the_end(said)
            assert told[0].startswith("waits for 1 request under way, at most ")
            assert not any(line.startswith("lost") for line in told)

    nodes.run(main)


def test_what_comes_at_the_very_end_is_refused(nodes):
    """A neighbor that hands something on while the node ends is told that it was not taken, also if
    nothing was to be waited for: with a closed connection it could not know."""

    async def main():
        async with nodes.Federation(nodes.topology_of("a", "b")) as federation:
            b = federation["b"]
            client = HttpClient(b.url)
            await client.warm(2)
            reports = asyncio.ensure_future(
                client.stream_lines("/peer/v2/reports?from=a", lambda _: None, silence_s=None)
            )
            await nodes.until(lambda: len(b.shell.neighborhood.streams._streams[0]) == 2)
            request = Request(id="r", keyed=False, work=b"1", path=("a",))
            body = wire.encode_forward(request, wire.Caller("a"), 5.0)
            ending = asyncio.ensure_future(federation.stop("b"))
            await reports
            under_way_s = time.monotonic() + 0.03  # it left before its sender heard of the end
            await nodes.until(lambda: time.monotonic() > under_way_s)
            told = await client.request("POST", SPOKEN[0].forward, body=body, timeout_s=30.0)
            assert (told.status, json.loads(told.body)["reason"]) == (503, "draining")
            await ending
            await client.close()

    nodes.run(main)
