"""What is noted of requests while a node serves them: a real node's shell that nobody runs, its
servers and its neighbor spoken for by the test.
"""

from __future__ import annotations

import asyncio
import logging
import time
from itertools import count
from types import SimpleNamespace

import msgspec
import pytest

from spillover.apps.node.answers import status_of
from spillover.core.overflow import events as ev
from spillover.core.overflow.history import describe_record
from spillover.live.overflow.protocol import PASS, SPOKEN
from spillover.live.overflow.tracing.visits import RECORDS_MAX, URL_LENGTH_MAX, Place
from spillover.live.overflow.tracing.watching import Tracing
from spillover.live.overflow.wire import UNSAID, Forwarded
from spillover.model.load import LoadReport
from spillover.model.passed import PassedHead, PassedRequest
from spillover.model.request import DONE, FAILED, Answer, Outcome, Refusal, Request
from spillover.model.trace_context import TraceContext
from support.federation import topology_of

LONG = {"service_ms": 60_000.0}
URLS = {"a": "http://127.0.0.1:1", "b": "http://127.0.0.1:2"}
SAMPLED, NOT_SAMPLED = "00-" + "a" * 32 + "-" + "b" * 16 + "-01", "00-" + "a" * 32 + "-1-00"


class Sampler:
    """Numbers from 1 on; samples what comes in traces that are sampled, and what is in none."""

    def __init__(self):
        self.names, self.span_id = [], count(1).__next__

    def place(self, trace, name):
        self.names.append(name)
        sampled = trace is None or trace.parent.endswith("01")
        return Place(0xABC, self.span_id(), None, "x=y", is_sampled=sampled)


class Recorder(list):
    """Keeps visits that have ended."""

    counts = {"sent": 7}  # noqa: RUF012 - as it is told
    closed_s = None

    def put(self, visit):
        self.append(visit)

    def close(self, timeout_s):
        self.closed_s = timeout_s


class Here:
    """A traced shell."""

    def __init__(self, **fields):
        self.sampler, self.recorder = Sampler(), Recorder()
        self.tracing = Tracing(self.sampler, self.recorder, status_of)
        clusters = dict.fromkeys("ab", LONG | fields)
        topology = topology_of("a", "b", clusters=clusters).with_urls(URLS)
        self.shell = self.tracing.make_shell(topology, "a", seed=1)
        self.feed, self.soon_s = self.shell.feed, time.monotonic() + 600.0

    def take(self, name="x", trace=None, **fields):
        """A client's request: its entry, or its refusal."""
        request = Request(name, True, msgspec.Raw(b"1"), trace=trace, **fields)
        return self.shell.home_requests.take(request, self.soon_s)

    def take_over(self, name="x", trace=None):
        """The neighbor's."""
        request = Request(name, True, msgspec.Raw(b"1"), ("b",), trace=trace)
        return self.shell.foreign_requests.take(request, self.soon_s, 0)[0]

    def take_passed(self, work, name="x"):
        sink = SimpleNamespace(**dict.fromkeys(("begin", "end", "break_off", "settle"), nothing))
        request = Request(name, True, work)
        return self.shell.home_requests.take_passed(request, self.soon_s, sink).ref

    def begin(self, ref, status=200, **told):
        source = SimpleNamespace(**dict.fromkeys(("pause", "resume", "close"), nothing))
        event = ev.ResponseBegan(ref, **told)
        return self.shell.relays.begin(event, source, PassedHead(status, b"", ()))

    def neighbor_alone(self):
        """The own servers are down, and the neighbor is willing."""
        self.feed(ev.ServersDown())
        told = {"hears": ("a",), "passes": self.shell.machine.settings.passes}
        report = LoadReport(1, 1, 1.0, 1.0, 0, 1, accepting=True, **told)
        self.feed(ev.ReportReceived(0, report))


def nothing(*_):
    """What nobody looks at."""


@pytest.fixture
def here():
    def run_with(check, **fields):
        async def main():
            at = Here(**fields)
            try:
                check(at)
            finally:
                await at.shell.close()

        asyncio.run(main())

    return run_with


