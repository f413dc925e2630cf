"""What `/openapi.json` of a producer promises of the calls that carry objects: which values are
right, and who is let in.
"""

import jsonschema

from spillover.apps.queue.doors import TABLE
from spillover.apps.queue.openapi_told import tell_calls

ROLES = {
    "POST /objects": "submit",
    "POST /take": "submit",
    "GET /objects/{grant}": "submit",
    "POST /grants/{grant}/ack": "submit",
    "POST /grants/{grant}/nack": "submit",
    "POST /grants/{grant}/extend": "submit",
    "DELETE /dead/{number}": "operate",
}


def described():
    schema = {"paths": {}, "components": {}}
    tell_calls(schema)
    return schema


def wrong_of(schema, values):
    return [
        value for value in values if not jsonschema.Draft202012Validator(schema).is_valid(value)
    ]


ASKED = {"consumer": "c", "probe_id": "take-1"}
RIGHT = [
    {**ASKED, "max_hops": 1},
    {**ASKED, "max_hops": 2000, "access": {"p1": 0.5, "p2": 0.5}, "avoid_visited": True},
    {**ASKED, "consumer": "c" * 200, "probe_id": "p" * 200},
]
WRONG = [
    {"consumer": "c"},
    {**ASKED, "consumer": ""},
    {**ASKED, "probe_id": "p" * 201},
    {**ASKED, "max_hops": 0},
    {**ASKED, "max_hops": 2001},
    {**ASKED, "access": {"p1": "all"}},
    [],
]


def test_values_that_are_right_and_wrong():
    take = described()["paths"]["/take"]["post"]
    deadline = take["parameters"][0]["schema"]
    assert wrong_of(deadline, [0.5, 30_000, 0, -1, "soon"]) == [0, -1, "soon"]
    body = take["requestBody"]["content"]["application/json"]["schema"]
    assert wrong_of(body, [ASKED, *RIGHT, *WRONG]) == WRONG


def test_with_api_tokens_each_call_says_which_role_it_wants():
    """Besides the reasons that it had, in place of none."""
    schema = described()
    schema["paths"]["/healthz"] = {"get": {"summary": "s", "responses": {"200": {}}}}
    schema["paths"]["/dead/{number}"] = {"delete": {"description": "d", "responses": {}}}
    TABLE.tell(schema)
    assert schema["components"]["securitySchemes"]["api_token"]["scheme"] == "bearer"
    assert schema["paths"]["/healthz"]["get"] == {"summary": "s", "responses": {"200": {}}}
    for call, role in ROLES.items():
        method, path = call.split()
        told = schema["paths"][path][method.lower()]
        assert told["security"] == [{"api_token": []}]
        assert told["description"].endswith(f"For API tokens with the role {role}.")
        assert told["responses"]["401"]["description"] == "unauthenticated"
        words = told["responses"]["403"]["description"]
        assert words == ("forbidden" if role == "operate" else "another_site or forbidden")
