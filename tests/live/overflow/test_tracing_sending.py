"""Spans on their way to a collector: in time, bounded, and never in the way of the node."""

import logging
import sys
import threading
import time

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from spillover.apps.node.answers import status_of
from spillover.live.overflow.tracing.sending import SpanSender
from spillover.live.overflow.tracing.telemetry import make_tracing
from spillover.live.overflow.tracing.visits import SpanPlace, VisitTrace
from spillover.model.request import DONE, Answer, Request
from spillover.model.topology import Cluster
from support.collector import collecting
from support.waiting import until

CLUSTER = Cluster(id="a", servers=1, url="http://127.0.0.1:1")


@pytest.fixture
def collector(monkeypatch):
    """A collector; spans leave for it at once, eight at a time."""
    switch_s = sys.getswitchinterval()
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
        monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "64")
        monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "8")
        yield collector
    sys.setswitchinterval(switch_s)


def sender():
    return make_tracing("test", CLUSTER, status_of)._recorder


def visit(number):
    """A visit of two spans that has ended."""
    place = SpanPlace(number, 1, None, "", is_sampled=True)
    ended = VisitTrace(place, Request("r", keyed=True, work=b"1"), 1.0, is_home=True)
    ended.begin(2, 1.0)
    ended.end(2.0, 0.0, Answer(DONE, ("a",)), 200, "")
    return ended


def test_all_is_sent_before_the_end(collector):
    """In parts of the size that was said."""
    spans = sender()
    for number in range(1, 21):
        spans.put(visit(number))
    spans.close(5.0)
    assert len(collector.spans) == 40
    assert collector.calls >= 5
    assert spans.counts == {"sent": 40, "dropped": 0, "failed": 0}
    assert {span.trace_id for span in collector.spans} == {f"{n:032x}" for n in range(1, 21)}


def test_a_collector_that_does_not_answer_holds_nothing_up(collector):
    """What finds no place is dropped and counted; the end does not wait for ever."""
    collector.may_answer.clear()
    spans = sender()
    spans.put(visit(1))
    until(lambda: collector.calls)
    for number in range(1000):
        spans.put(visit(number + 2))
    assert spans.counts["sent"] == 0
    assert spans.counts["dropped"] == 2 * (1 + 1000) - 64
    begun_s = time.monotonic()
    spans.close(0.1)
    assert time.monotonic() - begun_s < 20.0
    collector.may_answer.set()


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json"),
        *(("OTEL_BSP_MAX_QUEUE_SIZE", bad) for bad in ("0", "-1", "x")),
    ],
)
def test_variables_that_mean_nothing_here_are_told(collector, monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    with pytest.raises(ValueError, match=f"{variable}: expected .*, got '{value}'"):
        sender()


class Exporter(SpanExporter):
    """Writes down how much it was given at a time. It answers once it may, or raises."""

    def __init__(self):
        self.batches, self.may_answer, self.ended = [], threading.Event(), 0
        self.may_answer.set()
        self.error = None

    def export(self, spans):
        self.batches.append(len(spans))
        self.may_answer.wait(10.0)
        if self.error is not None:
            raise self.error
        return SpanExportResult.SUCCESS

    def shutdown(self):
        self.ended += 1
        self.may_answer.set()


@pytest.fixture
def exporter():
    return Exporter()


@pytest.fixture
def sending(monkeypatch, exporter):
    """Makes what sends: four at a time, ten at most, and for an hour nothing by itself."""
    switch_s, log = sys.getswitchinterval(), logging.getLogger(OTLPSpanExporter.__module__)
    made = []

    def make(spans_of=lambda visit: [visit] * visit.span_count, delay_ms=3_600_000, batch=4):
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", str(delay_ms))
        monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "10")
        monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", str(batch))
        made.append(SpanSender(spans_of, exporter))
        made[-1].start()
        return made[-1]

    yield make
    exporter.may_answer.set()
    for one in made:
        one.close(5.0)
    sys.setswitchinterval(switch_s)
    for handler in [one for one in log.handlers if type(one).__module__.startswith("spillover")]:
        log.removeHandler(handler)