def test_all_that_is_noted_of_a_request_of_a_client(here):
    """From its arrival; it is told where it stands, and so is its entry."""

    def check(at):
        entry = at.take(trace=TraceContext(SAMPLED))
        told = f"00-{0xABC:032x}-{1:016x}-01"
        assert (entry.trace.parent, entry.trace.state) == (told, "x=y")
        at.feed(ev.ServiceEnded(entry.ref, DONE, 0.5))
        (visit,) = at.recorder
        assert (visit.route, visit.path, visit.method) == ("/requests", "/requests", "POST")
        assert (visit.is_home, visit.status, visit.error) == (True, 200, None)
        assert visit.told is entry.answer
        (attempt,) = visit.attempts
        assert (attempt.span_id, attempt.method, attempt.neighbor) == (2, "", None)
        assert (attempt.error, attempt.problem, attempt.status) == (None, None, None)
        assert visit.began_s <= attempt.began_s <= attempt.ended_s <= visit.ended_s
        assert [describe_record(record)["event"] for record in visit.records] == ["decided"]
        assert at.sampler.names == ["POST /requests"]
        assert at.shell.metrics.spans == {"sent": 7}

    here(check)


def test_what_is_sampled_is_its_own_trace_alone_that_goes_on(here):
    """What comes in a trace that is not sampled goes on as it came; what came in none is told that
    nobody samples it."""

    def check(at):
        not_sampled = TraceContext(NOT_SAMPLED)
        entry = at.take(trace=not_sampled)
        assert entry.trace is not_sampled
        at.sampler.place = lambda *_: Place(0xABC, 9, None, "", is_sampled=False)
        entry = at.take("y")
        assert entry.trace.parent == f"00-{0xABC:032x}-{9:016x}-00"
        ref = at.take_over("z", trace=TraceContext(SAMPLED))
        visit = at.shell.machine.register.visits[ref]
        assert visit.request.trace.parent == entry.trace.parent, "it was asked, and said no"
        for ref in (1, 2):
            at.feed(ev.ServiceEnded(ref, DONE, 0.5))
        assert at.recorder == []

    here(check)


def test_a_service_is_told_of_its_attempt_and_a_neighbor_of_its_own(here):
    """Not of the visit: what is called is a child of the call."""

    def check(at):
        ref = at.take().ref
        way = at.shell.machine.register.visits[ref].request.trace
        assert (way.parent, way.state) == (f"00-{0xABC:032x}-{2:016x}-01", "x=y")
        assert way.sent_to("GET", "http://h/") is way
        at.feed(ev.ServiceEnded(ref, DONE, 0.5))
        at.neighbor_alone()
        ref = at.take("y").ref
        told = at.shell.links.by_handle[0]._ways[ref].command.request.trace
        assert (told.parent, told.state) == (f"00-{0xABC:032x}-{4:016x}-01", "x=y")
        at.feed(ev.ForwardAnswered(ref, Answer(DONE, ("a", "b")), 0.1, 0.1))
        (call,) = at.recorder[-1].attempts
        assert (call.method, call.url) == ("POST", URLS["b"] + SPOKEN[0].forward)
        assert (call.neighbor, call.pulled, call.status, call.error) == ("b", False, 200, None)

    here(check)


@pytest.mark.parametrize(
    ("outcome", "upstream_status", "reason", "status"),
    [
        (FAILED, None, "handler_failed", 502),
        (FAILED, 500, "handler_failed", 502),
        (Outcome.EXPIRED, None, "deadline_exceeded", 504),
    ],
)
def test_how_work_has_failed_is_told_of_the_attempt_and_of_the_visit(
    here, outcome, upstream_status, reason, status
):
    def check(at):
        ref = at.take().ref
        words = {"problem": "why", "upstream_status": upstream_status}
        at.feed(ev.ServiceEnded(ref, outcome, 0.5, **words))
        (visit,) = at.recorder
        (attempt,) = visit.attempts
        assert (attempt.error, attempt.problem, attempt.status) == (reason, "why", upstream_status)
        assert (visit.error, visit.status) == (reason, status)

    here(check)


