"""`/openapi.json` explains itself: headers, examples and every error. `/docs` shows all of it, and
asks no other host. That nodes answer as described is tested by schemathesis, in tests/apps."""

from __future__ import annotations

import html
import re

import jsonschema
from fastapi import FastAPI

from spillover.apps.http.api_docs.page import page
from spillover.apps.http.problems import STATUS_BY_REASON
from spillover.apps.node.openapi_told import EXAMPLES

PROBLEM = "application/problem+json"


def operations(described):
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def schemas_of(described):
    """Name and schema of each JSON body that is described."""
    for _, operation in operations(described):
        for told in (operation.get("requestBody", {}), *operation["responses"].values()):
            schema = told.get("content", {}).get("application/json", {}).get("schema", {})
            name = schema.get("$ref", "").rpartition("/")[2]
            if name:
                schema = described["components"]["schemas"][name]
            if schema.get("title", "").isidentifier():  # no plain mapping
                yield schema["title"], schema


def test_every_parameter_says_what_it_means(described_node):
    """Those of calls between nodes aside, which nobody writes by hand."""
    for name, operation in operations(described_node):
        for parameter in operation.get("parameters", []):
            said = parameter["description"] or "/peer/" in name
            assert said, f"{name}: {parameter['name']} in openapi_told"


def test_every_body_has_an_example_of_its_schema(described_node):
    """Of requests and of answers. An example that the schema does not allow would mislead."""
    schemas = described_node["components"]["schemas"]
    found = {**dict(schemas_of(described_node)), "ProblemView": schemas["ProblemView"]}
    assert set(found) == set(EXAMPLES), "openapi_told.EXAMPLES"
    for schema in found.values():
        (example,) = schema["examples"]
        jsonschema.validate(example, {**schema, "components": {"schemas": schemas}})


def test_the_numbers_of_the_examples_agree():
    """As those of a node do: people take what adds up for a rule, and what does not for a bug."""
    answer = EXAMPLES["AnswerView"]
    times = answer["timing_ms"]
    assert times["total"] == round(times["queued"] + times["network"] + times["service"], 6)
    assert (answer["cluster"], answer["hops"]) == (answer["path"][-1], len(answer["path"]) - 1)
    assert EXAMPLES["RequestStateView"] == {"state": "done", **answer}
    state = EXAMPLES["NodeState"]
    (neighbor,) = state["neighbors"]
    home, foreign = state["ledger"]["home"], state["ledger"]["foreign"]
    assert 2 * home["accepted"] == sum(home.values())
    assert 2 * foreign["received"] == sum(foreign.values())
    assert state["queue_length"] == home["queued"] + foreign["queued"]
    assert state["busy"] == home["running"] + foreign["running"] <= state["servers"]
    accepts = state["servers"] / (state["busy"] + state["queue_length"])
    assert state["accept_probability"] == round(accepts, 4)
    (flow,) = EXAMPLES["FederationState"]["flows"]
    assert flow["pushed"] + flow["pulled"] == state["forwards"]
    ended = sum(flow[end] for end in ("answered", "refused", "lost", "recalled"))
    assert state["forwards"] - ended == home["away"]
    assert neighbor["neighborhood_accept_probability"] >= neighbor["accept_probability"]
    pool = EXAMPLES["TokensState"]
    assert pool["jobs"] == sum(server["jobs"] for server in pool["servers"])
    for row in pool["classes"]:
        assert row["available"] + row["held"] + row["out"] == row["limit"] + row["retiring"]
    assert pool["blocked"] == sum(kind["blocked"] for kind in pool["types"])
    (decision,) = EXAMPLES["Explanation"]["decisions"]
    for name in ("servers", "busy", "queue_length", "accept_probability", "policy"):
        assert decision[name] == state[name]
    assert decision["draw"] > decision["accept_probability"], "else it would have been kept"
    problem = EXAMPLES["ProblemView"]
    assert (problem["status"], problem["id"]) == (429, answer["id"])


def test_every_error_is_described_with_an_example(described_node):
    found = set(re.findall(r"`(\w+)`", described_node["info"]["description"]))
    for name, operation in operations(described_node):
        for status, response in operation["responses"].items():
            content = response.get("content", {})
            for reason, example in content.get(PROBLEM, {"examples": {}})["examples"].items():
                assert example["value"]["reason"] == reason
                assert status in {str(STATUS_BY_REASON[reason]), "4XX"}, (name, reason)
                found.add(reason)
    of_others = {"joining", "id_taken", "redis_down", "unknown_grant"}
    of_others |= {"store_full", "store_damaged"}
    missing = set(STATUS_BY_REASON) - found - of_others  # members, producers
    assert not missing, f"described with no call, nor in openapi_told.ABOUT: {sorted(missing)}"


def test_headers_of_answers_are_described(described_node):
    responses = described_node["paths"]["/requests"]["post"]["responses"]
    assert set(responses["200"]["headers"]) == {
        *("Spillover-Request-Id", "Spillover-Replayed", "Preference-Applied"),
    }
    assert "Location" in responses["202"]["headers"]
    assert "Retry-After" in responses["429"]["headers"]
    assert "Retry-After" not in responses["422"]["headers"]


def test_the_page_shows_every_call_and_every_schema(ask_node, described_node):
    status, headers, body = ask_node("/docs")
    shown = body.decode()
    assert status == 200
    assert headers["content-type"].startswith("text/html")
    for name, _ in operations(described_node):
        method, path = name.split()
        assert f"<b>{method}</b> <code>{html.escape(path)}</code>" in shown
    for name in described_node["components"]["schemas"]:
        assert f'id="schema-{name}"' in shown


def test_links_within_the_page_lead_somewhere(ask_node):
    shown = ask_node("/docs")[2].decode()
    anchors = re.findall(r'id="([^"]*)"', shown)
    assert len(set(anchors)) == len(anchors)
    assert set(re.findall(r'href="#([^"]*)"', shown)) <= set(anchors)


def test_the_page_asks_nobody_else(ask_node):
    """No script, nothing inline, and no other host: only its style, from the same service."""
    _, headers, body = ask_node("/docs")
    assert "default-src 'none'" in headers["content-security-policy"]
    shown = body.decode()
    assert not re.findall(r"<script|<img|<iframe|style=|javascript:", shown)
    assert set(re.findall(r'(?:src|href)="([^#"][^"]*)"', shown)) == {
        *("docs/style.css", "openapi.json"),
    }
    status, headers, style = ask_node("/docs/style.css")
    assert (status, headers["content-type"]) == (200, "text/css; charset=utf-8")
    assert b"url(" not in style
    assert b"@import" not in style


def test_what_is_described_cannot_become_markup():
    evil = "<script>alert(1)</script>"
    operation = {"summary": evil, "description": evil, "responses": {"200": {"description": evil}}}
    described = {
        "info": {"title": evil, "version": evil, "description": evil},
        "paths": {f"/{evil}": {"get": operation}},
        "components": {"schemas": {"A": {"description": evil, "properties": {evil: {}}}}},
    }
    assert evil not in page(described)
    assert html.escape(evil) in page(described)


def test_it_works_for_any_app():
    """Lease members have the same page of their own calls."""
    app = FastAPI(title="A member")

    @app.get("/state")
    async def state() -> dict[str, str]:
        """The group."""
        return {}

    shown = page(app.openapi())
    assert "<b>GET</b> <code>/state</code>" in shown
    assert "The group." in shown
