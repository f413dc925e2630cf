"""What clients make of answers that are no results: whose fault it is, whether the request may have
run, and what to do, in one line."""

import json

import pytest

from spillover.client import (
    Cancelled,
    Expired,
    Failed,
    NotANode,
    OutcomeUnknown,
    Refused,
    Rejected,
    Unreachable,
    wire,
)
from spillover.client.wire import error_of, without_answer
from spillover.live.http1.client import Response
from spillover.model.errors import NotDelivered, PeerError

NODE = "http://a:1"


def told_by(status, reason, detail="why.", headers=None, **more):
    body = json.dumps({"reason": reason, "detail": detail, **more}).encode()
    answer = Response(status, headers or {}, body, 0.0, 0.0)
    error = error_of(NODE, "r1", answer)
    assert (error.node, error.id) == (NODE, "r1")
    return error


def of_stranger(status, body=b"<h1>no</h1>", **headers):
    named = {name.replace("_", "-").encode(): value for name, value in headers.items()}
    return error_of(NODE, "r1", Response(status, named, body, 0.0, 0.0))


@pytest.mark.parametrize("status", [429, 503])
def test_a_refusal_says_when_to_come_again(status):
    later = told_by(status, "queue_full")
    assert type(later) is Refused
    assert later.retry_after_s is None
    assert str(later).endswith(
        "takes nothing now: why (queue_full). It has not run; try again later"
    )
    soon = told_by(status, "queue_full", headers={b"retry-after": b"7"})
    assert soon.retry_after_s == 7.0
    assert str(soon).endswith("try again in 7 s")
    assert told_by(status, "x", headers={b"retry-after": b"9" * 8}).retry_after_s == 99_999_999.0
    for nonsense in (b"soon", b"-1", b"9" * 9, b"9" * 400, b""):
        assert told_by(status, "x", headers={b"retry-after": nonsense}).retry_after_s is None


def test_a_rejection_by_the_handler_brings_what_it_has_said():
    error = told_by(409, "handler_rejected", upstream_body={"field": "a"})
    assert type(error) is Rejected
    assert (error.status, error.body) == (409, {"field": "a"})
    assert str(error) == (
        "the handler rejected the request: why (handler_rejected), status 409. Correct it"
    )
    assert told_by(409, "handler_rejected").body == "why."


def test_what_is_at_fault_may_not_be_sent_again():
    error = told_by(400, "some_reason")
    assert type(error) is Rejected
    assert (error.status, error.reason) == (400, "some_reason")
    assert "the request is at fault, says node http://a:1: why (some_reason), status 400" in str(
        error
    )
    assert type(told_by(499, "some_reason")) is Rejected


def test_a_failure_says_who_has_failed():
    handler = told_by(502, "handler_failed", upstream_status=500, upstream_body=[1])
    assert type(handler) is Failed
    assert (handler.upstream_status, handler.upstream_body) == (500, [1])
    assert str(handler).startswith("the handler failed: why (handler_failed). ")
    assert str(told_by(500, "internal")).startswith("node http://a:1 failed: why (internal). ")
    assert type(told_by(500, "another")) is Failed


def test_who_stands_before_a_node_is_no_node():
    """Its 429 is no word of a node, and after its 502 nobody knows what the node has."""
    limited = of_stranger(429, retry_after=b"2")
    assert type(limited) is Refused
    assert (limited.reason, limited.retry_after_s) == ("rate_limited", 2.0)
    assert type(of_stranger(502)) is OutcomeUnknown
    assert "answered 502: no content type, '<h1>no</h1>'. " in str(of_stranger(502))
    moved = of_stranger(302, location=b"/login", content_type=b"text/html")
    assert "is no node of Spillover: status 302, to /login, text/html, " in str(moved)


@pytest.mark.parametrize(
    ("kind", "statuses"),
    [
        (OutcomeUnknown, (500, 502, 503, 504, 507, 511)),
        (NotANode, (403, 404, 451, 501, 505)),
        (Refused, (429,)),
    ],
)
def test_what_stands_before_a_node_may_have_passed_it_on(kind, statuses):
    """Where it says that something went wrong, but not where it says that it never would."""
    assert {type(of_stranger(status)) for status in statuses} == {kind}


