"""What is noted of a visit, and the spans that are made of it: waits between attempts, attempts in
turn, and bounds.
"""

import asyncio
from itertools import count
from types import SimpleNamespace

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.trace import SpanKind

from spillover.core.overflow.events import HOME, Refuse
from spillover.live.overflow.tracing.spans import PROBLEM_LENGTH_MAX, SpanMaker
from spillover.live.overflow.tracing.visits import (
    RECORDS_MAX,
    URL_LENGTH_MAX,
    AttemptContext,
    SpanPlace,
    VisitTrace,
)
from spillover.model.ids import ClusterId, RequestId
from spillover.model.request import DONE, Answer, Outcome, Refusal, Request
from spillover.model.topology import Cluster
from support.loop import turn

PLACE = SpanPlace(0xABC, 1, None, "x=y", is_sampled=True)
URL = "http://h:1/x"
NUMBERS = count(1000)


@pytest.fixture
def visit():
    """One that came at 10 s."""
    return VisitTrace(PLACE, Request(RequestId("r"), False, b"1"), 10.0, is_home=True)


def spans_of(visit, cluster=None):
    cluster = cluster or Cluster(id="a", servers=1)
    made = SpanMaker(Resource({}), cluster, NUMBERS.__next__).spans(visit)
    assert len(made) == visit.span_count
    assert {span.context.trace_id for span in made} == {PLACE.trace_id}
    assert len({span.context.span_id for span in made}) == len(made)
    return made


def test_it_waits_where_nothing_is_under_way(visit):
    """Before, between and behind attempts; what delivers an answer is no wait."""
    visit.begin(2, 11.0)
    visit.end_attempt(12.0, "refused")
    visit.begin(3, 12.0)
    visit.end_attempt(13.0, "not_started")
    visit.begin(4, 15.0)
    visit.end_attempt(16.0, None)
    visit.end(16.0, 0.5, Answer(DONE, ("a",)), 200, "")
    assert visit.waits == [(10.0, 11.0), (13.0, 15.0)]
    assert visit.ended_s == 16.5
    assert [(one.began_s, one.ended_s, one.error) for one in visit.attempts] == [
        (11.0, 12.0, "refused"), (12.0, 13.0, "not_started"), (15.0, 16.0, None),
    ]  # fmt: skip
    server, *others = spans_of(visit)
    assert server.end_time - server.start_time == pytest.approx(6.5e9, rel=1e-6)
    assert all(span.parent.span_id == PLACE.span_id for span in others)
    assert [span.name for span in others] == ["queue", "queue", "run", "run", "run"]


def test_what_expires_in_the_queue_has_waited_to_the_end(visit):
    visit.end(12.0, 0.0, Answer(Outcome.EXPIRED, ("a",), problem="x" * 999), 504, "late")
    assert visit.waits == [(10.0, 12.0)]
    server, _ = spans_of(visit)
    assert server.attributes["error.type"] == "late"
    assert len(server.status.description) == PROBLEM_LENGTH_MAX


def test_each_call_of_a_service_is_an_attempt(visit):
    """The first one is what the server began; those that got nothing say so."""
    numbers = iter(range(3, 9))
    way = AttemptContext(visit, visit.begin(2, 10.0), lambda: next(numbers))
    first = way.sent_to("GET", URL)
    assert first is way
    assert first.parent == f"00-{0xABC:032x}-{2:016x}-01"
    second = first.sent_to("GET", "http://other" + "/y" * URL_LENGTH_MAX)
    assert (second.parent, second.state) == (f"00-{0xABC:032x}-{3:016x}-01", "x=y")
    visit.end_attempt(visit.under_way.began_s + 1.0, None)
    visit.end(visit.ended_s, 0.0, Answer(DONE, ("a",)), 200, "")
    _, *calls = spans_of(visit)
    assert [span.kind for span in calls] == [SpanKind.CLIENT] * 2
    assert [span.attributes.get("error.type") for span in calls] == ["no_answer", None]
    assert [span.attributes.get("http.request.resend_count") for span in calls] == [None, 1]
    assert calls[0].attributes["server.port"] == 1
    assert calls[1].attributes["server.port"] == 80
    assert len(calls[1].attributes["url.full"]) == URL_LENGTH_MAX


