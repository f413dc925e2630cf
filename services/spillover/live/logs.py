"""What a node's logs look like, and how they stay harmless: readable and small while something
fails thousands of times a second, and never in the way when they cannot be written.

What is logged, and when, is decided where it happens.
"""

from __future__ import annotations

import json
import logging
import os
import select
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime

from spillover.model.request import Request

PERIOD_S = 1.0

REQUESTS_LOGGER = "spillover.requests"
"""One line for each request of a client that has ended, at level INFO."""

TEXT_FORMAT = "%(asctime)s %(levelname)s %(message)s"

CHUNK_BYTES = 4096
"""A pipe that says it can be written takes this much at once (PIPE_BUF), without blocking."""


def about(request: Request) -> dict[str, object]:
    """`extra` of a log record that concerns this request."""
    return {"request_id": request.id, "traceparent": request.traceparent}


class OncePerPeriod(logging.Filter):
    """Lets one record of each message through a second, and says in the next one of that message
    how many it held back. Messages are told apart before their arguments are filled in: there are
    as many as there are lines of code that log.
    """

    def __init__(self) -> None:
        super().__init__()
        self._next_s: dict[str, float] = {}
        self._held_back: dict[str, int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        message = str(record.msg)
        now_s = time.monotonic()
        if now_s < self._next_s.get(message, 0.0):
            self._held_back[message] = self._held_back.get(message, 0) + 1
            return False
        self._next_s[message] = now_s + PERIOD_S
        held_back = self._held_back.pop(message, 0)
        if held_back:
            record.msg = f"{message} (and {held_back} more since the last such line)"
        return True


class JsonLines(logging.Formatter):
    """One JSON object a line: at, level, logger, message, cluster; request_id and traceparent if
    the record has them (`extra`), exception as one string if there was one."""

    def __init__(self, cluster: str) -> None:
        super().__init__()
        self._cluster = cluster

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields = {
            "at": at.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "cluster": self._cluster,
        }
        for name in ("request_id", "traceparent"):
            value = getattr(record, name, None)
            if value is not None:
                fields[name] = str(value)
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields)


class HarmlessHandler(logging.Handler):
    """Writes lines to a file descriptor, and drops those that it cannot write now: the disk is
    full, or nobody reads the pipe. The next line that goes through says how many were lost.

    Nothing is buffered, so that nothing is left to fail when the process ends.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self.lost = 0
        self._descriptor = descriptor
        self._torn = False

    def emit(self, record: logging.LogRecord) -> None:
        try:
            lines = self.format(record) + "\n"
            if self.lost:
                lines = self._of_loss() + "\n" + lines
            if self._write(lines.encode("utf-8", "backslashreplace")):
                self.lost = 0
            else:
                self.lost += 1
        except Exception:  # noqa: BLE001 - arguments that do not fit, a file that was closed
            self.lost += 1

    def _of_loss(self) -> str:
        message = f"{self.lost} log lines could not be written"
        return self.format(
            logging.LogRecord(__name__, logging.WARNING, __file__, 0, message, None, None)
        )

    def _write(self, data: bytes) -> bool:
        """Whether all of it went out. After a part of a line the next one begins on its own."""
        if self._torn:
            data = b"\n" + data
        while data:
            written = self._write_some(data[:CHUNK_BYTES])
            if not written:
                return False
            data = data[written:]
            self._torn = bool(data)
        return True

    def _write_some(self, data: bytes) -> int:
        try:
            _, writable, _ = select.select([], [self._descriptor], [], 0)
            return os.write(self._descriptor, data) if writable else 0
        except OSError:
            return 0


def configure_logs(cluster: str, *, as_json: bool, log_requests: bool) -> None:
    """Send the logs of this process to standard error, if that is a file that one can write to."""
    requests = logging.INFO if log_requests else logging.WARNING
    logging.getLogger(REQUESTS_LOGGER).setLevel(requests)
    handler: logging.Handler = logging.NullHandler()
    with suppress(AttributeError, OSError):  # None if it was closed before Python began
        handler = HarmlessHandler(sys.stderr.fileno())
    handler.setFormatter(JsonLines(cluster) if as_json else logging.Formatter(TEXT_FORMAT))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
