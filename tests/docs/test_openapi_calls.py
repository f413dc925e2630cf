"""What `/openapi.json` of a node promises of each call: what it takes and gives, each reason it
may refuse for, and which values of parameters and bodies are right.
"""

from __future__ import annotations

import jsonschema
import pytest

from spillover.apps.http.openapi import problems
from spillover.apps.http.problems import STATUS_BY_REASON

JSON, BYTES, LINES = "application/json", "application/octet-stream", "application/x-ndjson"
PROBLEM = "application/problem+json"

RUNS = """malformed another_site deadline_exceeded body_too_slow cancelled too_large invalid blocked
unknown_type queue_full rate_limited draining no_servers handler_failed outcome_unknown internal
handler_rejected"""
"""Why a request may come to nothing, whoever hands it over."""

KEYS = "Idempotency-Key Spillover-Deadline-Ms Spillover-Type Spillover-Priority Prefer"
PEER = "Spillover-Peer"

CALLS = {
    "POST /requests": (
        JSON,
        f"{KEYS} traceparent tracestate",
        {200: JSON, 202: JSON},
        RUNS,
        "conflict",
    ),
    "GET /requests/{request_id}": (
        None,
        "request_id! wait_ms Prefer",
        {200: JSON},
        "unknown_request invalid internal",
    ),
    "DELETE /requests/{request_id}": (
        None,
        "request_id!",
        {200: JSON, 202: JSON},
        "unknown_request invalid another_site",
    ),
    "GET /session": (
        None,
        "client!",
        {200: LINES},
        "another_site invalid not_ready draining",
        "reconnect_limit too_many_clients",
    ),
    "DELETE /session": (None, "client! moved", {200: JSON}, "another_site invalid"),
    "GET /state": (None, "", {200: JSON}),
    "GET /federation": (None, "", {200: JSON}),
    "GET /explain/{request_id}": (None, "request_id!", {200: JSON}, "unknown_request invalid"),
    "GET /console": (None, "", {200: "text/html"}),
    "GET /healthz": (None, "", {200: JSON}),
    "GET /readyz": (None, "", {200: JSON}, "draining no_servers"),
    "GET /metrics": (None, "", {200: "text/plain"}),
    "POST /admin/drain": (None, "", {202: JSON}, "another_site"),
    "POST /admin/resume": (None, "", {200: JSON}, "another_site"),
    "PUT /admin/policy": (JSON, "", {200: JSON}, "another_site invalid too_large"),
    "GET /admin/config": (None, "", {200: JSON}, "another_site"),
    "GET /admin/config/history": (None, "", {200: JSON}, "another_site"),
    "PUT /admin/config": (
        JSON,
        "",
        {200: JSON},
        "another_site invalid too_large",
        "version_conflict store_unreachable",
    ),
    "PUT /admin/tokens": (JSON, "", {200: JSON}, "another_site invalid too_large servers_alike"),
    "PUT /admin/links/{neighbor}": (
        JSON,
        "neighbor!",
        {200: JSON},
        "another_site invalid too_large not_a_testbed not_found",
    ),
    "GET /peer/v2/hello": (None, PEER, {200: JSON}, "not_a_neighbor another_site internal"),
    "POST /peer/v2/forward": (JSON, PEER, {200: JSON}, RUNS, "not_a_neighbor"),
    "POST /peer/v2/pass": (
        BYTES,
        PEER,
        {200: "application/spillover-stream"},
        RUNS,
        "not_a_neighbor",
    ),
    "POST /peer/v2/cancel": (
        JSON,
        PEER,
        {200: JSON},
        "not_a_neighbor another_site invalid",
        "too_large body_too_slow internal",
    ),
    "POST /peer/v2/federation": (
        JSON,
        PEER,
        {200: JSON},
        "not_a_neighbor another_site invalid too_large",
    ),
    "GET /peer/v2/configuration": (None, PEER, {200: JSON}, "not_a_neighbor not_ready"),
    "GET /peer/v2/reports": (
        None,
        f"{PEER} delay_ms gossip_period_ms default_deadline_ms max_hops",
        {200: LINES},
        "not_a_neighbor another_site invalid not_ready",
    ),
}
"""By call: its body, its parameters (`!`: it has to be there), its answers and its reasons."""


def told_of(described, call):
    method, path = call.split()
    return described["paths"][path][method.lower()]


def parameter(described, call, name):
    (found,) = [p for p in told_of(described, call)["parameters"] if p["name"] == name]
    return found


