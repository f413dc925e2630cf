"""Python handlers at work: found beside the topology, run wherever the request ends up."""

from __future__ import annotations

import os
import signal
import zlib

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
