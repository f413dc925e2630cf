"""One line in the log for each request of a client that has ended, for those who ask for it."""

from __future__ import annotations

import logging
from functools import partial

from spillover.core.overflow.idempotency import IdempotencyRecord
from spillover.live.process.logs import REQUESTS_LOGGER, Message
from spillover.model.ids import told_inside
from spillover.model.request import Answer

_log = logging.getLogger(REQUESTS_LOGGER)

is_logged = partial(_log.isEnabledFor, logging.INFO)
"""Whether anybody asks for these lines: looked at for each request, so without a call of ours."""


def log_request(entry: IdempotencyRecord, answer: Answer) -> None:
    """Write the line, if it `is_logged`."""
    _log.info(
        Message(
            "request ended",
            request_id=told_inside(entry.id),
            outcome=answer.outcome.value,
            ended_at=answer.path[-1],
            hops=len(answer.path) - 1,
            system_time_ms=round(answer.total_s * 1e3, 3),
            type=entry.type,
            problem=answer.problem,
            traceparent=None if entry.trace is None else entry.trace.parent,
        )
    )