def is_right(schema, value, described=None):
    known = {} if described is None else {"components": described["components"]}
    return jsonschema.Draft202012Validator({**schema, **known}).is_valid(value)


def test_each_call_is_among_these(described_node):
    found = {
        f"{method.upper()} {path}"
        for path, methods in described_node["paths"].items()
        for method in methods
    }
    assert found == set(CALLS)


@pytest.mark.parametrize("call", CALLS)
def test_a_call_takes_and_gives_what_is_promised(described_node, call):
    """Bodies have to be there. Each is an object of one of the schemas, or bytes, or text."""
    body, parameters, answers, *reasons = CALLS[call]
    told = told_of(described_node, call)
    taken = told.get("requestBody")
    assert (taken is None) == (body is None)
    if taken is not None:
        assert (taken["required"], set(taken["content"])) == (True, {body})
    found = [p["name"] + "!" * p["required"] for p in told.get("parameters", ())]
    assert found == parameters.split()
    given = {}
    for status, response in told["responses"].items():
        (kind,) = response["content"]
        if kind == PROBLEM:
            (schema,) = response["content"][kind]["schema"].values()
            assert schema == "#/components/schemas/ProblemView"
        else:
            given[int(status)] = kind
            assert response["content"][kind]["schema"].keys() & {"$ref", "type"}
    assert given == answers
    refused = {
        reason
        for response in told["responses"].values()
        for reason in response["content"].get(PROBLEM, {"examples": ()})["examples"]
    }
    assert refused == set(" ".join(reasons).split())
    assert ("4XX" in told["responses"]) == ("handler_rejected" in refused)


def test_where_parameters_stand(described_node):
    """In the path as it says, in the query in small letters, else among the headers."""
    for call in CALLS:
        for one in told_of(described_node, call).get("parameters", ()):
            place = "header" if one["name"][0].isupper() else "query"
            if one["name"] in {"traceparent", "tracestate"}:
                place = "header"
            if f"{{{one['name']}}}" in call:
                place = "path"
            assert one["in"] == place, (call, one["name"])


RIGHT_AND_WRONG = [
    ("POST /requests", "Idempotency-Key", ["k", "k" * 200], ["", "k" * 201, 1]),
    ("POST /requests", "Spillover-Deadline-Ms", [0, 0.5, 6e8], [-1, "soon"]),
    ("POST /requests", "Spillover-Type", ["t", "t" * 100], ["", "t" * 101]),
    ("POST /requests", "Spillover-Priority", [0, 9], [-1, 10, 0.5, "high"]),
    ("POST /requests", "Prefer", ["respond-async"], [1]),
    ("POST /requests", "traceparent", ["00-1-2-01"], [1]),
    ("POST /requests", "tracestate", ["a=b"], [1]),
    ("GET /requests/{request_id}", "request_id", ["order-7"], [7]),
    ("GET /requests/{request_id}", "wait_ms", [0, 0.5, 1e9], [-1, "x"]),
    ("GET /requests/{request_id}", "Prefer", ["wait=10"], [10]),
    ("GET /session", "client", ["c", "c" * 200], ["", "c" * 201]),
    ("DELETE /session", "moved", ["1"], ["0", "", 1]),
    ("GET /peer/v2/reports", "max_hops", [0, 9], [-1, "x"]),
]


@pytest.mark.parametrize(("call", "name", "right", "wrong"), RIGHT_AND_WRONG)
def test_values_of_parameters_that_are_right_and_wrong(described_node, call, name, right, wrong):
    schema = parameter(described_node, call, name)["schema"]
    assert [value for value in right if not is_right(schema, value)] == []
    assert [value for value in wrong if is_right(schema, value)] == []
    assert all(is_right(schema, value) for value in schema.get("examples", ()))


FORWARDED = {"id": "order-7", "path": ["a"], "remaining_ms": 50.0, "payload": None}
ANSWERED = {"outcome": "done", "path": ["a", "b"], "held_ms": 2.5}
DONE = {"id": "k", "result": None, "cluster": "a", "path": ["a"], "hops": 0}
TOOK = {"queued": 1.0, "network": 0.0, "service": 2.0, "return": 0.0, "total": 3.0}
WHO = {"cluster": "a", "epoch": 1, "speaks": "2 1"}

