"""The meaning of the statuses of a service for its site, and the request that asks it."""

from __future__ import annotations

import re

NO_FAILURES = (501, 505)
"""Statuses from 500 on that say what a service does not do: they are no failure of its site, unless
a cluster says otherwise (RFC 9110, sections 15.6.2 and 15.6.6)."""

PROBE = re.compile(r"(GET|HEAD|OPTIONS) (/[!-~]*)")
"""The form of a request that a cluster may make by itself: it changes nothing there (RFC 9110,
9.2.1)."""


def is_failure(status: int | None, statuses: tuple[int, ...] | None) -> bool:
    """Returns whether a status is held against a cluster that lists these `failure_statuses`."""
    if status is None or status < 400:
        return True
    if statuses is None:
        return status >= 500 and status not in NO_FAILURES
    return status in statuses