def test_a_call_after_one_that_has_ended_is_another_attempt(visit):
    """What ended then keeps what was said of it."""
    way = AttemptContext(visit, visit.begin(2, 10.0), iter(range(3, 9)).__next__).sent_to(
        "GET", URL
    )
    visit.end_attempt(11.0, "why")
    way.sent_to("PUT", URL)
    assert [(one.span_id, one.method, one.error) for one in visit.attempts] == [
        (2, "GET", "why"), (3, "PUT", None),
    ]  # fmt: skip
    assert visit.under_way is visit.attempts[1]


async def test_the_status_of_a_call_is_that_of_its_own_answer(visit):
    """None of one that was cancelled or has failed."""
    loop, calls, wrongs = asyncio.get_running_loop(), [], []
    loop.set_exception_handler(lambda _, told: wrongs.append(told))
    way = AttemptContext(visit, visit.begin(2, 10.0), iter(range(3, 9)).__next__)
    for _ in range(3):
        way, asked = way.sent_to("GET", URL), loop.create_future()
        way.follow(asked)
        calls.append(asked)
    calls[0].cancel()
    calls[1].set_exception(OSError("gone"))
    calls[2].set_result(SimpleNamespace(status=204))
    await turn()
    assert wrongs == []
    assert [one.status for one in visit.attempts] == [None, None, 204]


def test_no_time_runs_backward(visit):
    """Whatever the clocks of those that tell of instants say."""
    visit.begin(2, 12.0)
    visit.end_attempt(11.0, None)
    visit.begin(3, 11.5)
    visit.end(11.0, 0.25, Answer(DONE, ("a",)), 200, "")
    assert [(one.began_s, one.ended_s) for one in visit.attempts] == [(12.0, 12.0), (11.5, 11.5)]
    assert visit.waits == [(10.0, 12.0)]
    assert visit.ended_s == 11.75


def test_what_is_under_way_at_the_end_ends_with_the_visit(visit):
    """And as that does."""
    visit.begin(2, 11.0)
    visit.end(13.0, 0.0, Answer(Outcome.CANCELLED, ("a",)), None, "cancelled")
    assert [(one.ended_s, one.error) for one in visit.attempts] == [(13.0, "cancelled")]
    assert (visit.under_way, visit.waits, visit.error) == (None, [(10.0, 11.0)], "cancelled")


def test_what_is_tried_for_ever_is_told_only_up_to_a_bound(visit):
    for number in range(3 * RECORDS_MAX):
        attempt = visit.begin(number + 2, 10.0 + number)
        assert visit.under_way is attempt
        visit.end_attempt(10.5 + number, "not_started")
    visit.end(10_000.0, 0.0, Refuse(1, HOME, Refusal.QUEUE_FULL, 1.0), 429, "queue_full")
    assert len(visit.attempts) == len(visit.waits) == RECORDS_MAX
    server, *_ = spans_of(visit)
    assert server.status.is_unset
    assert "error.type" not in server.attributes
    assert server.attributes["http.response.status_code"] == 429
    assert server.attributes["spillover.outcome"] == "refused"


DOORS = Cluster(id="a", servers=1, url="https://a.example", proxy_url="http://door.example:8080")


def test_all_that_the_span_of_a_visit_tells(visit):
    """By the names that HTTP's semantic conventions give, which is what people search for."""
    visit.route = "/requests"
    visit.end(11.0, 0.0, Answer(DONE, ("a", "b")), 200, "")
    server, queue = spans_of(visit, DOORS)
    assert (server.name, server.kind) == ("POST /requests", SpanKind.SERVER)
    assert server.parent is None
    assert dict(server.attributes) == {
        "http.request.method": "POST",
        "http.response.status_code": 200,
        "http.route": "/requests",
        "url.scheme": "https",
        "url.path": "/requests",
        "server.address": "a.example",
        "server.port": 443,
        "spillover.cluster": "a",
        "spillover.request.id": "r",
        "spillover.request.type": "default",
        "spillover.request.keyed": False,
        "spillover.outcome": "done",
        "spillover.path": ("a", "b"),
    }
    assert (queue.name, queue.kind, dict(queue.attributes)) == ("queue", SpanKind.INTERNAL, {})


