"""What operators are told of `POST /requests`: a line in the log of each, and counters."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from types import ModuleType

import pytest

from spillover.live.process.logs import REQUESTS_LOGGER
from support.federation import Federation, run, topology_of, until
from support.proxy_doors import counted

pytestmark = pytest.mark.together


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


def with_node(check, **cluster):
    async def main():
        cluster.setdefault("handler", "python:told_jobs:run")
        async with Federation(topology_of("a", clusters={"a": cluster})) as nodes:
            await check(nodes["a"])

    run(main)


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
def test_each_request_has_a_line_and_is_counted(caplog, jobs, payload, headers, line, failure):
    caplog.set_level(logging.INFO, REQUESTS_LOGGER)

    async def check(node):
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

    with_node(check)


def test_a_deadline_in_the_queue_is_told_from_one_at_the_service(caplog, jobs):
    caplog.set_level(logging.INFO, REQUESTS_LOGGER)

    async def check(node):
        late = [(b"Spillover-Deadline-Ms", b"150")]
        sent = [
            asyncio.ensure_future(node.send("POST", "/requests", body("sleep"), late))
            for _ in range(2)
        ]
        assert [(await one)[0] for one in sent] == [504, 504]
        assert sorted(fields["cause"] for fields in told(caplog)) == ["queue", "timeout"]
        counts = counted(node, "failures_total")
        assert counts == {("queue", "expired"): 1, ("timeout", "expired"): 1}

    with_node(check, servers=1, service_ms=1.0)


def test_what_is_asked_for_later_and_what_is_given_again(caplog, jobs):
    """A 202 is counted as an answer, the line comes at the end; a repeat says so."""
    caplog.set_level(logging.INFO, REQUESTS_LOGGER)

    async def check(node):
        headers = [(b"Prefer", b"respond-async"), (b"Idempotency-Key", b"k")]
        status, *_ = await node.send("POST", "/requests", body("x"), headers)
        assert status == 202
        await until(lambda: told(caplog))
        assert counted(node, "results_unfetched") == {(): 1}
        status, *_ = await node.send("POST", "/requests", body("x"), headers[1:])
        assert status == 200
        first, again = told(caplog)
        assert (first["outcome"], first.get("replayed")) == ("done", None)
        assert (again["outcome"], again["replayed"], again["request_id"]) == ("done", True, "k")
        assert counted(node, "http_requests_total") == {("POST", "/requests", "2xx"): 2}
        assert counted(node, "results_unfetched") == {}

    with_node(check)
