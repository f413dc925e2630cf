"""Traces of two sites as processes of their own: what they have to tell has left when they end,
and a collector that is not there changes nothing.
"""

from support.collector import collecting
from support.waiting import until

TOPOLOGY = """
name: two
policy: two-choice
clusters:
  - {id: a, servers: 1, service_ms: 50, queue_limit: 0}
  - {id: b, servers: 4, service_ms: 50}
links: [{between: [a, b], delay_ms: 5}]
"""
TRACE = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
TRACED = {"traceparent": TRACE, "Prefer": "respond-async"}


def test_spans_leave_at_the_end_and_make_one_trace(tmp_path, up, ask, monkeypatch):
    (tmp_path / "two.yaml").write_text(TOPOLOGY)
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "600000")
        options = ("--otel", "--results-timeout-s", "0")
        bed, urls = up("two.yaml", *options, cwd=tmp_path)
        for number in range(2):  # the second one finds no server at a
            body = {"payload": {"service_ms": 500}, "id": f"r{number}"}
            assert ask(f"{urls['a']}/requests", body, TRACED)[0] == 202
        # Else b may be leaving when it comes, and it runs at a in the end.
        until(lambda: ask(f"{urls['b']}/state")[1]["ledger"]["foreign"]["received"] == 1)
        assert bed.end() == 0
        bed.nothing_left()
    told = {span.resource["service.instance.id"]: [] for span in collector.spans}
    for span in collector.spans:
        assert span.trace_id == "a" * 32
        told[span.resource["service.instance.id"]].append(span.name)
    assert sorted(told["a"]) == [
        *("POST /peer/v3/forward", "POST /requests", "POST /requests", "run"),
    ]
    assert sorted(told["b"]) == ["POST /peer/v3/forward", "run"]
    ids = {span.id for span in collector.spans} | {"b" * 16}
    assert {span.parent_id for span in collector.spans} <= ids
