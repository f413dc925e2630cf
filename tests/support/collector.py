"""A collector of spans: takes OTLP over HTTP in a thread, and keeps what came, decoded."""

from __future__ import annotations

import gzip
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status


@dataclass
class Told:
    """A span as it came."""

    name: str
    kind: str
    trace_id: str
    id: str
    parent_id: str
    state: str
    attributes: dict
    resource: dict
    events: list
    error: bool
    words: str
    began_ns: int
    ended_ns: int

    def __getitem__(self, name):
        return self.attributes.get(name)


class Collector:
    """`spans` has what came. `status` is what senders are told; while `may_answer` is not set they
    are told nothing."""

    def __init__(self):
        self.spans = []
        self.calls = 0
        self.status = 200
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.url = ""

    def take(self, body):
        self.calls += 1
        self.may_answer.wait(10)
        if self.status == 200:
            self.spans += _spans(ExportTraceServiceRequest.FromString(body))

    def of(self, trace_id):
        """The spans of one trace, in the order in which they began."""
        spans = [span for span in self.spans if span.trace_id == trace_id]
        assert len({span.id for span in spans}) == len(spans)
        return sorted(spans, key=lambda span: (span.began_ns, span.kind != "SERVER"))


def _spans(message):
    for of_resource in message.resource_spans:
        resource = _attributes(of_resource.resource.attributes)
        for of_scope in of_resource.scope_spans:
            for span in of_scope.spans:
                yield Told(
                    span.name,
                    Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    span.trace_state,
                    _attributes(span.attributes),
                    resource,
                    [(event.name, _attributes(event.attributes)) for event in span.events],
                    span.status.code == Status.STATUS_CODE_ERROR,
                    span.status.message,
                    span.start_time_unix_nano,
                    span.end_time_unix_nano,
                )


def _attributes(pairs):
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value):
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(one) for one in value.array_value.values]
    return getattr(value, kind)


@contextmanager
def collecting():
    """A collector for as long as the block lasts."""
    collector = Collector()

    class Taking(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            assert self.path.endswith("/v1/traces")  # whole URLs come where this is a proxy
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            collector.take(body)
            self.send_response(collector.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Taking)
    server.daemon_threads = True
    collector.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield collector
    finally:
        collector.may_answer.set()
        server.shutdown()
        thread.join()
        server.server_close()
