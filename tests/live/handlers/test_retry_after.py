"""A Retry-After as it is written. What follows from it: `test_failing_upstreams`."""

import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from spillover.live.handlers.http.upstream_answers import read_retry_after_s

NOW = datetime.now(UTC)


def http_date(in_s):
    return format_datetime(NOW + timedelta(seconds=in_s), usegmt=True)


RETRY_AFTER = {
    "seconds": ("5", (5, 5)),
    "date": (http_date(3600), (3500, 3600)),
    "old form of a date": (
        (NOW + timedelta(hours=1)).strftime("%A, %d-%b-%y %H:%M:%S GMT"),
        (3500, 3600),
    ),
    "asctime": ((NOW + timedelta(hours=1)).strftime("%c"), (3500, 3600)),
    "0": ("0", None),
    "negative": ("-5", None),
    "past": (http_date(-5), None),
    "absurd": ("9" * 400, (86400, 86400)),
    "absurd date": ("Fri, 31 Dec 9999 23:59:59 GMT", (86400, 86400)),
    "no date": ("Fri, 99 Dec 99999 99:59:59 GMT", None),
    "fraction": ("1.5", None),
    "garbage": ("soon \xff\xb2", None),
    "nothing": ("", None),
}


@pytest.mark.parametrize("case", RETRY_AFTER)
@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo"])
def test_retry_after_as_it_is_written(case, zone, monkeypatch):
    """Seconds or a date in UTC wherever the node is, at most a day; all else says nothing."""
    written, between = RETRY_AFTER[case]
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        read = read_retry_after_s(written.encode("latin-1"), NOW.timestamp())
    finally:
        monkeypatch.undo()
        time.tzset()
    assert (read is None) == (between is None)
    assert between is None or between[0] <= read <= between[1]
