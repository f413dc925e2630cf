"""The sending of spans to a collector, in a thread of its own: whatever the collector does, the
node does not wait for it. What is kept for it is bounded; spans that find no place are dropped and
counted."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.environment_variables import (
    OTEL_BSP_MAX_EXPORT_BATCH_SIZE,
    OTEL_BSP_MAX_QUEUE_SIZE,
    OTEL_BSP_SCHEDULE_DELAY,
)
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from spillover.live.overflow.tracing.visits import VisitTrace
from spillover.live.process.logs import Message

SENT, DROPPED, FAILED = "sent", "dropped", "failed"

SWITCH_S = 0.0005
"""The longest time, in seconds, for which the thread holds up the loop that answers requests: a
tenth of what Python lets it."""

_log = logging.getLogger(__name__)


class SpanSender:
    """The sender of spans: it takes visits that have ended, makes spans of them and gives these to
    an exporter.

    As the environment says, at most OTEL_BSP_MAX_QUEUE_SIZE spans wait. They leave after
    OTEL_BSP_SCHEDULE_DELAY, or once there are OTEL_BSP_MAX_EXPORT_BATCH_SIZE. Raises ValueError for
    values that make no sense.
    """

    def __init__(
        self, make: Callable[[VisitTrace], list[ReadableSpan]], exporter: SpanExporter
    ) -> None:
        self._make = make
        self._exporter = exporter
        self._waiting_max = _number(OTEL_BSP_MAX_QUEUE_SIZE, 2048)
        self._batch_max = min(_number(OTEL_BSP_MAX_EXPORT_BATCH_SIZE, 512), self._waiting_max)
        self._delay_s = _number(OTEL_BSP_SCHEDULE_DELAY, 5000) / 1e3
        self._waiting: deque[VisitTrace] = deque()
        self._put = 0
        """The number of spans put in, counted by the loop's side."""
        self._taken = 0
        """The number of spans taken out, counted by the thread's side."""
        self.counts = {SENT: 0, DROPPED: 0, FAILED: 0}
        self._wake = threading.Event()
        self._closing = False
        self._is_down = False
        self._said = _LastWords()
        self._thread = threading.Thread(target=self._run, name="spans", daemon=True)

    def start(self) -> None:
        sys.setswitchinterval(SWITCH_S)
        exporters_log = logging.getLogger(OTLPSpanExporter.__module__)
        exporters_log.addHandler(self._said)
        exporters_log.propagate = False  # it says several things for each batch
        self._thread.start()

    def put(self, visit: VisitTrace) -> None:
        """Take a record, for `watching.Recorder`."""
        count = visit.span_count
        waiting = self._put - self._taken + count
        if waiting > self._waiting_max:
            self.counts[DROPPED] += count
            return
        self._put += count
        self._waiting.append(visit)
        if waiting >= self._batch_max:
            self._wake.set()

    def close(self, timeout_s: float) -> None:
        """Close, for `watching.Recorder`."""
        self._closing = True
        if self._is_down:
            self._exporter.shutdown()  # it would try again for seconds
        self._wake.set()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            left = self._put - self._taken
            _log.warning(Message("the node ends before all spans have left", spans=left))

    def _run(self) -> None:
        while not self._closing:
            self._wake.wait(self._delay_s)
            self._wake.clear()
            while self._waiting:
                self._send()

    def _send(self) -> None:
        visits: list[VisitTrace] = []
        count = 0
        while self._waiting and count < self._batch_max:
            visits.append(self._waiting.popleft())
            count += visits[-1].span_count
        is_sent = self._export(visits)
        self._taken += count  # only now: spans on their way take memory, too
        self.counts[SENT if is_sent else FAILED] += count
        if is_sent == self._is_down:
            self._is_down = not is_sent
            words = "the collector takes spans" if is_sent else "the collector takes no spans"
            _log.warning(Message(words, reason=None if is_sent else self._said.words))

    def _export(self, visits: Sequence[VisitTrace]) -> bool:
        spans = [span for visit in visits for span in self._spans_of(visit)]
        try:
            return self._exporter.export(spans) is SpanExportResult.SUCCESS
        except Exception as error:  # noqa: BLE001 - nobody is above this thread
            self._said.words = str(error)
            return False

    def _spans_of(self, visit: VisitTrace) -> Sequence[ReadableSpan]:
        """Returns the spans, or None where they cannot be made: one visit must not cost all that
        are sent with it."""
        try:
            return self._make(visit)
        except Exception:  # noqa: BLE001 - as below
            _log.exception(Message("the spans of a request cannot be made"))
            return ()


class _LastWords(logging.Handler):
    """The last message of the exporter."""

    words = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.words = record.getMessage()


def _number(variable: str, default: int) -> int:
    told = os.environ.get(variable) or str(default)
    if not told.isdecimal() or int(told) == 0:
        raise ValueError(f"{variable}: expected a whole number above 0, got {told!r}")
    return int(told)
