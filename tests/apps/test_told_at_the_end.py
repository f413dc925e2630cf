"""What a client is told at the end of a request: status, reason and name, why there is no result,
whether to try again, and what the service behind the cluster said. No node runs here.
"""

import json

import pytest

from spillover.apps.http.exchange import unread
from spillover.apps.http.problems import STATUS_BY_REASON, Problem
from spillover.apps.node.answers import (
    node_ended,
    problem_of,
    status_of,
)
from spillover.apps.node.door_problems import proxy_status
from spillover.apps.node.peer_paths import _refusal
from spillover.core.overflow.events import Refuse
from spillover.live.http1.rules import Malformed, Rule
from spillover.live.overflow.wire import UPSTREAM_STATUS
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
    ("rule", "status", "reason"),
    [
        (Rule.HOST, 400, "malformed"),
        (Rule.EXPECTATION, 417, "malformed"),
        (Rule.VERSION, 505, "malformed"),
        (Rule.LONG, 431, "head_too_large"),
        (Rule.TUNNEL, 501, "not_passed"),
    ],
)
def test_a_head_that_is_not_passed_on_has_the_status_that_says_why(rule, status, reason):
    told = unread(Malformed(rule, "Host: expected once")).fields()
    assert (told["status"], told["reason"]) == (status, reason)
    assert told["detail"] == "Host: expected once"


@pytest.mark.parametrize("has_not_run", [True, False])
def test_what_waited_until_its_deadline_may_be_sent_again(has_not_run):
    """Client libraries go by that."""
    problem = problem_of("x", ended(Outcome.EXPIRED, has_not_run=has_not_run))
    assert (problem.status, problem.may_have_run) == (504, not has_not_run)
