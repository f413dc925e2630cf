"""Spans on their way to a collector: in time, bounded, and never in the way of the node."""

from __future__ import annotations

import logging
import sys
import time

import pytest

from spillover.apps.node.answers import status_of
from spillover.live.overflow.tracing.telemetry import make_tracing
from spillover.live.overflow.tracing.visits import Place, VisitTrace
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
    place = Place(number, 1, None, "", is_sampled=True)
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
    assert time.monotonic() - begun_s < 2.0
    collector.may_answer.set()


def test_a_collector_that_refuses_or_is_gone_is_told_of_once(collector, caplog):
    """With its reason; and when it takes spans again."""
    collector.status = 400
    spans = sender()
    with caplog.at_level(logging.WARNING):
        for number in (1, 2):
            spans.put(visit(number))
            until(lambda: spans.counts["failed"] == 2 * number)  # noqa: B023 - awaited here
        collector.status = 200
        spans.put(visit(3))
        until(lambda: spans.counts["sent"] == 2)
    spans.close(5.0)
    words = [str(record.msg) for record in caplog.records if record.name.startswith("spillover")]
    assert len(words) == 2
    assert words[0].startswith("the collector takes no spans reason=")
    assert "400" in words[0]
    assert words[1] == "the collector takes spans"


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


def test_the_environment_can_turn_it_off_and_name_the_service(collector, monkeypatch):
    monkeypatch.setenv("OTEL_SERVICE_NAME", "shop")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    spans = sender()
    spans.put(visit(1))
    spans.close(5.0)
    resource = collector.spans[0].resource
    assert (resource["service.name"], resource["service.namespace"]) == ("shop", "test")
    assert resource["deployment.environment.name"] == "test"
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert make_tracing("test", CLUSTER, status_of) is None
