"""The preferences of a client on waiting: `Prefer` (RFC 7240) and `?wait_ms=`.

A preference that is not understood counts as not sent; a parameter that is wrong is refused. Waits
are cut to WAIT_MAX_S: a client that waits longer asks again.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple
from urllib.parse import parse_qs

from spillover.apps.http.problems import Problem

WAIT_MAX_S = 60
WAIT_MS_MAX = WAIT_MAX_S * 1000

MILLISECONDS = re.compile(rb"[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
"""The numbers as JSON writes them. float() takes more than these, such as 5_000."""

PARAMETERS_MAX = 100

_PREFERENCES = re.compile(rb'(?:[^",]|"(?:[^"\\]|\\.)*"?)+')
"""The items of a list; commas within quotes do not separate."""

_SECONDS_DIGITS_MAX = 9


class Preferences(NamedTuple):
    """The parts of `Prefer` that have a meaning here."""

    respond_async: bool = False
    wait_s: int | None = None


def read_preferences(value: bytes) -> Preferences:
    """Returns the preferences in a header's value; of several alike, the first counts."""
    found: dict[bytes, bytes] = {}
    for preference in _PREFERENCES.findall(value):
        name, _, given = preference.partition(b";")[0].partition(b"=")
        given = given.strip()
        if len(given) >= 2 and given[:1] == given[-1:] == b'"':
            given = given[1:-1]
        found.setdefault(name.strip().lower(), given)
    return Preferences(found.get(b"respond-async") == b"", _seconds(found.get(b"wait", b"")))


def read_wait_ms(query: bytes) -> float | None:
    """Returns `wait_ms` of a query, None without it. Raises Problem `invalid`."""
    if b"wait_ms" not in query and b"%" not in query:
        return None
    text = query.decode("latin-1")
    try:
        fields = parse_qs(text, keep_blank_values=True, max_num_fields=PARAMETERS_MAX)
    except ValueError as error:
        raise Problem("invalid", f"query: expected at most {PARAMETERS_MAX} parameters") from error
    values = fields.get("wait_ms")
    if values is None:
        return None
    given = values[0].encode() if len(values) == 1 else b""
    wait_ms = float(given) if MILLISECONDS.fullmatch(given) else math.inf
    if wait_ms == math.inf:
        raise Problem("invalid", "wait_ms: expected one number of milliseconds, 0 or more")
    return min(wait_ms, float(WAIT_MS_MAX))


def _seconds(given: bytes) -> int | None:
    if not given.isdigit():
        return None
    given = given.lstrip(b"0") or b"0"
    return min(int(given), WAIT_MAX_S) if len(given) <= _SECONDS_DIGITS_MAX else WAIT_MAX_S


def waited_line(preferences: Preferences) -> bytes:
    """Returns the line by which an answer that came in time says that the preference was
    followed."""
    if not (preferences.respond_async and preferences.wait_s):
        return b""
    return b"preference-applied: wait=%d\r\n" % preferences.wait_s
