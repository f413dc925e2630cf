"""One line in the log for each request of a client that has ended, for those who ask for it."""

from __future__ import annotations

import logging

from spillover.core.names import Entry
from spillover.live.logs import REQUESTS_LOGGER
from spillover.model.request import Answer

_log = logging.getLogger(REQUESTS_LOGGER)


def log_request(entry: Entry, answer: Answer) -> None:
    """Costs next to nothing unless the logger is set to INFO."""
    if not _log.isEnabledFor(logging.INFO):
        return
    _log.info(
        "request %s %s at %s after %.1f ms, %d hops, type %s, priority %d",
        entry.name,
        answer.outcome.value,
        answer.path[-1],
        answer.total_s * 1e3,
        len(answer.path) - 1,
        entry.type,
        entry.priority,
        extra={"request_id": entry.name, "traceparent": entry.traceparent},
    )
