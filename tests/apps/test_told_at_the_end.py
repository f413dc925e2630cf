"""What a client is told at the end of a request: status, reason and name, why there is no result,
whether to try again, and what the service behind the cluster said. No node runs here.
"""

from __future__ import annotations

import json

import msgspec
import pytest

from spillover.apps.http.problems import STATUS_BY_REASON, Problem
from spillover.apps.node.answers import (
    answer_body,
    answer_fields,
    encode,
    node_ended,
    problem_of,
    rate_limited,
    status_of,
)
from spillover.apps.node.door_problems import not_passed, proxy_status
from spillover.apps.node.peer_paths import _refusal
from spillover.core.overflow.events import Refuse
from spillover.core.overflow.quotas import Excess
from spillover.live.handlers.proxy.heads import Refused
from spillover.live.overflow.wire import UPSTREAM_STATUS
from spillover.model.causes import Cause
from spillover.model.request import Answer, Outcome, Refusal


def refused(reason, **fields):
    return Refuse(1, 0, reason, 2.5, **fields)


def ended(outcome, **fields):
    return Answer(outcome, ("a", "b"), **fields)


def headers_of(problem):
    return {name.decode(): value.decode() for name, value in problem.all_headers()}


REFUSED = {
    Refusal.QUEUE_FULL: (429, "queue_full", "3"),
    Refusal.MEMORY_FULL: (429, "queue_full", "3"),
    Refusal.RATE_LIMITED: (429, "rate_limited", "3"),
    Refusal.BLOCKED: (429, "blocked", "3"),
    Refusal.NO_SERVERS: (503, "no_servers", "3"),
    Refusal.DEGRADED: (503, "no_servers", "3"),
    Refusal.TOO_LATE: (504, "deadline_exceeded", "3"),
    Refusal.DRAINING: (503, "draining", None),
    Refusal.TOO_LARGE: (413, "too_large", None),
    Refusal.UNKNOWN_TYPE: (422, "unknown_type", None),
}
"""Status, reason, and after how many seconds to try again where that may help."""


def test_each_refusal_says_why_and_when_to_try_again():
    """Seconds are whole, and rather too many. Why it is final, another try does not change."""
    assert set(REFUSED) == set(Refusal)
    for refusal, (status, reason, retry_after) in REFUSED.items():
        problem = problem_of("order-7", refused(refusal))
        assert status_of(refused(refusal)) == (status, reason)
        told = json.loads(problem.body())
        assert (told["status"], told["reason"], told["id"]) == (status, reason, "order-7")
        assert (told["type"], bool(told["detail"])) == ("about:blank", True)
        sent = headers_of(problem)
        assert sent["content-type"] == "application/problem+json"
        assert sent["spillover-request-id"] == "order-7"
        assert sent.get("retry-after") == retry_after, refusal


ENDED = {
    Outcome.FAILED: (502, "handler_failed"),
    Outcome.REJECTED: (422, "handler_rejected"),
    Outcome.EXPIRED: (504, "deadline_exceeded"),
    Outcome.CANCELLED: (409, "cancelled"),
    Outcome.UNKNOWN: (502, "outcome_unknown"),
}


def test_each_end_without_a_result_has_a_reason_of_its_own():
    """What the handler said of it comes before our words."""
    assert set(ENDED) == set(Outcome) - {Outcome.DONE}
    ours = set()
    for outcome, (status, reason) in ENDED.items():
        assert status_of(ended(outcome)) == (status, reason)
        plain = problem_of("order-7", ended(outcome))
        assert set(plain.fields()) == {"type", "title", "status", "reason", "detail", "id"}
        assert (plain.id, headers_of(plain).get("retry-after")) == ("order-7", None)
        ours.add(plain.detail)
        spoken = problem_of("order-7", ended(outcome, problem="no such word", retry_after_s=0.2))
        assert (spoken.detail, spoken.reason) == ("no such word", reason)
        assert headers_of(spoken)["retry-after"] == "1"
    assert len(ours) == len(ENDED)


@pytest.mark.parametrize(
    ("outcome", "upstream", "status"),
    [
        (Outcome.REJECTED, 400, 400),
        (Outcome.REJECTED, 404, 404),
        (Outcome.REJECTED, 499, 499),
        (Outcome.REJECTED, 399, 422),
        (Outcome.REJECTED, 500, 422),
        (Outcome.FAILED, 404, 502),
        (Outcome.FAILED, 503, 502),
    ],
)
def test_the_status_of_a_service_that_rejects_is_passed_on(outcome, upstream, status):
    """A 4xx of what rejects; any other stands in the body alone, as its words do."""
    answer = ended(outcome, upstream_status=upstream, upstream_body={"why": "so"})
    told = problem_of("order-7", answer).fields()
    assert (told["status"], told["upstream_status"]) == (status, upstream)
    assert told["upstream_body"] == {"why": "so"}
    assert told["reason"] == ENDED[outcome][1]


def test_titles_are_the_statuses_in_words():
    """Of one that has no words of its own, too."""
    titles = {}
    for own in (404, 499, 599):
        titles[own] = Problem("handler_rejected", "no", own_status=own).fields()["title"]
    assert titles == {404: "Not Found", 499: "Client Error", 599: "Error"}


def test_of_types_that_are_served_twenty_are_named():
    """For people and for programs; that there are more is said to people."""
    types = tuple(f"t{number}" for number in range(21))
    few = problem_of("", refused(Refusal.UNKNOWN_TYPE, types=types[:20]))
    assert few.more == {"types": types[:20]}
    assert few.detail == "type: expected one that is served: " + ", ".join(types[:20])
    many = problem_of("", refused(Refusal.UNKNOWN_TYPE, types=types))
    assert many.more == {"types": types[:20]}
    assert many.detail == few.detail + ", ..."