def test_how_forwards_fail_and_what_the_neighbor_answers(here):
    """What is refused or lost is tried again, here it waits; what has failed there has come back
    with an answer all the same."""

    def check(at):
        at.neighbor_alone()
        for number, (event, error) in enumerate(
            [(ev.ForwardRefused, "refused"), (ev.ForwardLost, "lost")]
        ):
            ref = at.take(f"x{number}").ref
            at.feed(event(ref))
            visit = at.tracing._open[ref]
            first = visit.attempts[0]
            assert (first.neighbor, first.error, first.status) == ("b", error, None)
            at.feed(ev.Cancelled(ref))
        at.neighbor_alone()
        ref = at.take("y").ref
        answer = Answer(FAILED, ("a", "b"), problem="why")
        at.feed(ev.ForwardAnswered(ref, answer, 0.1, 0.1))
        last = at.recorder[-1].attempts[-1]
        assert (last.status, last.error, last.problem) == (200, "handler_failed", "why")

    here(check)


def test_what_could_not_be_started_says_why(here):
    def check(at):
        ref = at.take().ref
        at.feed(ev.NotStarted(ref, "busy"))
        first = at.tracing._open[ref].attempts[0]
        assert (first.error, first.problem) == ("not_started", "busy")

    here(check)


def test_events_of_what_is_not_traced_or_not_under_way_change_nothing(here, caplog):
    """As of requests that are not sampled, or that have just come back."""

    def check(at):
        at.take("no", trace=TraceContext(NOT_SAMPLED))
        at.neighbor_alone()
        for event in (ev.ForwardRefused(1), ev.ForwardLost(1), ev.NotStarted(1, "busy")):
            at.tracing._hear(event, 1.0)
        answer = Answer(DONE, ("a", "b"))
        for number, event in enumerate(
            [
                ev.ForwardAnswered(1, answer, 0, 0),
                ev.ServiceEnded(1, DONE, 0.1),
                ev.ServiceEnded(1, FAILED, 0.1, upstream_status=500),
            ]
        ):
            at.tracing._hear(event, 1.0)
            ref = at.take(f"yes{number}").ref
            visit = at.tracing._open[ref]
            visit.under_way = None
            event.ref = ref
            at.tracing._hear(event, 1.0)
            assert at.tracing._open[ref] is visit
            assert [attempt.error for attempt in visit.attempts] == [None]
        assert "not traced" not in caplog.text

    here(check)


def test_a_neighbor_has_its_answer_whatever_that_says(here):
    """The status is of the call; why there is no result is told all the same."""

    def check(at):
        for outcome, error in ((DONE, None), (FAILED, "handler_failed")):
            ref = at.take_over(outcome.value)
            at.feed(ev.ServiceEnded(ref, outcome, 0.5, problem="why"))
            visit = at.recorder[-1]
            assert (visit.is_home, visit.route) == (False, SPOKEN[0].forward)
            assert (visit.status, visit.error) == (200, error)
        ref = at.take_over("gone")
        at.feed(ev.Cancelled(ref))
        assert (at.recorder[-1].status, at.recorder[-1].error) == (200, "cancelled")
        assert at.sampler.names == [f"POST {SPOKEN[0].forward}"] * 3

    here(check)


def test_a_client_that_leaves_has_no_status_and_a_refusal_has_its_own(here):
    def check(at):
        entry = at.take()
        waits = at.take("y")
        at.shell.home_requests.abandon(waits)
        (visit,) = at.recorder
        assert (visit.request_id, visit.status, visit.error) == ("y", None, "cancelled")
        last = at.take("z")
        refused = at.take("late")
        assert refused.reason is Refusal.QUEUE_FULL
        visit = at.recorder[-1]
        assert (visit.request_id, visit.status, visit.error) == ("late", 429, "queue_full")
        assert (visit.attempts, visit.ended_s) == ([], visit.began_s)
        for one in (entry, last):
            at.feed(ev.ServiceEnded(one.ref, DONE, 0.5))
        assert (len(at.recorder), at.tracing._open, at.tracing._by_id) == (4, {}, {})

    here(check, queue_limit=1)


def test_of_two_visits_of_a_name_the_later_one_gets_what_is_put_on_record(here):
    """A neighbor sends a request again while its first visit is still here."""

    def check(at):
        first, second = at.take_over(), at.take_over()
        at.feed(ev.ServiceEnded(first, DONE, 0.5))
        (ended,) = at.recorder
        visit = at.tracing._by_id["x"]
        before = len(visit.records)
        at.tracing._on_record(SimpleNamespace(request_id="x"))
        assert len(visit.records) == before + 1
        for _ in range(2 * RECORDS_MAX):
            at.tracing._on_record(SimpleNamespace(request_id="x"))
        assert len(visit.records) == RECORDS_MAX
        at.feed(ev.ServiceEnded(second, DONE, 0.5))
        assert at.recorder == [ended, visit]
        assert at.tracing._by_id == {}

    here(check)


