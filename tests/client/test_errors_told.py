"""What clients make of answers that are no results: whose fault it is, whether the request may have
run, and what to do, in one line."""

from __future__ import annotations

import json

import pytest

from spillover.client import (
    Cancelled,
    Expired,
    Failed,
    OutcomeUnknown,
    Refused,
    Rejected,
    Unreachable,
    wire,
)
from spillover.client.wire import error_of, without_answer
from spillover.live.http.client import Response
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
    for nonsense in (b"soon", b"-1", b"9" * 400):
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


def test_who_gives_no_detail_has_none():
    assert "takes nothing now: without a detail (queue_full)." in str(
        told_by(429, "queue_full", detail="")
    )


def test_a_long_detail_is_cut():
    said = str(told_by(400, "r", detail="x" * 99_999))
    assert f"{'x' * wire.SAID_LENGTH_MAX} (r)" in said


def test_who_stands_before_a_node_is_no_node():
    """Its 429 is no word of a node, and after its 502 nobody knows what the node has."""
    limited = of_stranger(429, retry_after=b"2")
    assert type(limited) is Refused
    assert (limited.reason, limited.retry_after_s) == ("rate_limited", 2.0)
    assert type(of_stranger(502)) is OutcomeUnknown
    assert "answered 502: no content type, '<h1>no</h1>'. " in str(of_stranger(502))
    moved = of_stranger(302, location=b"/login", content_type=b"text/html")
    assert "is no node of Spillover: status 302, to /login, text/html, " in str(moved)


def test_without_an_answer_it_is_told_whether_it_can_have_run():
    unsent = without_answer(NODE, "r1", NotDelivered(f"POST {NODE}/requests: refused"))
    assert type(unsent) is Unreachable
    assert str(unsent) == f"no node can be reached at {NODE}: refused. Nothing was sent"
    lost = without_answer(NODE, "r1", PeerError(f"POST {NODE}/requests: it broke"))
    assert type(lost) is OutcomeUnknown
    assert str(lost).startswith(
        f"the connection to node {NODE} broke before its answer: it broke. "
    )


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