def test_what_is_on_its_way_takes_a_place_until_it_has_left(sending, exporter):
    """Of ten: of a visit that would take one too many all is dropped. A batch has no more than have
    a place at all."""
    exporter.may_answer.clear()
    spans = sending(batch=99)
    for number in range(1, 8):
        spans.put(visit(number))
    until(lambda: exporter.batches)
    assert exporter.batches == [10]
    spans.put(visit(8))
    assert spans.counts == {"sent": 0, "dropped": 6, "failed": 0}
    exporter.may_answer.set()
    until(lambda: spans.counts["sent"] == 10)
    exporter.may_answer.clear()
    for number in range(9, 15):
        spans.put(visit(number))
    exporter.may_answer.set()
    spans.close(5.0)
    assert spans.counts == {"sent": 20, "dropped": 8, "failed": 0}
    assert exporter.batches == [10, 10]


def test_a_visit_of_which_no_spans_can_be_made_costs_no_other(sending, exporter, caplog):
    def of(visit):
        return [visit] * (2 // (visit.place.trace_id - 1))

    spans = sending(of)
    spans.put(visit(1))
    spans.put(visit(2))
    spans.close(5.0)
    assert exporter.batches == [2]
    (line,) = [one for one in caplog.records if one.levelname == "ERROR"]
    assert line.getMessage() == "the spans of a request cannot be made"


def test_an_exporter_that_fails_is_told_of_and_not_waited_for_at_the_end(sending, exporter, caplog):
    """It would try again for seconds. When it takes spans again, that is told, too."""
    caplog.set_level(logging.WARNING)
    spans = sending()
    for exporter.error in (OSError("it is gone"), OSError("still"), None, OSError("again")):
        before = sum(spans.counts.values())
        for number in (1, 2):
            spans.put(visit(number))
        until(lambda before=before: sum(spans.counts.values()) == before + 4)
    assert spans.counts == {"sent": 4, "dropped": 0, "failed": 12}
    until(lambda: len(caplog.records) == 3)
    spans.close(5.0)
    assert exporter.ended == 1
    told = [(one.msg.words, one.msg.fields) for one in caplog.records]
    assert told == [
        ("the collector takes no spans", {"reason": "it is gone"}),
        ("the collector takes spans", {}),
        ("the collector takes no spans", {"reason": "again"}),
    ]


def test_none_is_an_exporter_that_turns_tracing_off(collector, monkeypatch):
    """Whatever else the variables say."""
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "None")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318")
    assert make_tracing("test", CLUSTER, status_of) is None
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "zipkin")
    with pytest.raises(ValueError, match="OTEL_TRACES_EXPORTER: expected otlp or none, got 'zip"):
        sender()


@pytest.mark.parametrize(
    ("endpoint", "told"),
    [
        ("collector:4318", r"got 'collector:4318', did you mean 'http://collector:4318'\?"),
        ("u:secret@collector/v1", r"got 'collector/v1', did you mean 'http://collector/v1'\?"),
        ("grpc://collector:4317", "got 'grpc://collector:4317'$"),
        ("http://collector:x", "got 'http://collector:x'$"),
        ("http:///v1/traces", "got 'http:///v1/traces'$"),
    ],
)
def test_an_endpoint_to_which_nothing_can_be_sent_is_told_at_the_start(monkeypatch, endpoint, told):
    for variable in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        monkeypatch.setenv(variable, endpoint)
        with pytest.raises(ValueError, match=rf"{variable}: expected http\(s\)://.*, {told}"):
            sender()


def test_spans_for_this_machine_do_not_go_through_a_proxy(collector, monkeypatch):
    """Nor those for whom NO_PROXY says so; all others do."""
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    direct = sender()
    direct.put(visit(1))
    direct.close(5.0)
    assert direct.counts["sent"] == 2
    monkeypatch.setenv("http_proxy", collector.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector.test:4318")
    through = sender()
    through.put(visit(2))
    through.close(5.0)
    assert (through.counts["sent"], len(collector.spans)) == (2, 4)