def test_what_passes_through_has_come_by_its_own_door(visit):
    """It has no route; a method that nobody knows is told as it came; and whoever has sent it is
    the parent, elsewhere."""
    visit.place = PLACE._replace(parent_id=77)
    visit.method, visit.path = "PURGE", "/v1/x"
    visit.end(11.0, 0.0, Answer(DONE, ("a",)), 200, "")
    server, _ = spans_of(visit, DOORS)
    assert server.name == "HTTP"
    assert (server.parent.trace_id, server.parent.span_id) == (PLACE.trace_id, 77)
    assert server.parent.is_remote
    told = dict(server.attributes)
    assert "http.route" not in told
    assert (told["http.request.method"], told["http.request.method_original"]) == (
        "_OTHER",
        "PURGE",
    )
    assert (told["url.scheme"], told["url.path"]) == ("http", "/v1/x")
    assert (told["server.address"], told["server.port"]) == ("door.example", 8080)


@pytest.mark.parametrize("pulled", [False, True])
def test_all_that_the_span_of_a_call_of_a_neighbor_tells(visit, pulled):
    attempt = visit.begin(2, 10.0)
    attempt.method, attempt.url = "POST", "http://b.example:81/peer/handoffs"
    attempt.neighbor, attempt.pulled, attempt.status = ClusterId("b"), pulled, 200
    visit.end_attempt(11.0, None)
    visit.end(11.0, 0.0, Answer(DONE, ("a", "b")), 200, "")
    _, call = spans_of(visit)
    assert (call.name, call.kind) == ("POST /peer/handoffs", SpanKind.CLIENT)
    assert dict(call.attributes) == {
        "http.request.method": "POST",
        "http.response.status_code": 200,
        "server.address": "b.example",
        "server.port": 81,
        "url.full": "http://b.example:81/peer/handoffs",
        "spillover.neighbor": "b",
        "spillover.pulled": pulled,
    }


@pytest.mark.parametrize(
    ("status", "by_server", "by_client"),
    [(399, None, None), (400, None, "400"), (499, None, "499"), (500, "500", "500")],
)
def test_whose_error_a_status_is(visit, status, by_server, by_client):
    """What a caller has done wrong is no error of a server; whoever got that answer has one."""
    attempt = visit.begin(2, 10.0)
    attempt.method, attempt.url, attempt.status = "GET", URL, status
    visit.end_attempt(11.0, None)
    visit.end(11.0, 0.0, Answer(DONE, ("a",)), status, "")
    server, call = spans_of(visit)
    assert server.attributes.get("error.type") == by_server
    assert call.attributes.get("error.type") == by_client
    assert server.status.is_unset == (by_server is None)
    assert call.status.is_unset == (by_client is None)


def test_all_spans_of_a_visit_are_in_the_same_state_of_its_trace(visit):
    """Sampled, by the tracestate that goes along; where there is none, none is told."""
    visit.begin(2, 11.0)
    for visit.place, header in ((PLACE, "x=y"), (PLACE._replace(state="", parent_id=7), "")):
        visit.end(12.0, 0.0, Answer(DONE, ("a",)), 200, "")
        spans = spans_of(visit)
        assert [span.context.trace_state.to_header() for span in spans] == [header] * 3
        assert all(span.context.trace_flags.sampled for span in spans)
        assert not any(span.context.is_remote for span in spans)
        assert [span.parent.trace_state.to_header() for span in spans[1:]] == [header] * 2
        assert not any(span.parent.is_remote for span in spans[1:])


def test_work_that_calls_nobody_tells_how_it_failed(visit):
    """It has no status, nor is it a call after which others are others."""
    visit.begin(2, 10.0)
    visit.end_attempt(11.0, "handler_failed", "it broke")
    attempt = visit.begin(3, 11.0)
    attempt.method, attempt.url = "GET", URL
    visit.end_attempt(12.0, None)
    visit.end(12.0, 0.0, Answer(DONE, ("a",)), 200, "")
    _, run, call = spans_of(visit)
    assert (run.name, run.kind, dict(run.attributes)) == (
        "run", SpanKind.INTERNAL, {"error.type": "handler_failed"},
    )  # fmt: skip
    assert (run.status.is_unset, run.status.description) == (False, "it broke")
    assert "http.request.resend_count" not in call.attributes
    assert call.attributes["server.address"] == "h"
    assert "url.scheme" not in call.attributes
    assert (call.name, call.status.is_unset) == ("GET", True)