def test_a_quota_that_is_used_up_is_named():
    """With the request's name where it has one, and when to try again."""
    for name in ("order-7", ""):
        problem = rate_limited(name, Excess("requests_per_s", 1.2))
        told = problem.fields()
        assert (told["status"], told["reason"]) == (429, "rate_limited")
        assert told["limit"] == "requests_per_s"
        assert "requests_per_s" in problem.detail
        assert told.get("id", "") == name
        assert headers_of(problem)["retry-after"] == "2"


def test_at_the_end_of_a_node_whoever_waits_hears_whether_it_can_have_run():
    """By name; nobody is told to try this node again."""
    for has_not_run, expected in ((True, (503, "draining")), (False, (502, "outcome_unknown"))):
        problem = node_ended("order-7", has_not_run=has_not_run)
        told = problem.fields()
        assert (told["status"], told["reason"]) == expected
        assert told["id"] == "order-7"
        sent = headers_of(problem)
        assert sent["spillover-request-id"] == "order-7"
        assert "retry-after" not in sent


def test_a_name_that_no_header_can_hold_is_in_the_body_alone():
    for name in ("line\nbreak", "x" * 201, ""):
        problem = problem_of(name, refused(Refusal.BLOCKED))
        assert problem.fields()["id"] == name
        assert "spillover-request-id" not in headers_of(problem)
    assert "spillover-request-id" in headers_of(problem_of("x" * 200, refused(Refusal.BLOCKED)))


def test_an_answer_tells_the_way_and_its_times_in_milliseconds():
    """To a thousandth; the way back is not in the total. The result is passed on as it came."""
    answer = ended(
        Outcome.DONE,
        result=msgspec.Raw(b'{"words": 3}'),
        queued_s=0.0412342,
        network_s=0.03,
        service_s=0.0250004,
        return_s=0.5,
    )
    body = encode(answer_body("order-7", answer))
    assert b'"result":{"words": 3}' in body
    assert json.loads(body) == {
        "id": "order-7",
        "result": {"words": 3},
        "cluster": "b",
        "path": ["a", "b"],
        "hops": 1,
        "timing_ms": {
            "queued": 41.234,
            "network": 30.0,
            "service": 25.0,
            "return": 500.0,
            "total": 96.235,
        },
    }
    fields = answer_fields("order-7", answer)
    assert (fields["id"], fields["cluster"], fields["hops"]) == ("order-7", "b", 1)


def test_an_answer_without_a_result_has_null_and_no_times():
    told = json.loads(encode(answer_body("order-7", Answer(Outcome.DONE, ("a",)))))
    assert (told["result"], told["cluster"], told["hops"]) == (None, "a", 0)
    assert set(told["timing_ms"].values()) == {0.0}


def test_a_neighbor_is_refused_so_that_it_decides_again():
    """A deadline that would pass here is no answer: there may be time enough elsewhere. All else it
    is told as a client is, with what the service behind this cluster said."""
    for refusal, (status, reason, _) in REFUSED.items():
        problem = _refusal("order-7", refused(refusal))
        told = problem.fields()
        again = (429, "queue_full") if refusal is Refusal.TOO_LATE else (status, reason)
        assert (told["status"], told["reason"], told["id"]) == (*again, "order-7"), refusal
        assert problem.headers == []
    busy = _refusal("order-7", refused(Refusal.NO_SERVERS, upstream_status=429))
    assert (busy.status, busy.headers) == (503, [(UPSTREAM_STATUS, b"429")])


FAULTS = {
    "connection_limit_reached": {"queue_full", "blocked"},
    "destination_unavailable": {"draining", "no_servers"},
    "http_response_timeout": {"deadline_exceeded"},
    "http_response_incomplete": {"handler_failed"},
    "connection_terminated": {"outcome_unknown"},
    "proxy_configuration_error": {"unknown_type"},
    "proxy_loop_detected": {"loop_detected"},
    "proxy_internal_error": {"internal"},
    "proxy_internal_response": {"cancelled", "conflict"},
}
"""Types of errors in RFC 9209, and the reasons that are of them."""


def test_proxy_status_says_whose_fault_it_is():
    """Of all that is none of these: the request's."""
    for reason in STATUS_BY_REASON:
        named = [error for error, reasons in FAULTS.items() if reason in reasons]
        (error,) = named or ["http_request_error"]
        told = proxy_status(Problem(reason, "x")).decode()
        assert told.partition("; details=")[0] == f"spillover; error={error}"


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (400, "malformed"),
        (417, "malformed"),
        (505, "malformed"),
        (431, "head_too_large"),
        (501, "not_passed"),
    ],
)
def test_a_head_that_is_not_passed_on_has_the_status_that_says_why(status, reason):
    told = not_passed(Refused(status, "Host: expected once")).fields()
    assert (told["status"], told["reason"]) == (status, reason)
    assert told["detail"] == "Host: expected once"


@pytest.mark.parametrize(
    ("cause", "may_have_run"), [(Cause.QUEUE, False), (Cause.TIMEOUT, True), (None, True)]
)
def test_what_waited_until_its_deadline_may_be_sent_again(cause, may_have_run):
    """Client libraries go by that."""
    problem = problem_of("x", ended(Outcome.EXPIRED, cause=cause))
    assert (problem.status, problem.may_have_run) == (504, may_have_run)
