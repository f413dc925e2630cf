"""The OpenAPI of the calls that FastAPI does not see: those that carry objects, and those between
producers."""

from __future__ import annotations

from typing import Any

from spillover.apps.http.openapi import Described, problems

_JSON, _ANY = "application/json", "application/octet-stream"

_OBJECT = {"schema": {"type": "string", "format": "binary"}}

_DEADLINE = {
    "name": "Spillover-Deadline-Ms",
    "in": "header",
    "description": "How long the call may wait, 30 000 unless given.",
    "schema": {"type": "number", "exclusiveMinimum": 0},
}

_GRANT = {
    "name": "grant",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "minLength": 1, "maxLength": 200},
}


def tell_calls(schema: Described) -> None:
    """Add them."""
    paths = schema["paths"]
    paths["/objects"] = {"post": _offer()}
    paths["/take"] = {"post": _take()}
    paths["/objects/{grant}"] = {
        "get": _call(
            "Fetch the object of a grant, once.",
            {"200": {"description": "the object", "content": {"*/*": _OBJECT}}},
            ("unknown_grant", "store_damaged", "another_site"),
            parameters=[_GRANT],
        )
    }
    for what, says in (
        ("ack", "The object of a grant has served its purpose."),
        ("nack", "The object of a grant returns to its buffer, after a rest, or `delay_ms`."),
        ("extend", "More time for the object of a grant: as much as usual, or `visibility_ms`."),
    ):
        reasons = ("unknown_grant", "another_site", *(("invalid",) if what != "ack" else ()))
        done = {"204": {"description": "done"}}
        paths[f"/grants/{{grant}}/{what}"] = {
            "post": _call(says, done, reasons, parameters=[_GRANT])
        }


def _offer() -> Described:
    stored: Described = {"type": "object", "required": ["id", "durable"]}
    stored["properties"] = {"id": {"type": "string"}, "durable": {"type": "boolean"}}
    answers = {"201": {"description": "it is kept", "content": {_JSON: {"schema": stored}}}}
    refused = ("queue_full", "store_full", "draining", "too_large", "invalid", "another_site")
    body = {"content": {_ANY: _OBJECT}}
    words = "Bring an object, of any type: waits while there is no place for it."
    return _call(words, answers, (*refused, "body_too_slow"), [_DEADLINE], body)


def _take() -> Described:
    name = {"type": "string", "minLength": 1, "maxLength": 200}
    fields: Described = {
        "consumer": name,
        "probe_id": {**name, "description": "Differs from those of all its open calls."},
        "max_hops": {"type": "integer", "minimum": 1, "maximum": 2000, "default": 3},
        "access": {"type": "object", "additionalProperties": {"type": "number"}},
        "avoid_visited": {"type": "boolean", "default": False},
    }
    asked = {"type": "object", "required": ["consumer", "probe_id"], "properties": fields}
    answers = {
        "200": {"description": "an object of this producer", "content": {"*/*": _OBJECT}},
        "303": {"description": "an object of another one: its `Location`"},
        "204": {"description": "none until the deadline"},
    }
    reasons = (
        *("queue_full", "draining", "invalid", "conflict", "too_large", "another_site"),
        "store_damaged",
    )
    body = {"required": True, "content": {_JSON: {"schema": asked}}}
    words = "Ask for an object: waits until there is one at any producer that may be asked."
    return _call(words, answers, (*reasons, "body_too_slow"), [_DEADLINE], body)


def _call(
    words: str,
    answers: Described,
    reasons: tuple[str, ...],
    parameters: list[Described] | None = None,
    body: Described | None = None,
) -> Described:
    refusals = {str(status): told for status, told in problems(*reasons).items()}
    call: dict[str, Any] = {"summary": words, "responses": {**answers, **refusals}}
    if parameters:
        call["parameters"] = parameters
    if body is not None:
        call["requestBody"] = body
    return call
