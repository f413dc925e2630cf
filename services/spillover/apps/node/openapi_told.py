"""The OpenAPI of a node besides types: the meaning of headers, which ones answers carry, an example
for each body and each error. `tell` goes over a finished description, so that it holds for hot and
cold routes alike, whichever there are.
"""

from __future__ import annotations

from typing import Any

from spillover.apps.http.problems import STATUS_BY_REASON, Problem

ABOUT = """\
A node of a Spillover cluster. Clients use `POST /requests` and the calls below `/requests/`;
operators and machines use the others. Calls below `/peer/` are for nodes alone.

Every error has a body of type `application/problem+json` with a `reason` for programs and a
`detail` for people. Besides the errors described with each call, every call may end with
`malformed`, `head_too_large`, `head_too_slow`, `not_found`, `method_not_allowed` or `internal`, and
every call of another version of the protocol between nodes with `wrong_version`. A node that lets
in only who shows an API token (`Authorization: Bearer`) answers others `unauthenticated` or
`forbidden`. A service behind a `proxy:` handler has an address of its own, where `not_passed`,
`loop_detected` and `proxy_unauthenticated` occur. What the reasons mean, and when to retry, is in
services/docs/http.md of the source."""

HEADERS = {
    "Idempotency-Key": "The name of the request. A repeat under the same name at the same node is "
    "not run again while its answer is remembered.",
    "Spillover-Deadline-Ms": "How long the client waits, in milliseconds, from receipt.",
    "Spillover-Type": "The same as `type` in the body.",
    "Spillover-Priority": "0 to 9. It is checked and carried, and decides nothing yet.",
    "Prefer": "`respond-async`: answer 202 at once.",
    "traceparent": "W3C Trace Context. It goes on to the service, with `--otel` as our span.",
    "tracestate": "The same, of vendors.",
}
"""The meanings of request headers, where the parameter itself has none."""

PARAMETERS = {
    "request_id": "The name of the request.",
    "neighbor": "The id of the neighbor's cluster.",
}

_TEXT = {"schema": {"type": "string"}}
REQUEST_ID = {"Spillover-Request-Id": {"description": "The name of the request.", **_TEXT}}
RETRY_AFTER = {
    "Retry-After": {
        "description": "In how many seconds another try makes sense.",
        "schema": {"type": "integer", "minimum": 1},
    }
}
REPLAYED = {
    "Spillover-Replayed": {
        "description": "`true`: the answer of an earlier request of the same name.",
        **_TEXT,
    }
}
APPLIED = {
    "Preference-Applied": {"description": "Which part of `Prefer` was followed.", **_TEXT},
}
CLUSTER = {
    "Spillover-Cluster": {
        "description": "The cluster whose node this is, where that has several.",
        **_TEXT,
    }
}
LOCATION = {"Location": {"description": "Where to ask for the result.", **_TEXT}}

HEADERS_OF_REQUESTS = {
    "200": {**REQUEST_ID, **REPLAYED, **APPLIED, **CLUSTER},
    "202": {**REQUEST_ID, **REPLAYED, **APPLIED, **LOCATION, **CLUSTER},
}

RETRIED = ("429", "502", "503", "504")
"""Statuses of errors that may carry Retry-After."""

_TIMING = {"queued": 41.3, "network": 35.9, "service": 25.0, "return": 35.4, "total": 102.2}
_ANSWER = {
    "id": "order-7",
    "result": {"words": 3},
    "cluster": "tokyo",
    "path": ["paris", "tokyo"],
    "hops": 1,
    "timing_ms": _TIMING,
}
_NEIGHBOR = {
    "id": "tokyo",
    "url": "http://tokyo.example:8101",
    "accept_probability": 1.0,
    "neighborhood_accept_probability": 1.0,
    "queue_length": 0,
    "age_ms": 12.5,
    "alive": True,
}
_HOME = {"accepted": 120, "done": 112, "failed": 0, "expired": 0, "cancelled": 0}
_STATE = {
    "cluster": "paris",
    "url": "http://paris.example:8101",
    "servers": 4,
    "busy": 4,
    "queue_length": 3,
    "accept_probability": 0.5714,
    "neighborhood_accept_probability": 1.0,
    "policy": "paper",
    "version": "0.1.0",
    "draining": False,
    "lame_duck": False,
    "drained": False,
    "forwards": 17,
    "neighbors": [_NEIGHBOR],
    "ledger": {
        "epoch": 1,
        "home": {**_HOME, "queued": 3, "running": 4, "away": 1},
        "foreign": {
            "received": 5,
            "answered": 5,
            "cancelled": 0,
            "handed_on": 0,
            "queued": 0,
            "running": 0,
        },
    },
}

