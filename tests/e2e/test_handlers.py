"""Python handlers at work: found beside the topology, run wherever the request ends up."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import random
import signal
import socket
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from support.commands import ROW, SPILLOVER
from support.ports import free_row

MODULE = """
import asyncio
import base64
import hashlib
import time
import zlib


def compress(payload, ctx):
    data = base64.b64decode(payload["data"])
    squeezed = zlib.compress(data, 9)
    time.sleep(payload.get("hold_s", 0))  # so that the queue grows whatever the machine
    return {
        "size": len(squeezed),
        "digest": hashlib.sha256(zlib.decompress(squeezed)).hexdigest(),
        "cluster": ctx.cluster,
    }


async def echo(payload):
    await asyncio.sleep(0.01)
    return [payload, payload]


def fail(payload):
    raise ValueError(f"no {payload}\\nand a second line")
"""

TOPOLOGY = """
clusters:
  - {id: a, servers: 1, service_ms: 50, handler: "python:work:compress"}
  - {id: b, servers: 4, service_ms: 50, handler: "python:work:compress"}
  - {id: async, servers: 2, handler: "python:work:echo"}
  - {id: faulty, servers: 1, handler: "python:work:fail"}
links:
  - {between: [a, b], delay_ms: 5}
"""

REQUESTS = 24


@pytest.fixture(scope="module")
def urls(tmp_path_factory, module_start):
    """Clusters whose handlers are in a module in the working directory."""
    directory = tmp_path_factory.mktemp("work")
    (directory / "work.py").write_text(MODULE)
    (directory / "work.yaml").write_text(TOPOLOGY)
    options = ("--json", "--seed", "1", "--port", str(free_row(ROW)))
    bed = module_start(*SPILLOVER, "up", "work.yaml", *options, cwd=directory)
    yield bed.ready()
    assert bed.end() == 0
    bed.nothing_left()


def test_results_are_right_wherever_they_come_from(urls, ask):
    """Overflow of a small cluster is compressed at its neighbor, and each answer is of its own
    request."""
    blobs = [random.Random(index).randbytes(2_000) * 20 for index in range(REQUESTS)]

    def send(blob):
        payload = {"data": base64.b64encode(blob).decode(), "hold_s": 0.05}
        return ask(f"{urls['a']}/requests", {"payload": payload})

    with ThreadPoolExecutor(REQUESTS) as clients:
        answers = list(clients.map(send, blobs))
    for blob, (status, answer) in zip(blobs, answers, strict=True):
        assert status == 200
        assert answer["result"] == {
            "size": len(zlib.compress(blob, 9)),
            "digest": hashlib.sha256(blob).hexdigest(),
            "cluster": answer["cluster"],
        }
        assert answer["path"][-1] == answer["cluster"]
        assert answer["hops"] == len(answer["path"]) - 1
    assert {answer["cluster"] for _, answer in answers} == {"a", "b"}


@pytest.mark.parametrize("victim", ["the supervisor", "the node"])
def test_worker_processes_end_with_their_node(victim, tmp_path, up, ask):
    """Servers that are processes are not left behind, even where nobody could end them."""
    (tmp_path / "work.py").write_text(MODULE)
    (tmp_path / "work.yaml").write_text(
        "clusters: [{id: a, servers: 2, workers: process, handler: 'python:work:compress'}]\n"
    )
    bed, urls = up("work.yaml", "--no-restart", cwd=tmp_path)
    status, answer = ask(f"{urls['a']}/requests", {"payload": {"data": ""}})
    assert (status, answer["result"]["size"]) == (200, len(zlib.compress(b"", 9)))
    workers = [one for one in bed.look().values() if "--multiprocessing-fork" in one]
    assert len(workers) == 2
    if victim == "the node":
        os.kill(bed.nodes()["a"], signal.SIGKILL)
        assert bed.process.wait(10) == 1
    else:
        assert bed.end(signal.SIGKILL) == -signal.SIGKILL
    bed.nothing_left()


class Service(ThreadingHTTPServer):
    """A service that was there before Spillover; each payload says what it is to do."""

    daemon_threads = True

    def __init__(self, port=0):
        self.asked = []
        self.connections = []
        self.release = threading.Event()
        super().__init__(("127.0.0.1", port), ServiceHandler)
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def end(self):
        self.release.set()
        self.shutdown()
        self.server_close()
        for connection in self.connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, *_):
        """The hung request finds that its client has gone."""


class ServiceHandler(BaseHTTPRequestHandler):
    """One connection to the service."""

    protocol_version = "HTTP/1.1"

    def setup(self):
        super().setup()
        self.server.connections.append(self.connection)

    def do_POST(self):
        payload = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(self.headers)
        if payload == "hang":
            self.server.release.wait(20)
        body = json.dumps({"did": payload, "path": self.path}).encode()
        self.send_response(503 if payload == "fail" else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Into no log."""


