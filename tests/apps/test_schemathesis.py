"""The OpenAPI keeps its word: schemathesis calls every operation of a running node, with what the
description allows and with what it does not.

Checked of each answer: no 500, a status and a content type that are described, a body as described.
What single routes mean is tested in the other files of this directory.
"""

import asyncio
import itertools
import json
import threading
import uuid
from functools import partial
from types import SimpleNamespace

import pytest
import requests
import schemathesis
import uvloop
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from spillover.apps.http.exchange import EXCHANGE
from spillover.apps.http.server import HttpServer
from spillover.apps.node.app import create_app
from spillover.core.overflow.events import Resume
from spillover.live.overflow.shell import NodeShell
from spillover.live.process.listening import bind_socket
from spillover.model.topology import Cluster, Topology
from support.few import examples, in_soak

pytestmark = pytest.mark.slow

NEIGHBOR = f"n{uuid.uuid4().hex}"
"""Nothing that is made up is called so: reports for it would never end, and answers to it would
leave over a link that was cut. Not a literal, since Hypothesis tries those that it finds."""

KNOWN = "known-request"

REPORTS = "/peer/v3/reports"

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]

CONFIG = {
    "seed": 1,
    "request-timeout": 10.0,
    "checks": {
        "not_a_server_error": {"expected-statuses": ["2xx", "3xx", "4xx", "502", "503", "504"]}
    },
    "phases": {"coverage": {"unexpected-methods": ["PATCH", "TRACE"]}},
}

OPERATIONS = {
    *("GET /state", "GET /federation", "GET /healthz", "GET /readyz", "GET /metrics"),
    *("POST /requests", "GET /requests/{request_id}", "DELETE /requests/{request_id}"),
    *("GET /explain/{request_id}", "POST /admin/drain", "POST /admin/resume"),
    *("PUT /admin/policy", "PUT /admin/tokens", "PUT /admin/links/{neighbor}"),
    *("POST /peer/v3/forward", "POST /peer/v3/cancel", "POST /peer/v3/federation"),
    *("POST /peer/v2/pass", "GET /peer/v2/hello", "GET /peer/v3/shared"),
    *("GET /peer/v3/reports", "GET /peer/v2/configuration", "GET /console"),
    *("GET /admin/config", "GET /admin/config/history", "PUT /admin/config"),
    *("GET /session", "DELETE /session"),
}


def run_node(nodes, running):
    """A node with a neighbor, as one started with --testbed serves it, until `running.stop`."""

    async def main():
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        # A session would have no end either.
        few = {"default_deadline_ms": 1000.0, "client_sessions_max": 0}
        topology = nodes.topology_of("a", NEIGHBOR, **few)
        async with nodes.Federation(topology) as federation:
            shell = federation["a"].shell
            with bind_socket("127.0.0.1", 0) as listening:
                server = HttpServer(create_app(shell, testbed=True))
                serving = asyncio.create_task(server.serve(sockets=[listening]))
                await server.ready.wait()
                running.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
                running.stop = lambda: loop.call_soon_threadsafe(stop.set)
                running.resume = lambda: loop.call_soon_threadsafe(shell.feed, Resume())
                heal = partial(
                    shell.neighborhood.emulated[0].set_faults, delay_s=0.0, loss=0.0, cut=False
                )
                running.heal = lambda: loop.call_soon_threadsafe(heal)
                running.ready.set()
                await stop.wait()
                server.stop()
                await serving

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())
    except BaseException as error:  # noqa: BLE001 - raised again by the fixture
        running.error = error
    running.ready.set()


@pytest.fixture(scope="module")
def node(nodes):
    """A node that runs in a thread; at its end the machine and the ledger are checked."""
    running = SimpleNamespace(url=None, error=None, ready=threading.Event(), stop=lambda: None)
    thread = threading.Thread(target=run_node, args=(nodes, running), daemon=True)
    thread.start()
    assert running.ready.wait(10)
    try:
        assert running.error is None, running.error
        with requests.Session() as running.session, requests.Session() as running.stranger:
            body = {"payload": None, "id": KNOWN}
            assert running.session.post(f"{running.url}/requests", json=body).status_code == 200
            yield running
    finally:
        running.stop()
        thread.join(10)
    assert running.error is None, running.error


async def describe():
    """What GET /openapi.json answers: tests are collected before anything listens."""
    parts = []

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        parts.append(message.get("body", b""))

    topology = Topology(name="test", clusters=(Cluster(id="a", servers=1),))
    shell = NodeShell(topology, "a")
    scope = {"type": "http", "method": "GET", "path": "/openapi.json", "headers": []}
    scope |= {"query_string": b"", "root_path": "", EXCHANGE: SimpleNamespace(is_of_page=False)}
    await create_app(shell, testbed=True)(scope, receive, send)
    await shell.close()
    return json.loads(b"".join(parts))


DESCRIPTION = asyncio.run(describe())
schema = schemathesis.openapi.from_dict(DESCRIPTION, config=SchemathesisConfig.from_dict(CONFIG))
counter = itertools.count()


def make_sense(case):
    """Every other case gets names that exist, or most of the code would never be reached."""
    if next(counter) % 2:
        return
    path = case.path_parameters or {}
    if "neighbor" in path:
        case.path_parameters["neighbor"] = NEIGHBOR
    if "request_id" in path:
        case.path_parameters["request_id"] = KNOWN
    if case.operation.path.startswith("/peer/") and case.operation.path != REPORTS:
        case.headers["Spillover-Peer"] = f"from={NEIGHBOR}"


@schema.parametrize()
@settings(
    max_examples=in_soak(36, examples(9)),
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
def test_every_operation_answers_as_described(case, node):
    make_sense(case)
    # On the connection of a neighbor there would be no end of reports.
    session = node.stranger if case.operation.path == REPORTS else node.session
    response = case.call(base_url=node.url, session=session)
    if case.operation.path == "/admin/drain":
        node.resume()
    if case.operation.path.startswith("/admin/links/"):
        node.heal()  # or what answers over that link would be late, or never come
    case.validate_response(response, checks=CHECKS)
    assert b"Traceback" not in response.content
    if response.status_code >= 400 and response.request.method != "HEAD":
        assert response.headers["content-type"][0] == "application/problem+json"
        assert response.json()["status"] == response.status_code


def test_every_operation_is_described(node):
    """None is left out of what is called above."""
    described = node.session.get(f"{node.url}/openapi.json").json()["paths"]
    assert described == DESCRIPTION["paths"]
    found = {f"{method.upper()} {path}" for path, one in described.items() for method in one}
    assert found == OPERATIONS