_TOPOLOGY = """\
name: two-sites
clusters:
- {id: paris, servers: 4, url: 'http://paris.example:8101'}
- {id: tokyo, servers: 4, url: 'http://tokyo.example:8101'}
links:
- between: [paris, tokyo]
policy: paper
"""

EXAMPLES: dict[str, dict[str, Any]] = {
    "RequestView": {"payload": {"text": "again and again"}, "id": "order-7"},
    "AnswerView": _ANSWER,
    "RequestStateView": {"state": "done", **_ANSWER},
    "NodeState": _STATE,
    "FederationState": {
        "clusters": {"paris": _STATE, "tokyo": {"unreachable": True, "last_seen_s": 3.2}},
        "links": [{"between": ["paris", "tokyo"], "delay_ms": 0.0}],
        "flows": [
            {
                "cluster": "paris",
                "neighbor": "tokyo",
                "pushed": 14,
                "pulled": 3,
                "answered": 15,
                "refused": 1,
                "lost": 0,
                "recalled": 0,
            }
        ],
    },
    "Explanation": {
        "id": "order-7",
        "cluster": "paris",
        "decisions": [
            {
                "outcome": "forwarded",
                "neighbor": "tokyo",
                "policy": "paper",
                "draw": 0.81,
                "queue_length": 3,
                "servers": 4,
                "busy": 4,
                "accept_probability": 0.5714,
            }
        ],
        "story": [{"at_ms": 0.0, "event": "decided", "outcome": "forwarded", "neighbor": "tokyo"}],
    },
    "PolicyBody": {"policy": "paper", "shadow": "adaptive"},
    "ConfigBody": {"if_version": 3, "topology": _TOPOLOGY},
    "ConfigState": {
        "version": 4,
        "by": "paris",
        "topology": f"version: 4\n{_TOPOLOGY}",
        "superseded": None,
        "removed": False,
    },
    "TakenConfiguration": {
        "version": 5,
        "by": "paris",
        "topology": f"version: 5\n{_TOPOLOGY}",
        "superseded": None,
        "removed": False,
        "unusual": ["cluster tokyo servers: 4 to 40 (10 times as large)"],
    },
    "ConfigHistory": {
        "configurations": [
            {
                "version": 4,
                "by": "paris",
                "at": "2026-09-21T03:12:40Z",
                "topology": f"version: 4\n{_TOPOLOGY}",
            }
        ]
    },
    "PeerConfiguration": {
        "stamp": [4, "paris", 1_790_000_000_000],
        "topology": (
            '{"name":"two-sites","clusters":[{"id":"paris","servers":4,"url":'
            '"http://paris.example:8101"}],"policy":"paper"}'
        ),
        "lineage": [[3, "tokyo", 1_789_000_000_000]],
    },
    "WhoView": {"cluster": "paris", "epoch": 1_790_000_000_000, "speaks": "2 1"},
    "TokensBody": {"classes": {"large": 4}, "servers": {"small": "out"}},
    "TokensState": {
        "discipline": "ps",
        "order": "longest-available",
        "on_block": "overflow",
        "jobs": 5,
        "blocked": 0,
        "unaccounted": 0,
        "servers": [
            {"id": "big", "rate": 4.0, "state": "up", "jobs": 5, "queued": 0, "tokens": 4},
            {"id": "small", "rate": 1.0, "state": "out", "jobs": 0, "queued": 0, "tokens": 2},
        ],
        "classes": [
            {
                "id": "large",
                "servers": ["big"],
                "limit": 4,
                "available": 0,
                "held": 5,
                "out": 0,
                "retiring": 1,
            },
            {
                "id": "any",
                "servers": ["small"],
                "limit": 2,
                "available": 0,
                "held": 0,
                "out": 2,
                "retiring": 0,
            },
        ],
        "types": [
            {
                "id": "llm",
                "classes": ["large"],
                "blocked": 0,
                "blocked_total": 12,
                "arrived": 340,
                "work_ms": 850.0,
            }
        ],
    },
    "LinkBody": {"delay_ms": 80.0, "loss": 0.05},
    "LinkState": {"delay_ms": 80.0, "loss": 0.05, "cut": False},
    "ForwardView": {
        "id": "order-7",
        "path": ["paris"],
        "remaining_ms": 59_950.0,
        "payload": {"text": "again and again"},
        "keyed": True,
    },
    "ForwardAnswerView": {
        "outcome": "done",
        "path": ["paris", "tokyo"],
        "held_ms": 25.4,
        "result": {"words": 3},
    },
    "CancelView": {"id": "order-7"},
    "CancelAnswerView": {"found": True},
    "FederationQuery": {
        "query": "q-1",
        "visited": ["paris"],
        "remaining_ms": 900.0,
    },
    "GatheredStates": {"clusters": {"tokyo": {**_STATE, "cluster": "tokyo", "neighbors": []}}},
    "ProblemView": Problem("queue_full", "the queue is full", id="order-7").fields(),
}
"""Examples by the title of their schema."""


