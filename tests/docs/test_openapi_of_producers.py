"""What `/openapi.json` of a producer promises of the calls that carry objects: what each takes and
gives, each reason it may refuse for, which values are right, and who is let in.
"""

from __future__ import annotations

import jsonschema

from spillover.apps.queue.doors import TABLE
from spillover.apps.queue.openapi_told import tell_calls

JSON, ANY, PROBLEM = "application/json", "*/*", "application/problem+json"

OF_GRANT = "unknown_grant another_site"

CALLS = {
    "POST /objects": (
        "application/octet-stream",
        "Spillover-Deadline-Ms",
        {"201": {JSON}},
        "queue_full store_full draining too_large invalid another_site body_too_slow",
    ),
    "POST /take": (
        JSON,
        "Spillover-Deadline-Ms",
        {"200": {ANY}, "204": set(), "303": set()},
        "queue_full draining invalid conflict too_large another_site store_damaged body_too_slow",
    ),
    "GET /objects/{grant}": (None, "grant", {"200": {ANY}}, f"{OF_GRANT} store_damaged"),
    "POST /grants/{grant}/ack": (None, "grant", {"204": set()}, OF_GRANT),
    "POST /grants/{grant}/nack": (None, "grant", {"204": set()}, f"{OF_GRANT} invalid"),
    "POST /grants/{grant}/extend": (None, "grant", {"204": set()}, f"{OF_GRANT} invalid"),
}
"""By call: its body, its parameter, its answers and its reasons."""


def described():
    schema = {"paths": {}, "components": {}}
    tell_calls(schema)
    return schema


def told_of(call):
    method, path = call.split()
    return described()["paths"][path][method.lower()]


def wrong_of(schema, values):
    return [
        value for value in values if not jsonschema.Draft202012Validator(schema).is_valid(value)
    ]


def test_objects_are_bytes_of_any_type():
    """On their way in and out; a fetched one is as it was brought."""
    bytes_of_any = {"schema": {"type": "string", "format": "binary"}}
    (brought,) = told_of("POST /objects")["requestBody"]["content"].values()
    given = told_of("POST /take")["responses"]["200"]["content"][ANY]
    fetched = told_of("GET /objects/{grant}")["responses"]["200"]["content"][ANY]
    assert brought == given == fetched == bytes_of_any


def test_values_of_parameters_that_are_right_and_wrong():
    deadline = told_of("POST /take")["parameters"][0]["schema"]
    assert wrong_of(deadline, [0.5, 30_000, 0, -1, "soon"]) == [0, -1, "soon"]
    grant = told_of("POST /grants/{grant}/ack")["parameters"][0]["schema"]
    assert wrong_of(grant, ["g", "g" * 200, "", "g" * 201, 1]) == ["", "g" * 201, 1]


def test_what_is_told_of_an_object_that_is_kept():
    schema = told_of("POST /objects")["responses"]["201"]["content"][JSON]["schema"]
    kept = {"id": "p1-7", "durable": True}
    wrong = [{"id": "p1-7"}, {"durable": True}, {**kept, "id": 7}, {**kept, "durable": "yes"}, []]
    assert wrong_of(schema, [kept, *wrong]) == wrong


ASKED = {"consumer": "c", "probe_id": "take-1"}
RIGHT = [
    ASKED,
    {**ASKED, "max_hops": 1},
    {**ASKED, "max_hops": 2000, "access": {"p1": 0.5, "p2": 0.5}, "avoid_visited": True},
    {**ASKED, "consumer": "c" * 200, "probe_id": "p" * 200},
]
WRONG = [
    {"consumer": "c"},
    {"probe_id": "take-1"},
    {**ASKED, "consumer": ""},
    {**ASKED, "consumer": "c" * 201},
    {**ASKED, "probe_id": ""},
    {**ASKED, "probe_id": "p" * 201},
    {**ASKED, "max_hops": 0},
    {**ASKED, "max_hops": 2001},
    {**ASKED, "max_hops": 0.5},
    {**ASKED, "access": {"p1": "all"}},
    {**ASKED, "access": ["p1"]},
    {**ASKED, "avoid_visited": "yes"},
    [],
]


def test_what_a_take_asks():
    """And what it means where it does not say: three hops, and producers may be visited again."""
    body = told_of("POST /take")["requestBody"]
    assert body["required"] is True
    schema = body["content"][JSON]["schema"]
    assert wrong_of(schema, RIGHT + WRONG) == WRONG
    defaults = {name: one.get("default") for name, one in schema["properties"].items()}
    assert defaults == {
        "consumer": None,
        "probe_id": None,
        "max_hops": 3,
        "access": None,
        "avoid_visited": False,
    }


def test_with_api_tokens_each_call_says_which_role_it_wants():
    """Besides the reasons that it had, in place of none."""
    schema = described()
    schema["paths"]["/healthz"] = {"get": {"summary": "s", "responses": {"200": {}}}}
    schema["paths"]["/dead/{number}"] = {"delete": {"description": "d", "responses": {}}}
    TABLE.tell(schema)
    assert schema["components"]["securitySchemes"]["api_token"]["scheme"] == "bearer"
    assert schema["paths"]["/healthz"]["get"] == {"summary": "s", "responses": {"200": {}}}
    roles = {**dict.fromkeys(CALLS, "submit"), "DELETE /dead/{number}": "operate"}
    for call, role in roles.items():
        method, path = call.split()
        told = schema["paths"][path][method.lower()]
        assert told["security"] == [{"api_token": []}]
        assert told["description"].endswith(f"For API tokens with the role {role}.")
        assert told["responses"]["401"]["description"] == "unauthenticated"
        words = told["responses"]["403"]["description"]
        assert words == ("forbidden" if role == "operate" else "another_site or forbidden")
        assert set(told["responses"]["401"]["content"]) == {PROBLEM}
    assert schema["paths"]["/dead/{number}"]["delete"]["description"].startswith("d\n\n")
