"""Handlers on a running node: results, failures of every kind, deadlines, processes."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
import time
from pathlib import Path

import pytest

from spillover.live.handlers.calls import call, spin
from spillover.live.overflow.shell import NodeShell
from spillover.model.errors import InputError
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


def with_handler(nodes, function, check, **fields):
    cluster = {"handler": f"python:handlers_of_tests:{function}", **fields}

    async def main():
        async with nodes.Federation(nodes.topology_of("a", clusters={"a": cluster})) as federation:
            await check(federation["a"])

    nodes.run(main)


async def result_of(node, payload, **fields):
    response = await node.post(payload, **fields)
    assert response.status == 200, response.body
    return json.loads(response.body)["result"]


KINDS = [("echo", "thread"), ("echo", "process"), ("call_me", "process"), ("soon", "thread")]


@pytest.mark.parametrize(("function", "workers"), KINDS)
def test_a_function_gets_the_payload_and_gives_the_result(nodes, function, workers):
    """In a thread, in a process, or on the loop."""

    async def check(node):
        payload = {"text": "ü", "list": [1, None]}
        result = await result_of(node, payload)
        assert (result["echo"] if function == "echo" else result) == payload
        if function == "echo":
            assert (result["process"] == os.getpid()) == (workers == "thread")

    with_handler(nodes, function, check, workers=workers)


@pytest.mark.parametrize("workers", ["thread", "process"])
def test_a_second_argument_is_the_context(nodes, workers):
    """What a handler may know of its request, also how much of its time is left."""

    async def check(node):
        *told, remaining_ms, cancelled = await result_of(node, 1, id="one", type="special")
        assert (told, cancelled) == (["one", "special", "a"], False)
        assert 30_000.0 < remaining_ms < 60_000.0

    with_handler(nodes, "with_context", check, workers=workers)


FAILURES = [
    ("fail", "ValueError: no way 1"),
    ("stop_iteration", "StopIteration"),
    ("leave", "SystemExit: 3"),
    ("odd", "Odd: "),
    ("not_json", "JSON"),
    ("huge", "more than"),
    ("leave_async", "SystemExit: 3"),
    ("cancel_itself", "CancelledError"),
]


@pytest.mark.parametrize("workers", ["thread", "process"])
@pytest.mark.parametrize(("function", "says"), FAILURES)
def test_a_failing_handler_is_502_in_one_line(nodes, function, says, workers):
    """No traceback for the client; the server is free again and the node lives."""

    async def check(node):
        for _ in range(2):
            response = await node.post(1)
            problem = json.loads(response.body)
            assert (response.status, problem["reason"]) == (502, "handler_failed")
            assert says in problem["detail"]
            assert "\n" not in problem["detail"]
            assert "Traceback" not in problem["detail"]
        assert node.ledger.home["failed"] == 2
        await nodes.until(lambda: node.machine.servers.busy == 0)  # once they have cooled

    with_handler(nodes, function, check, workers=workers)


KINDS_OF_CALL = [("echo", "thread"), ("echo", "process"), ("soon", "thread")]


@pytest.mark.parametrize(("function", "workers"), KINDS_OF_CALL)
@pytest.mark.parametrize("payload", ["1e99999", "[" + "9" * 5000 + "]"])
def test_json_that_python_cannot_hold_is_no_failure_of_the_handler(
    nodes, caplog, function, workers, payload
):
    """It was not called, which one line says. Of a traceback nobody would learn more."""

    async def check(node):
        body = b'{"payload":%b}' % payload.encode()
        status, _, problem = await node.send("POST", "/requests", body)
        assert (status, problem["reason"]) == (422, "handler_rejected")
        expected = "the handler was not called: payload: expected JSON that python can hold: "
        assert problem["detail"].startswith(expected)
        assert "range" in problem["detail"]
        assert node.machine.servers.busy == 0

    with_handler(nodes, function, check, workers=workers)
    assert "Traceback" not in caplog.text
    ended = call(repr, payload.encode(), None, False)
    assert ended.problem.startswith("the handler was not called: payload: ")
    assert ended.details == "", "what is logged is the problem, then"


def test_what_json_has_no_number_for_becomes_null(nodes):
    """NaN, as in JavaScript."""

    async def check(node):
        assert await result_of(node, 1) == [None]

    with_handler(nodes, "nan", check)


def test_a_process_that_dies_takes_only_its_own_request(nodes):
    """502 with the exit status; the next request gets a new process, the others notice nothing."""

    async def check(node):
        first = await result_of(node, "live")
        response = await node.post("die")
        problem = json.loads(response.body)
        assert (response.status, problem["reason"]) == (502, "handler_failed")
        assert "exit status 7" in problem["detail"]
        assert await result_of(node, "live") != first

    with_handler(nodes, "die", check, workers="process")


def test_an_async_handler_is_cancelled_at_the_deadline(nodes, handlers):
    """504 for the client, and the server is free at once."""

    async def check(node):
        response = await node.post(1, headers=[(b"Spillover-Deadline-Ms", b"60")])
        assert response.status == 504
        await nodes.until(lambda: node.machine.servers.busy == 0)
        assert handlers.SEEN == ["started", True]

    with_handler(nodes, "later", check)


def test_a_sync_handler_that_is_late_keeps_its_server(nodes, handlers):
    """504 for the client; the server is stuck until the function returns, and then free."""

    async def check(node):
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

    with_handler(nodes, "stubborn", check)


def test_no_more_run_at_once_than_there_are_servers(nodes, handlers):
    """Two servers, five requests: three wait."""

    async def check(node):
        sent = [node.post(n) for n in range(5)]
        await nodes.until(lambda: node.machine.queue_length == 3)
        assert node.machine.servers.busy == 2
        handlers.RELEASE.set()
        assert {(await future).status for future in sent} == {200}

    with_handler(nodes, "stubborn", check, servers=2)


@pytest.mark.parametrize("function", ["later", "stubborn"])
def test_a_node_that_closes_does_not_wait_for_its_handlers(nodes, handlers, function):
    """Whoever waits is told that the outcome is unknown; a thread that hangs holds up nothing."""

    async def check(node):
        sent = node.post(1)
        await nodes.until(lambda: node.machine.servers.busy == 1)
        closing = asyncio.ensure_future(node.shell.close())
        response = await sent
        assert (response.status, json.loads(response.body)["reason"]) == (502, "outcome_unknown")
        await closing
        handlers.RELEASE.set()

    with_handler(nodes, function, check)


def test_spin_burns_processor_time_in_processes(nodes):
    """The service time is spent on a processor, elsewhere than on the node's loop."""
    started_s = time.process_time()
    assert json.loads(spin(0.05).result) == {"service_ms": 50.0}
    assert time.process_time() - started_s >= 0.05

    async def main():
        topology = nodes.topology_of("a", clusters={"a": {"handler": "spin", "servers": 2}})
        async with nodes.Federation(topology) as federation:
            node = federation["a"]
            assert await result_of(node, {"service_ms": 20}) == {"service_ms": 20.0}
            late = await node.post({"service_ms": 300}, headers=[(b"Spillover-Deadline-Ms", b"90")])
            assert late.status == 504
            assert len(node.machine.servers.stuck) == 1, "a spinning process cannot be stopped"
            await nodes.until(lambda: node.machine.servers.busy == 0)

    nodes.run(main)