def tell(schema: dict[str, Any]) -> None:
    """Add the meanings, headers, examples and reasons to a description."""
    schema["info"]["description"] = ABOUT
    for path, operations in schema["paths"].items():
        for operation in operations.values():
            for parameter in operation.get("parameters", ()):
                _tell_parameter(parameter)
            _tell_body(operation.get("requestBody", {}).get("content", {}))
            for status, response in operation["responses"].items():
                _tell_response(path, str(status), response)
    for name, example in EXAMPLES.items():
        if name in schema["components"]["schemas"]:
            schema["components"]["schemas"][name].setdefault("examples", [example])


def _tell_body(contents: dict[str, Any]) -> None:
    """Add the example of a body whose schema stands here, and not among the others."""
    for content in contents.values():
        example = EXAMPLES.get(content["schema"].get("title", ""))
        if example is not None:
            content["schema"] = {**content["schema"], "examples": [example]}


def _tell_response(path: str, status: str, response: dict[str, Any]) -> None:
    told = HEADERS_OF_REQUESTS.get(status, {}) if path == "/requests" else {}
    if "application/problem+json" in response.get("content", {}):
        told = _headers_of_problem(status, path)
        _tell_reasons(response)
    if told:
        response["headers"] = {**told, **response.get("headers", {})}


def _tell_parameter(parameter: dict[str, Any]) -> None:
    if not parameter.get("description"):
        known = HEADERS if parameter["in"] == "header" else PARAMETERS
        parameter["description"] = known.get(parameter["name"], "")


def _headers_of_problem(status: str, path: str) -> dict[str, Any]:
    of_request = path.startswith(("/requests", "/explain", "/peer/"))
    return {
        **(REQUEST_ID if of_request else {}),
        **(RETRY_AFTER if status in RETRIED else {}),
    }


def _tell_reasons(response: dict[str, Any]) -> None:
    """Add an example for each reason that the description names. FastAPI shares these answers among
    routes, so they are made anew."""
    reasons = [word for word in response["description"].split() if word in STATUS_BY_REASON]
    content = response["content"]["application/problem+json"]
    examples = {
        reason: {"value": Problem(reason, f"an example of {reason}").fields()} for reason in reasons
    }
    response["content"] = {"application/problem+json": {**content, "examples": examples}}
