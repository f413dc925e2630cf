"""Handlers on a running node: results, failures of every kind, deadlines, processes."""

import importlib
import json
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from spillover.live.handlers.calls import spin
from support import HANDLERS

pytestmark = pytest.mark.processes


@pytest.fixture(autouse=True)
def handlers(monkeypatch):
    """The module of handlers, importable as users' modules are: from the working directory."""
    monkeypatch.chdir(HANDLERS)
    monkeypatch.setattr(sys, "path", [*sys.path])
    module = (
        importlib.import_module("handlers_of_tests")
        if "handlers_of_tests" in sys.modules
        else _first_import()
    )
    module.RELEASE.clear()
    module.SEEN.clear()
    return module


def _first_import():
    sys.path.insert(0, str(Path.cwd()))
    return importlib.import_module("handlers_of_tests")


@asynccontextmanager
async def with_handler(nodes, function, **fields):
    cluster = {"handler": f"python:handlers_of_tests:{function}", **fields}
    async with nodes.Federation(nodes.topology_of("a", clusters={"a": cluster})) as federation:
        yield federation["a"]


async def result_of(node, payload, **fields):
    response = await node.post(payload, **fields)
    assert response.status == 200, response.body
    return json.loads(response.body)["result"]


KINDS = [("call_me", "process"), ("soon", "thread")]


@pytest.mark.parametrize(("function", "workers"), KINDS)
async def test_a_function_gets_the_payload_and_gives_the_result(nodes, function, workers):
    """In a process, though it has no name that could be sent there, or on the loop."""
    async with with_handler(nodes, function, workers=workers) as node:
        payload = {"text": "ü", "list": [1, None]}
        assert await result_of(node, payload) == payload


FAILURES = [
    ("fail", "thread", "ValueError: no way 1"),
    ("stop_iteration", "thread", "StopIteration"),
    ("leave", "process", "SystemExit: 3"),
    ("odd", "process", "Odd: "),
    ("leave_async", "thread", "SystemExit: 3"),
    ("cancel_itself", "thread", "CancelledError"),
]


@pytest.mark.parametrize(("function", "workers", "says"), FAILURES)
async def test_a_failing_handler_is_502_in_one_line(nodes, function, workers, says):

    async with with_handler(nodes, function, workers=workers) as node:
        for _ in range(2):
            response = await node.post(1)
            problem = json.loads(response.body)
            assert (response.status, problem["reason"]) == (502, "handler_failed")
            assert says in problem["detail"]
            assert "\n" not in problem["detail"]
            assert "Traceback" not in problem["detail"]
        assert node.ledger.home["failed"] == 2
        await nodes.until(lambda: node.machine.servers.busy == 0)  # once they have cooled


async def test_a_sync_handler_that_is_late_keeps_its_server(nodes, handlers):
    """504 for the client; the server is stuck until the function returns, and then free."""
    async with with_handler(nodes, "stubborn") as node:
        response = await node.post(1, headers=[(b"Spillover-Deadline-Ms", b"60")])
        assert response.status == 504
        assert (node.machine.servers.busy, len(node.machine.servers.stuck)) == (1, 1)
        metrics = await node.client.request("GET", "/metrics", timeout_s=5)
        assert b'spillover_servers_stuck{cluster="a"} 1.0' in metrics.body
        waiting = node.post(2)
        await nodes.until(lambda: node.machine.queue_length == 1)
        handlers.RELEASE.set()
        assert (await waiting).status == 200
        assert handlers.SEEN == [True, False]
        assert (node.machine.servers.busy, len(node.machine.servers.stuck)) == (0, 0)


async def test_spin_burns_processor_time_in_processes(nodes):
    started_s = time.process_time()
    assert json.loads(spin(0.05).result) == {"service_ms": 50.0}
    assert time.process_time() - started_s >= 0.05
    topology = nodes.topology_of("a", clusters={"a": {"handler": "spin", "servers": 2}})
    async with nodes.Federation(topology) as federation:
        node = federation["a"]
        assert await result_of(node, {"service_ms": 20}) == {"service_ms": 20.0}
        late = await node.post({"service_ms": 300}, headers=[(b"Spillover-Deadline-Ms", b"90")])
        assert late.status == 504
        assert len(node.machine.servers.stuck) == 1, "a spinning process cannot be stopped"
        await nodes.until(lambda: node.machine.servers.busy == 0)
