"""What is noted of requests while a node serves them: a real node's shell that nobody runs, its
servers and its neighbor spoken for by the test.
"""

import logging
import time
from itertools import count
from types import SimpleNamespace

import msgspec

from spillover.apps.node.answers import status_of
from spillover.core.overflow import events as ev
from spillover.live.overflow.foreign_requests import Asker
from spillover.live.overflow.protocol import PASS
from spillover.live.overflow.tracing.visits import RECORDS_MAX, URL_LENGTH_MAX, SpanPlace
from spillover.live.overflow.tracing.watching import Tracing
from spillover.live.overflow.wire import Forwarded
from spillover.model.load import LoadReport
from spillover.model.passed import PassedHead, PassedRequest
from spillover.model.request import DONE, FAILED, Answer, Request
from spillover.model.trace_context import TraceContext
from support.federation import topology_of

LONG = {"service_ms": 60_000.0}
URLS = {"a": "http://127.0.0.1:1", "b": "http://127.0.0.1:2"}
NOT_SAMPLED = "00-" + "a" * 32 + "-1-00"


class Sampler:
    """Numbers from 1 on; samples what comes in traces that are sampled, and what is in none."""

    def __init__(self):
        self.names, self.span_id = [], count(1).__next__

    def place(self, trace, name):
        self.names.append(name)
        sampled = trace is None or trace.parent.endswith("01")
        return SpanPlace(0xABC, self.span_id(), None, "x=y", is_sampled=sampled)


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

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self.shell.close()

    def take(self, name="x", trace=None, **fields):
        """A client's request: its entry, or its refusal."""
        request = Request(name, True, msgspec.Raw(b"1"), trace=trace, **fields)
        return self.shell.requests.home.take(request, self.soon_s)

    def take_over(self, name="x", trace=None):
        """The neighbor's."""
        request = Request(name, True, msgspec.Raw(b"1"), ("b",), trace=trace)
        forwarded = Forwarded(request, 600.0, None, pulled=False)
        return self.shell.requests.foreign.take(forwarded, self.soon_s, 0, Asker(nothing, nothing))

    def take_passed(self, work, name="x"):
        sink = SimpleNamespace(**dict.fromkeys(("begin", "end", "break_off", "settle"), nothing))
        request = Request(name, True, work)
        return self.shell.requests.home.take_passed(request, self.soon_s, sink).ref

    def begin(self, ref, status=200, **told):
        source = SimpleNamespace(**dict.fromkeys(("pause", "resume", "close"), nothing))
        event = ev.ResponseBegan(ref, **told)
        return self.shell.requests.relays.begin(event, source, PassedHead(status, b"", ()))

    def neighbor_alone(self):
        """The own servers are down, and the neighbor is willing."""
        self.feed(ev.ServersDown())
        told = {"hears": ("a",), "passes": self.shell.machine.settings.passes}
        report = LoadReport(1, 1, 1.0, 1.0, 0, 1, accepting=True, **told)
        self.feed(ev.ReportReceived(0, report))


def nothing(*_):
    """What nobody looks at."""


async def test_events_of_what_is_not_traced_or_not_under_way_change_nothing(caplog):
    """As of requests that are not sampled, or that have just come back."""
    async with Here() as at:
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


async def test_of_two_visits_of_a_name_the_later_one_gets_what_is_put_on_record():
    """A neighbor sends a request again while its first visit is still here."""
    async with Here() as at:
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


PASSES = {"handler": "proxy:http://127.0.0.1:3"}


async def test_what_passes_through_is_told_by_its_own_method_and_path():
    """Up to a bound; as one that has been read or in bytes; what cannot be read, without."""
    async with Here(**PASSES) as at:
        passed = PassedRequest("PUT", b"/" + b"x" * URL_LENGTH_MAX, (), b"")
        for number, work in enumerate((passed, passed.encode(), memoryview(passed.encode()))):
            visit = at.tracing._open[at.take_passed(work, f"x{number}")]
            assert (visit.method, visit.route) == ("PUT", None)
            assert visit.path == "/" + "x" * (URL_LENGTH_MAX - 1)
        visit = at.tracing._open[at.take_passed(b"nothing", "y")]
        assert (visit.method, visit.path, visit.route) == ("POST", "/requests", None)
        outlet = SimpleNamespace()
        forwarded = Forwarded(Request("z", True, passed.encode(), ("b",)), 1.0, None, False)
        told = forwarded, at.soon_s, 0, Asker(nothing, nothing), outlet
        ref = at.shell.requests.foreign.take(*told)
        visit = at.tracing._open[ref]
        assert (visit.method, visit.path, visit.route) == ("POST", PASS, PASS)
        assert at.sampler.names == ["HTTP"] * 4 + [f"POST {PASS}"]


async def test_an_error_in_here_is_told_and_does_not_end_the_node(caplog, monkeypatch):
    monkeypatch.setattr(
        logging.getLogger("spillover.live.overflow.tracing.watching"), "filters", []
    )
    async with Here() as at:
        at.sampler.place = None
        entry = at.take()
        (line,) = [one for one in caplog.records if one.name.endswith("watching")]
        assert (line.levelname, line.getMessage()) == ("ERROR", "a request is not traced")
        assert line.exc_info
        at.feed(ev.ServiceEnded(entry.ref, DONE, 0.5))
        assert entry.answer.outcome is DONE
        assert at.recorder == []