BODIES = [
    *(("RequestView", body, True) for body in ({"payload": None}, {"payload": [1], "id": None})),
    ("RequestView", {"payload": 1, "type": "t" * 100, "id": "k" * 200}, True),
    *(("RequestView", {"payload": 1, **more}, False) for more in ({"id": ""}, {"type": ""})),
    ("RequestView", {"payload": 1, "id": "k" * 201}, False),
    ("RequestView", {"payload": 1, "type": "t" * 101}, False),
    ("RequestView", {"payload": 1, "paylod": 1}, False),
    ("RequestView", {}, False),
    ("AnswerView", {**DONE, "timing_ms": TOOK}, True),
    ("AnswerView", {**DONE, "timing_ms": {}}, False),
    *(("AnswerView", {**DONE, "timing_ms": {**TOOK, name: "x"}}, False) for name in TOOK),
    *(
        ("RequestStateView", {"id": "k", "state": state}, True)
        for state in [
            "queued",
            "running",
            "forwarded",
            "done",
            "failed",
            "rejected",
            "expired",
            "cancelled",
        ]
    ),
    ("RequestStateView", {"id": "k", "state": "done", "hops": 0, "problem": None}, True),
    ("RequestStateView", {"id": "k", "state": "failed", "problem": {"status": 502}}, True),
    ("RequestStateView", {"id": "k", "state": "lost"}, False),
    ("RequestStateView", {"state": "done"}, False),
    ("ForwardView", FORWARDED, True),
    ("ForwardView", {**FORWARDED, "priority": 9, "tenant": "", "traceparent": None}, True),
    ("ForwardView", {**FORWARDED, "priority": 0, "tenant": "team-a", "sender": "a"}, True),
    ("ForwardView", {**FORWARDED, "path": ["a"] * 1000, "keyed": True}, True),
    ("ForwardView", {**FORWARDED, "path": []}, False),
    ("ForwardView", {**FORWARDED, "path": ["a"] * 1001}, False),
    ("ForwardView", {**FORWARDED, "priority": 10}, False),
    ("ForwardView", {**FORWARDED, "priority": -1}, False),
    ("ForwardView", {**FORWARDED, "tenant": "a/b"}, False),
    ("ForwardView", {**FORWARDED, "id": ""}, False),
    ("ForwardView", {**FORWARDED, "type": ""}, False),
    ("ForwardView", {**FORWARDED, "id": "k" * 201}, False),
    ("ForwardView", {**FORWARDED, "type": "t" * 101}, False),
    *(("ForwardView", {k: v for k, v in FORWARDED.items() if k != n}, False) for n in FORWARDED),
    *(
        ("ForwardAnswerView", {**ANSWERED, "outcome": outcome}, True)
        for outcome in ["done", "failed", "rejected", "expired", "cancelled", "unknown"]
    ),
    ("ForwardAnswerView", {**ANSWERED, "result": 1, "problem": None, "return_ms": 1.0}, True),
    ("ForwardAnswerView", {**ANSWERED, "outcome": "lost"}, False),
    *(
        ("ForwardAnswerView", {k: v for k, v in ANSWERED.items() if k != n}, False)
        for n in ANSWERED
    ),
    ("CancelView", {"id": "k"}, True),
    ("CancelView", {"id": "k", "tenant": "team-a"}, True),
    ("CancelView", {"id": "k", "tenant": "a b"}, False),
    ("CancelView", {"id": ""}, False),
    ("CancelView", {"id": "k" * 201}, False),
    ("CancelView", {}, False),
    ("CancelAnswerView", {"found": False}, True),
    ("CancelAnswerView", {}, False),
    ("WhoView", WHO, True),
    *(("WhoView", {k: v for k, v in WHO.items() if k != n}, False) for n in WHO),
]


@pytest.mark.parametrize("name", sorted({name for name, _, _ in BODIES}))
def test_bodies_that_are_right_and_wrong(described_node, name):
    schema = described_node["components"]["schemas"][name]
    for one, body, right in BODIES:
        if one == name:
            assert is_right(schema, body, described_node) is right, body


def test_reasons_of_one_status_are_told_together():
    """In the order that they are given in; that a handler's own status is passed on as well."""
    told = problems("queue_full", "draining", "blocked", "handler_rejected", "invalid")
    words = {status: one["description"] for status, one in told.items()}
    assert words == {
        429: "queue_full or blocked",
        503: "draining",
        422: "handler_rejected or invalid",
        "4XX": "handler_rejected",
    }
    assert {status for status in told if status != "4XX"} <= set(STATUS_BY_REASON.values())
    assert problems() == {}
