"""What the answers of producers mean to their clients: objects, addresses, and reasons why not."""

import pytest

from spillover.live.http1.client import Response
from spillover.live.queue import client_wire as wire
from spillover.live.queue.client_wire import NoProducer
from spillover.model.errors import QueueFull, Refused, Rejected

URL = "http://p1:1"
OBJECT = {
    "content-type": "text/plain",
    "spillover-object": "p1-7",
    "spillover-grant": "g/1",
    "spillover-producer": "p1",
    "spillover-deliveries": "2",
    "spillover-probes": "3",
    "spillover-visibility-ms": "1500",
}
ADDRESS = {
    "location": "http://p2:1/base/objects/g%2F1",
    "spillover-producer": "p2",
    "spillover-grant": "g/1",
    "spillover-probes": "4",
}


def came(status, body=b"", headers=None):
    told = {name.encode(): value.encode() for name, value in (headers or {}).items()}
    return Response(status, told, body, 0.0, 0.0)


@pytest.mark.parametrize(
    ("read", "headers"), [(wire.read_object, OBJECT), (wire.read_address, ADDRESS)]
)
def test_whoever_leaves_something_out_is_no_producer(read, headers):
    numbers = [
        name for name in headers if name.rpartition("-")[2] in ("deliveries", "probes", "ms")
    ]
    for name in headers:
        if name != "content-type":
            with pytest.raises(NoProducer, match=r"^expected "):
                read(came(200, b"", {key: one for key, one in headers.items() if key != name}))
    for name in numbers:
        with pytest.raises(NoProducer, match=r"^expected "):
            read(came(200, b"", headers | {name: "many"}))
    with pytest.raises(NoProducer, match=r"^expected "):
        read(Response(200, {b"spillover-grant": b"\xff"}, b"", 0.0, 0.0))


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        *[(status, Rejected) for status in (400, 404, 413, 422, 499)],
        (429, QueueFull),
        *[(status, Refused) for status in (409, 503)],
        *[(status, None) for status in (200, 302, 399, 408, 500, 502, 504)],
    ],
)
def test_why_a_call_was_not_taken(status, kind):
    """What would never be taken is told apart from what may be another time, and from what may have
    been taken all the same."""
    body = b'{"reason":"r","detail":"two\\n words"}'
    error = wire.error_of(URL, came(status, body, {"retry-after": "3"}))
    assert type(error) is (kind or type(None))
    if error is not None:
        assert str(error) == f"{URL}: status {status} r two words"
        assert error.reason == "r"
    if isinstance(error, Refused):
        assert error.retry_after_s == 3.0
    assert wire.is_rejected(came(status)) == (kind is Rejected)


@pytest.mark.parametrize("body", [b"", b"<html>", b"{}", b'{"reason":7}', b"\xff"])
def test_who_gives_no_reason_has_none(body):
    error = wire.error_of(URL, came(503, body, {"retry-after": "soon"}))
    assert str(error) == f"{URL}: status 503 without a reason"
    assert error.retry_after_s is None


@pytest.mark.parametrize(
    ("told", "pause_s"),
    [("0", 0.0), ("99999999", 99_999_999.0), ("100000000", None), ("9" * 400, None), ("-1", None)],
)
def test_a_pause_that_no_producer_means_is_none(told, pause_s):
    """So many digits would be infinity: its consumer would never ask again."""
    error = wire.error_of(URL, came(503, b"{}", {"retry-after": told}))
    assert error.retry_after_s == pause_s


def test_a_grant_that_has_ended():
    """Another 404 is no word about it."""
    told = b'{"reason":"unknown_grant"}'
    assert wire.is_unknown_grant(came(404, told))
    assert not wire.is_unknown_grant(came(410, told))
    assert not wire.is_unknown_grant(came(404, b'{"reason":"not_found"}'))
    assert not wire.is_unknown_grant(came(404))