BAD_HANDLERS = {
    "python:no_such_module_anywhere:f": "cannot import",
    "python:handlers_of_tests:nothing": "expected a function 'nothing'",
    "python:handlers_of_tests:SEEN": "expected a function 'SEEN'",
    "python:bad_syntax:f": "SyntaxError",
    "python:bad_exit:f": "SystemExit",
    "python:os:getpid": "expected getpid(payload)",
    "python:os": "expected sleep, spin, python:MODULE:FUNCTION, http:URL[,URL...], proxy:URL",
    "python:os:": "expected sleep, spin, python:MODULE:FUNCTION, http:URL[,URL...], proxy:URL",
    "python::getpid": "expected sleep, spin, python:MODULE:FUNCTION, http:URL[,URL...], proxy:URL",
    "http:https://h:0/": "expected http(s)://HOST",
    "http:http://h:1,http://h:1": "expected URLs that differ",
}


@pytest.mark.parametrize(("handler", "says"), BAD_HANDLERS.items())
def test_a_handler_that_cannot_be_had_is_bad_input(nodes, tmp_path, monkeypatch, handler, says):
    """One line that names the cluster and the reason, before anything is served."""
    (tmp_path / "bad_syntax.py").write_text("def f(:\n")
    (tmp_path / "bad_exit.py").write_text("import sys\nsys.exit('not\\nhere')\n")
    monkeypatch.syspath_prepend(tmp_path)

    async def main():
        with pytest.raises(InputError) as raised:
            NodeShell(nodes.topology_of("a", clusters={"a": {"handler": handler}}), "a")
        assert says in str(raised.value)
        assert "\n" not in str(raised.value)
        assert "cluster a: handler" in str(raised.value)

    nodes.run(main)
