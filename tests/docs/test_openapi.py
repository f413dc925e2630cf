"""`/openapi.json` explains itself: headers, examples and every error. `/docs` shows all of it, and
asks no other host. That nodes answer as described is tested by schemathesis, in tests/apps."""

import html
import re

import jsonschema

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
