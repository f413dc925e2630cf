"""The line that a node writes for each request that has ended, where it is asked for them."""

import logging

import pytest

from spillover.core.overflow.idempotency import IdempotencyRecord
from spillover.live.overflow.request_log import is_logged, log_request
from spillover.live.process.logs import REQUESTS_LOGGER
from spillover.model.request import Answer, Outcome, Request
from spillover.model.trace_context import TraceContext

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.mark.parametrize("parent", [PARENT, None])
def test_it_tells_where_it_ended_and_what_it_took(caplog, parent):
    """In the unit that its name says, and with the trace that it belongs to."""
    trace = None if parent is None else TraceContext(parent, "")
    request = Request("r1", True, None, (), type="llm", trace=trace)
    record = IdempotencyRecord(request, 1, None, asynchronous=False)
    answer = Answer(Outcome.FAILED, ("a", "b"), None, "it broke", 0.5, 0.25, 1.0, 0.5)
    with caplog.at_level(logging.INFO, REQUESTS_LOGGER):
        assert is_logged()
        log_request(record, answer, 502)
    (line,) = caplog.records
    told = {
        "request_id": "r1",
        "method": "POST",
        "path": "/requests",
        "status": 502,
        "outcome": "failed",
        "cause": "worker",
        "ended_at": "b",
        "hops": 1,
        "received_bytes": 0,
        "sent_bytes": 0,
        "first_byte_ms": 2250.0,
        "total_ms": 2250.0,
        "system_time_ms": 1750.0,
        "type": "llm",
        "problem": "it broke",
    }
    assert line.msg.fields == told | ({} if parent is None else {"traceparent": parent})