PASSES = {"handler": "proxy:http://127.0.0.1:3"}


def test_what_passes_through_is_told_by_its_own_method_and_path(here):
    """Up to a bound; as one that has been read or in bytes; what cannot be read, without."""

    def check(at):
        passed = PassedRequest("PUT", b"/" + b"x" * URL_LENGTH_MAX, (), b"")
        for number, work in enumerate((passed, passed.encode(), memoryview(passed.encode()))):
            visit = at.tracing._open[at.take_passed(work, f"x{number}")]
            assert (visit.method, visit.route) == ("PUT", None)
            assert visit.path == "/" + "x" * (URL_LENGTH_MAX - 1)
        visit = at.tracing._open[at.take_passed(b"nothing", "y")]
        assert (visit.method, visit.path, visit.route) == ("POST", "/requests", None)
        outlet = SimpleNamespace()
        forwarded = Forwarded(UNSAID, Request("z", True, passed.encode(), ("b",)), 1.0, None, False)
        ref, _ = at.shell.foreign_requests.take_passed(forwarded, at.soon_s, 0, outlet)
        visit = at.tracing._open[ref]
        assert (visit.method, visit.path, visit.route) == ("POST", PASS, PASS)
        assert at.sampler.names == ["HTTP"] * 4 + [f"POST {PASS}"]

    here(check, **PASSES)


@pytest.mark.parametrize(
    ("outcome", "whole", "error"),
    [
        (DONE, None, None),
        (FAILED, None, "truncated"),
        (FAILED, 500, "500"),
        (Outcome.CANCELLED, None, "cancelled"),
    ],
)
def test_what_has_begun_has_the_status_of_its_head_however_it_ends(here, outcome, whole, error):
    """A client that leaves then, too: it was told."""

    def check(at):
        ref = at.take_passed(PassedRequest("GET", b"/", (), b"").encode())
        relay = at.begin(ref, 206)
        visit = at.tracing._open[ref]
        assert (visit.head_status, visit.under_way.status) == (206, 206)
        if outcome is Outcome.CANCELLED:
            at.feed(ev.Cancelled(ref))
        else:
            if error != "truncated":
                relay.end()
            at.feed(ev.ServiceEnded(ref, outcome, 0.5, upstream_status=whole))
        assert at.recorder == [visit]
        assert (visit.status, visit.error) == (206, error)
        assert visit.attempts[0].error == error

    here(check, **PASSES)


def test_the_call_of_a_neighbor_whose_answer_has_begun_has_the_status_of_that_call(here):
    def check(at):
        at.neighbor_alone()
        ref = at.take_passed(PassedRequest("GET", b"/", (), b"").encode())
        at.begin(ref, 503, so_far=ev.SoFar(("a", "b"), 0.0, 0.0, 0.0))
        visit = at.tracing._open[ref]
        assert (visit.head_status, visit.under_way.status) == (503, 200)
        assert visit.under_way.url == URLS["b"] + PASS

    here(check, **PASSES)


def test_an_error_in_here_is_told_and_does_not_end_the_node(here, caplog, monkeypatch):
    def check(at):
        at.sampler.place = None
        entry = at.take()
        (line,) = [one for one in caplog.records if one.name.endswith("watching")]
        assert (line.levelname, line.getMessage()) == ("ERROR", "a request is not traced")
        assert line.exc_info
        at.feed(ev.ServiceEnded(entry.ref, DONE, 0.5))
        assert entry.answer.outcome is DONE
        assert at.recorder == []

    monkeypatch.setattr(
        logging.getLogger("spillover.live.overflow.tracing.watching"), "filters", []
    )
    here(check)


def test_the_end_of_the_node_gives_spans_a_few_seconds_to_leave(here):
    def check(at):
        at.tracing.close()
        assert at.recorder.closed_s == 3.0

    here(check)
