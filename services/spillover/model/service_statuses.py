"""What the statuses of a service say of its site, and how it may be asked."""

from __future__ import annotations

import re

NO_FAILURES = (501, 505)
"""Statuses from 500 on by which a service says what it does not do: no failure of its site, unless
a cluster says otherwise (RFC 9110, sections 15.6.2 and 15.6.6)."""

PROBE = re.compile(r"(GET|HEAD|OPTIONS) (/[!-~]*)")
"""What a cluster may ask its service by itself: what changes nothing there (RFC 9110, 9.2.1)."""


def is_failure(status: int | None, statuses: tuple[int, ...] | None) -> bool:
    """Returns whether a status is held against a cluster that lists these `failure_statuses`."""
    if status is None or status < 400:
        return True
    if statuses is None:
        return status >= 500 and status not in NO_FAILURES
    return status in statuses