def test_without_an_answer_it_is_told_whether_it_can_have_run():
    unsent = without_answer(NODE, "r1", NotDelivered(f"POST {NODE}/requests: refused"))
    assert type(unsent) is Unreachable
    assert str(unsent) == f"no node can be reached at {NODE}: refused. Nothing was sent"
    lost = without_answer(NODE, "r1", PeerError(f"POST {NODE}/requests: it broke"))
    assert type(lost) is OutcomeUnknown
    assert str(lost).startswith(
        f"the connection to node {NODE} broke before its answer: it broke. "
    )


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (f"{NODE}: cannot connect: refused", "cannot connect: refused"),
        (f"POST {NODE}/requests: refused", "refused"),
        (f"no time for {NODE}", f"no time for {NODE}"),
        ("somebody: else", "somebody: else"),
        ("", ""),
    ],
)
def test_why_is_told_without_the_call_that_stands_before_it(said, why):
    unsent = str(without_answer(NODE, "r1", NotDelivered(said)))
    assert unsent == f"no node can be reached at {NODE}: {why}. Nothing was sent"


ID = {b"spillover-request-id": b"r1"}
REPLAYED = {b"spillover-replayed": b"true"}


@pytest.mark.parametrize(
    ("status", "headers", "kind"),
    [
        (202, ID, None),
        (200, ID, None),
        (409, ID | REPLAYED, None),
        (202, {}, NotANode),
        (200, {}, NotANode),
        (409, REPLAYED, NotANode),
        (429, ID, Refused),
        (400, ID, Rejected),
    ],
)
def test_a_job_is_accepted_by_a_node_that_knows_its_name(status, headers, kind):
    """Also one that has ended there before, however that was."""
    body = json.dumps({"reason": "some_reason"}).encode()
    answer = Response(status, headers, body, 0.0, 0.0)
    if kind is None:
        assert wire.read_accepted(NODE, "r1", answer) == NODE
        return
    with pytest.raises(PeerError) as error:
        wire.read_accepted(NODE, "r1", answer)
    assert (type(error.value), error.value.node, error.value.id) == (kind, NODE, "r1")


@pytest.mark.parametrize(
    ("status", "body", "state"),
    [
        (200, {"id": "r1", "state": "done"}, "done"),
        (202, {"id": "r1", "state": "forwarded"}, "forwarded"),
        (404, {"reason": "unknown_request"}, "unknown"),
        (404, {"reason": "not_found"}, Rejected),
        (503, {"reason": "draining"}, Refused),
        (200, {"id": "r1"}, NotANode),
        (200, {"id": "r1", "state": "lost"}, NotANode),
        (404, {}, NotANode),
    ],
)
def test_a_node_says_where_a_job_is(status, body, state):
    answer = Response(status, {}, json.dumps(body).encode(), 0.0, 0.0)
    if isinstance(state, str):
        assert wire.read_state(NODE, "r1", answer) == state
        return
    with pytest.raises(PeerError) as error:
        wire.read_state(NODE, "r1", answer)
    assert (type(error.value), error.value.node, error.value.id) == (state, NODE, "r1")


@pytest.mark.parametrize(
    ("state", "problem", "end"),
    [
        ("running", None, "running"),
        ("queued", None, "queued"),
        ("unknown", None, OutcomeUnknown),
        ("failed", {"reason": "handler_failed", "status": 502}, Failed),
        ("failed", {"reason": "another", "status": 500}, Failed),
        ("failed", {"reason": "another", "status": 422}, Rejected),
        ("expired", {"reason": "deadline_exceeded", "status": 504}, Expired),
        ("cancelled", {"reason": "cancelled", "status": 409}, Cancelled),
        ("cancelled", None, NotANode),
    ],
)
def test_a_job_that_has_not_ended_is_somewhere_and_each_end_has_its_error(state, problem, end):
    body = {"id": "r1", "state": state} | ({"problem": problem} if problem else {})
    answer = Response(200, {}, json.dumps(body).encode(), 0.0, 0.0)
    if isinstance(end, str):
        assert wire.read_end(NODE, "r1", state, answer) == end
        return
    with pytest.raises(PeerError) as error:
        wire.read_end(NODE, "r1", state, answer)
    assert (type(error.value), error.value.node, error.value.id) == (end, NODE, "r1")


def test_an_end_without_a_result():
    """Each by the kind that people catch, whatever its status."""
    expired = told_by(504, "deadline_exceeded")
    assert type(expired) is Expired
    assert (
        str(expired)
        == "the deadline passed: why (deadline_exceeded). Give it more time (deadline_s)"
    )
    assert type(told_by(409, "cancelled")) is Cancelled
    assert type(told_by(502, "outcome_unknown")) is OutcomeUnknown
    assert "give it `token=`" in str(told_by(401, "unauthenticated"))
    assert "Use another key" in str(told_by(409, "conflict"))