def test_a_service_behind_http(tmp_path, up, ask, until):
    """Its answers, its errors, its hanging; while it is gone the neighbor does the work."""
    service = Service()
    port = service.server_port
    (tmp_path / "front.yaml").write_text(
        "clusters:\n"
        f"  - {{id: a, servers: 1, handler: 'http:http://127.0.0.1:{port}/work'}}\n"
        "  - {id: b, servers: 4, service_ms: 1}\n"
        "links: [{between: [a, b]}]\n"
    )
    bed, urls = up("front.yaml", cwd=tmp_path)

    def post(payload, **headers):
        return ask(f"{urls['a']}/requests", {"payload": payload}, headers)

    try:
        status, answer = post([1.5], **{"Idempotency-Key": "one"})
        assert (status, answer["result"]) == (200, {"did": [1.5], "path": "/work"})
        assert service.asked[0]["Idempotency-Key"] == "one"
        assert service.asked[0]["Spillover-Request-Id"] == "one"
        status, answer = post("fail")  # 503: surely not done, so that the neighbor does it
        assert (status, answer["cluster"], answer["path"]) == (200, "b", ["a", "b"])
        until(lambda: ask(f"{urls['a']}/state")[1]["busy"] == 0)  # else the neighbor is the sooner
        assert post("hang", **{"Spillover-Deadline-Ms": "150"})[0] == 504
        until(lambda: ask(f"{urls['a']}/state")[1]["busy"] == 0)
        status, answer = post("again")
        assert (status, answer["cluster"]) == (200, "a"), "the hung call holds no server"

        service.end()
        for _ in range(10):  # the first one finds it out, and is not lost by that
            status, answer = post({})
            assert (status, answer["cluster"]) == (200, "b")
        service = Service(port)
        until(lambda: post({})[1]["cluster"] == "a")
    finally:
        service.end()
    assert bed.end() == 0
    bed.nothing_left()


TRACE = "time_s,cluster,service_ms\n0.0,a,12.5\n0.01,b,30\n0.02,a,80\n0.4,b,7.25\n"


def test_service_times_travel(tmp_path, up, generate, spillover):
    """A request is served for as long as the trace says, alive and in virtual time."""
    expected = [("a", 12.5), ("b", 30.0), ("a", 80.0), ("b", 7.25)]
    trace, topology, out = (tmp_path / name for name in ("trace.csv", "pair.yaml", "out.jsonl"))
    trace.write_text(TRACE)
    topology.write_text(
        "policy: isolated\nclusters:\n  - {id: a, servers: 4}\n  - {id: b, servers: 4}\n"
    )
    bed, urls = up(str(topology))
    options = ["--trace", str(trace)]
    result = generate(urls, *options, "--out", str(out)).result()
    assert result["sent"] == result["outcomes"]["ok"] == len(expected)
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert [record["cluster"] for record in records] == [cluster for cluster, _ in expected]
    for record, (_, service_ms) in zip(records, expected, strict=True):
        served_ms = record["system_time_ms"] - record["sent_lag_s"] * 1000
        assert served_ms == pytest.approx(service_ms, abs=0.01)
    simulated = spillover(
        "sim", "overflow", "--topology", str(topology), *options, "--json"
    ).result()
    times_ms = [service_ms for _, service_ms in expected]
    assert simulated["system_time_ms"]["mean"] == pytest.approx(sum(times_ms) / len(times_ms))
    assert bed.end() == 0
