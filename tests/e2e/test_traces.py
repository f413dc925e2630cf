"""Traces of a site that is a process of its own: what it has to tell has left when it ends."""

from support.collector import collecting

TOPOLOGY = "name: one\nclusters: [{id: a, servers: 1}]\n"
TRACE = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
TRACED = {"traceparent": TRACE, "Prefer": "respond-async"}


def test_spans_leave_at_the_end_and_make_one_trace(tmp_path, up, ask, monkeypatch):
    (tmp_path / "one.yaml").write_text(TOPOLOGY)
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "600000")
        options = ("--otel", "--results-timeout-s", "0")
        bed, urls = up("one.yaml", *options, cwd=tmp_path)
        body = {"payload": {"service_ms": 500}, "id": "r"}
        assert ask(f"{urls['a']}/requests", body, TRACED)[0] == 202
        assert bed.end() == 0
        bed.nothing_left()
    assert {span.resource["service.instance.id"] for span in collector.spans} == {"a"}
    assert sorted(span.name for span in collector.spans) == ["POST /requests", "run"]
    assert {span.trace_id for span in collector.spans} == {"a" * 32}
    ids = {span.id for span in collector.spans} | {"b" * 16}
    assert {span.parent_id for span in collector.spans} <= ids
