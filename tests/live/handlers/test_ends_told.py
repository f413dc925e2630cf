"""What the log says of calls that came to nothing, and how loudly: whose fault it is decides."""

import logging
import time

import msgspec
import pytest

from spillover.core.overflow.events import Start
from spillover.live.handlers import ends
from spillover.live.handlers.calls import CallResult
from spillover.model.request import Request

NO = "no such model"
TRACE = "Traceback (most recent call last): ..."
ANSWER = '{"error": "no such model"}'


@pytest.mark.parametrize(
    ("how", "level", "words", "reason", "trace"),
    [
        ({}, "WARNING", "handler failed", NO, TRACE),
        ({"rejected": True}, "INFO", "handler rejected", NO, None),
        ({"not_run": True}, "WARNING", "handler did not run it", NO, None),
        ({"not_run": True, "status": 503}, "WARNING", "handler did not run it", NO, None),
    ],
)
def test_only_failures_of_the_code_come_with_a_traceback(
    how, level, words, reason, trace, caplog, monkeypatch
):
    # The filter holds back what it has let through within a second, for another test as well.
    monkeypatch.setattr(ends._log, "filters", [])
    caplog.set_level(logging.INFO)
    now_s = time.monotonic()
    command = Start(1, Request("r1", False, msgspec.Raw(b"1")), now_s, now_s + 1.0)
    for answered in (False, True):
        caplog.clear()
        details = ANSWER if answered else TRACE
        ended = CallResult(problem=NO, details=details, upstream_answered=answered, **how)
        ends.event_of(command, ended)
        (record,) = caplog.records
        assert (record.levelname, record.msg.words) == (level, words)
        told = {"request_id": "r1", "reason": ANSWER if answered else reason}
        told |= {"traceback": trace} if trace and not answered else {}
        told |= {"upstream_status": how["status"]} if "status" in how else {}
        assert record.msg.fields == told


def test_of_many_alike_the_log_says_one_at_a_time(caplog, monkeypatch):
    # Its own kind, but none that remembers what other tests had told.
    monkeypatch.setattr(ends._log, "filters", [type(one)() for one in ends._log.filters])
    now_s = time.monotonic()
    command = Start(1, Request("r1", False, msgspec.Raw(b"1")), now_s, now_s + 1.0)
    for _ in range(20):
        ends.event_of(command, CallResult(problem=NO))
    (record,) = caplog.records
    assert record.msg.fields == {"request_id": "r1", "reason": NO}
