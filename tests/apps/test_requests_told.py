"""What operators are told of `POST /requests`: a line in the log of each, and counters."""

import asyncio
import json
import logging
import sys
from contextlib import asynccontextmanager
from types import ModuleType

import pytest

from spillover.live.process.logs import REQUESTS_LOGGER
from support.federation import Federation, topology_of
from support.proxy_doors import counted


def body(payload=None, **fields):
    return json.dumps({"payload": payload, **fields}).encode()


@pytest.fixture
def jobs(monkeypatch):
    module = ModuleType("told_jobs")

    async def work(payload):
        if payload == "fail":
            raise ValueError("no")
        if payload == "sleep":
            await asyncio.Event().wait()
        return payload

    module.run = work
    monkeypatch.setitem(sys.modules, "told_jobs", module)


def told(caplog):
    return [one.msg.fields for one in caplog.records if one.name == REQUESTS_LOGGER]


@asynccontextmanager
async def a_node(**cluster):
    cluster.setdefault("handler", "python:told_jobs:run")
    async with Federation(topology_of("a", clusters={"a": cluster})) as nodes:
        yield nodes["a"]


@pytest.mark.parametrize(
    ("payload", "headers", "line", "failure"),
    [
        ("x", [], {"status": 200, "outcome": "done", "sent_bytes": 3}, None),
        ("fail", [], {"status": 502, "outcome": "failed", "cause": "worker"}, ("worker", "failed")),
        ("sleep", [(b"Spillover-Deadline-Ms", b"100")],
         {"status": 504, "outcome": "expired", "cause": "timeout"}, ("timeout", "expired")),
        ("x", [(b"Spillover-Deadline-Ms", b"soon")],
         {"status": 422, "outcome": "refused", "cause": "invalid"}, None),
    ],
)  # fmt: skip
async def test_each_request_has_a_line_and_is_counted(
    caplog, jobs, payload, headers, line, failure
):
    caplog.set_level(logging.INFO, REQUESTS_LOGGER)
    async with a_node() as node:
        sent = body(payload)
        status, *_ = await node.send("POST", "/requests", sent, headers)
        (fields,) = told(caplog)
        line.update(method="POST", path="/requests")
        assert fields | line == fields
        if line["outcome"] != "refused":
            assert (fields["ended_at"], fields["hops"]) == ("a", 0)
            assert fields["received_bytes"] == len(sent)
        label = ("POST", "/requests", f"{status // 100}xx")
        assert counted(node, "http_requests_total") == {label: 1}
        assert counted(node, "failures_total") == ({failure: 1} if failure else {})
