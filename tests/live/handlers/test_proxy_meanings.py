"""What heads of passed requests and answers mean to the door and to a connection: how long a body
is, what follows it, what a hop drops of them and what it adds. Worked out by hand from RFC 9110 and
RFC 9112."""

import pytest

from spillover.live.handlers.proxy.onward import (
    Ingress,
    check_tunnel,
    has_passed,
    onward,
    passed_head,
)
from spillover.live.handlers.proxy.sent_heads import OwnRequest
from spillover.live.http1.framing import ByLength, Chunked, ToTheEnd
from spillover.live.http1.heads import (
    CHUNKED,
    read_answer,
    read_request,
)
from spillover.live.http1.rules import LENGTH_DIGITS_MAX, Malformed

WAY = Ingress("192.0.2.1", "http", "a-1.spillover")
HOP = (
    (b"Forwarded", b'for=192.0.2.1;proto=http;host="h"'),
    (b"X-Forwarded-For", b"192.0.2.1"),
    (b"Via", b"1.1 a-1.spillover"),
    (b"X-Forwarded-Proto", b"http"),
    (b"X-Forwarded-Host", b"h"),
)
"""What is added to a request to the host h of which nobody has told anything."""

LENGTH = b"Content-Length: 5"
CODING = b"Transfer-Encoding: chunked"


def asked(*lines, start=b"GET / HTTP/1.1", host=b"Host: h"):
    """The head of a request."""
    told = (start, host, *lines) if host else (start, *lines)
    head = read_request(b"".join(b"%b\r\n" % line for line in told))
    check_tunnel(head)
    return head


def said(*lines, start=b"HTTP/1.1 200 OK", method="GET"):
    """The head of an answer."""
    return read_answer(b"".join(b"%b\r\n" % line for line in (start, *lines)), method)


# --- requests -------------------------------------------------------------------------------------

OLD = {"start": b"GET / HTTP/1.0"}


@pytest.mark.parametrize(
    ("lines", "told", "keeps"),
    [
        ((), {}, True),
        ((b"Connection: close",), {}, False),
        ((b"Connection: X-Close", b"connection: a , Close"), {}, False),
        ((b"Connection: X-Close",), {}, True),
        ((), OLD, False),
        ((b"Connection: keep-alive",), OLD, True),
        ((b"Connection: Keep-Alive, close",), OLD, False),
    ],
)
def test_what_follows_on_the_connection(lines, told, keeps):
    assert asked(*lines, **told).keep_alive == keeps


@pytest.mark.parametrize(
    ("lines", "told", "size", "tells", "awaits"),
    [
        ((), {}, 0, False, False),
        ((LENGTH,), {}, 5, True, False),
        ((b"Content-Length: 0",), {}, 0, True, False),
        ((b"Content-Length: 1", b"Expect: 100-continue"), {}, 1, True, True),
        ((CODING,), {}, CHUNKED, True, False),
        ((CODING, b"Expect: 100-Continue"), {}, CHUNKED, True, True),
        ((b"Content-Length: 0", b"Expect: 100-continue"), {}, 0, True, False),
        ((b"Expect: 100-continue",), {}, 0, False, False),
        ((LENGTH, b"Expect:"), {}, 5, True, False),
        ((LENGTH, b"Expect: 100-continue"), OLD, 5, True, False),
        (
            (b"Content-Length: " + b"9" * LENGTH_DIGITS_MAX,),
            {},
            10**LENGTH_DIGITS_MAX - 1,
            True,
            False,
        ),
    ],
)
def test_how_long_a_body_is_and_whether_it_is_to_be_asked_for(lines, told, size, tells, awaits):
    head = asked(*lines, **told)
    assert (head.size_bytes, head.tells_size, head.awaits_continue) == (size, tells, awaits)
    body = head.body()
    assert type(body) is (Chunked if size == CHUNKED else ByLength)
    assert body.done == (size == 0)


@pytest.mark.parametrize(
    ("lines", "takes"),
    [
        ((), False),
        ((b"TE: trailers",), True),
        ((b"te: gzip, Trailers",), True),
        ((b"TE: gzip",), False),
        ((b"TE: gzip", b"TE: trailers"), True),
        ((b"X: trailers",), False),
    ],
)
def test_who_reads_trailers_says_so(lines, takes):
    head = asked(*lines)
    assert head.takes_trailers == takes
    assert ((b"TE", b"trailers") in onward(head, WAY, 0)) == takes


@pytest.mark.parametrize(
    ("start", "hosts", "target", "host"),
    [
        (b"GET /a?b HTTP/1.1", b"Host: h:1", b"/a?b", b"h:1"),
        (b"GET /a HTTP/1.0", b"", b"/a", b""),
        (b"GET http://i:8/a HTTP/1.0", b"", b"/a", b"i:8"),
        (b"GET http://H/a HTTP/1.1", b"Host: h", b"/a", b"h"),
        (b"GET https://h HTTP/1.1", b"Host: h", b"/", b"h"),
        (b"GET http://h?b HTTP/1.1", b"Host: h", b"/?b", b"h"),
        (b"GET http://h:80/a HTTP/1.1", b"Host: h", b"/a", b"h:80"),
        (b"GET http://i/a HTTP/1.1", b"Host: h", b"/a", b"i"),
        (b"GET http://i/a HTTP/1.1", b"Host:", b"/a", b"i"),
        (b"GET /a HTTP/1.1", b"Host:", b"/a", b""),
        (b"OPTIONS http://h HTTP/1.1", b"Host: h", b"*", b"h"),
        (b"OPTIONS http://h/ HTTP/1.1", b"Host: h", b"/", b"h"),
        (b"OPTIONS * HTTP/1.1", b"Host: h", b"*", b"h"),
        (b"GET /http://i/ HTTP/1.1", b"Host: [::1]:80", b"/http://i/", b"[::1]:80"),
    ],
)
def test_what_is_asked_for_and_of_whom(start, hosts, target, host):
    head = asked(start=start, host=hosts)
    assert (head.target, head.host) == (target, host)
    if hosts:  # what is passed on says the same, or nothing
        assert [value for name, value in head.fields if name == b"Host"] == [host] * bool(host)
        assert [name.lower() for name, _ in head.fields] == list(head.names)


@pytest.mark.parametrize(
    "lines",
    [
        (b"Connection: upgrade",),
        (b"Connection: upgrade", b"Upgrade: H2C"),
        (b"Connection: Upgrade", b"Upgrade: TLS/1.2"),
        (b"Upgrade: TLS/1.0, TLS/1.1,\tTLS/1.2", b"Connection: keep-alive, Upgrade"),
        (b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2,h2c", b"HTTP2-Settings: AAM"),
        (b"Connection: Upgrade", b"Upgrade: HTTP/2.0", b"Upgrade: x/websocket"),
        (b"Upgrade: websocket",),
        (b"X_Mine: a", b"Server_Timing_: a"),
        (b"My_Spillover-Type: a",),
    ],
)
def test_what_asks_for_nothing_that_a_door_cannot_give_is_let_in(lines):
    assert asked(*lines).fields[0] == (b"Host", b"h")


@pytest.mark.parametrize(
    ("status", "lines", "told"),
    [
        (400, (), {"host": b"", "start": b"GET http:/// HTTP/1.0"}),
        (400, (b"Host: h",), OLD),
        (400, (b"Spillover_Anything: a",), {}),
        (400, (b"Server_Timing: a",), {}),
        (400, (b"Content-Length: " + b"1" * (LENGTH_DIGITS_MAX + 1),), {}),
        (417, (b"Expect: 100-continue", b"Expect: x"), {}),
        (501, (b"Connection: a, UPGRADE", b"Upgrade: SPDY/3.1", b"Upgrade: WebSocket/13"), {}),
    ],
)
def test_what_is_refused_is_told_with_its_status_and_in_words(status, lines, told):
    with pytest.raises(Malformed) as caught:
        asked(*lines, **told)
    assert caught.value.status == status
    assert caught.value.args == (str(caught.value),)
    assert "expected" in str(caught.value) or "is not passed" in str(caught.value)


@pytest.mark.parametrize(
    ("lines", "kept"),
    [
        ((), ()),
        ((b"A: b",), ((b"A", b"b"),)),
        ((b"Expect: 100-continue", b"Spillover-Type: x", b"Upgrade: x", b"A: b"), ((b"A", b"b"),)),
        ((b"X-Mine: a", b"Connection: x-mine", b"X-Mine-Too: a"), ((b"X-Mine-Too", b"a"),)),
        ((b"Connection: Content-Type", b"Content-Type: a"), ((b"Content-Type", b"a"),)),
        ((CODING, b"A: b"), ((b"A", b"b"), (b"Content-Length", b"7"))),
        ((LENGTH,), ((b"Content-Length", b"5"),)),
    ],
)
def test_what_goes_on_of_a_head_and_what_is_added(lines, kept):
    assert onward(asked(*lines), WAY, 7) == ((b"Host", b"h"), *kept, *HOP)


FOR = b"X-Forwarded-For", b"192.0.2.1"
PROTO, HOST = (b"X-Forwarded-Proto", b"https"), (b"X-Forwarded-Host", b"i")
ELEMENT = b'for=192.0.2.1;proto=http;host="h"'
VIA = b"Via", b"1.1 a-1.spillover"


@pytest.mark.parametrize(
    ("came", "told"),
    [
        # One family came: it is told on, and nothing contradicts it.
        (
            [(b"x-forwarded-for", b"1.2.3.4"), PROTO, HOST],
            [PROTO, HOST, (b"X-Forwarded-For", b"1.2.3.4, 192.0.2.1"), VIA],
        ),
        ([PROTO], [PROTO, FOR, VIA]),
        ([(b"X-Forwarded-For", b"1.2.3.4")], [(b"X-Forwarded-For", b"1.2.3.4, 192.0.2.1"), VIA]),
        ([(b"X-Forwarded-Port", b"443")], [(b"X-Forwarded-Port", b"443"), FOR, VIA]),
        ([PROTO, (b"X-Forwarded-For", b"")], [PROTO, FOR, VIA]),
        (
            [(b"Forwarded", b"for=1.2.3.4;proto=https"), (b"forwarded", b"for=b")],
            [(b"Forwarded", b"for=1.2.3.4;proto=https, for=b, " + ELEMENT), VIA],
        ),
        # Both came: both are.
        (
            [(b"Forwarded", b"proto=https"), PROTO],
            [PROTO, (b"Forwarded", b"proto=https, " + ELEMENT), FOR, VIA],
        ),
        # None: both tell of this hop.
        ([(b"Via", b"1.0 x"), (b"via", b"1.1 y")], [*HOP[:2],
         (b"Via", b"1.0 x, 1.1 y, 1.1 a-1.spillover"), *HOP[3:]]),
    ],
)  # fmt: skip
def test_of_the_way_is_told_on_what_came_and_nothing_that_contradicts_it(came, told):
    lines = [b"%b: %b" % field for field in came]
    assert onward(asked(*lines), WAY, 0) == ((b"Host", b"h"), *told)


def test_what_somebody_tells_who_is_not_trusted_is_not_told_on():
    lies = [
        *(b"X-Forwarded-For: 1.2.3.4", b"X-Forwarded-Proto: https", b"X-Forwarded-User: root"),
        *(b"Forwarded: for=1.2.3.4", b"X-Real-IP: 1.2.3.4"),
    ]
    way = Ingress("192.0.2.1", "http", "a-1.spillover", is_trusted=False)
    assert onward(asked(*lies, b"A: b"), way, 0) == ((b"Host", b"h"), (b"A", b"b"), *HOP)
    for lie in lies:  # nor does it go as it is
        assert not OwnRequest(asked(lie), way, b"").goes_as_it_is


def test_of_an_old_client_the_host_is_told_if_it_is_known():
    head = asked(b"A: b", start=b"GET http://i/ HTTP/1.0", host=b"")
    assert onward(head, WAY, 0) == (
        (b"Host", b"i"),
        (b"A", b"b"),
        (b"Forwarded", b'for=192.0.2.1;proto=http;host="i"'),
        (b"X-Forwarded-For", b"192.0.2.1"),
        (b"Via", b"1.0 a-1.spillover"),
        (b"X-Forwarded-Proto", b"http"),
        (b"X-Forwarded-Host", b"i"),
    )
    assert onward(asked(b"A: b", start=b"GET / HTTP/1.0", host=b""), WAY, 0) == (
        (b"A", b"b"),
        (b"Forwarded", b"for=192.0.2.1;proto=http"),
        (b"X-Forwarded-For", b"192.0.2.1"),
        (b"Via", b"1.0 a-1.spillover"),
        (b"X-Forwarded-Proto", b"http"),
    )


def test_a_hop_without_a_name_is_no_loop():
    for via in (b"a-1.spillover", b"1.1", b"", b", ,"):
        assert not has_passed(((b"Via", via),), "a-1.spillover")
    assert has_passed(
        ((b"A", b"b"), (b"VIA", b"1.1 x"), (b"via", b"2 a-1.spillover")), "a-1.spillover"
    )


# --- answers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "status"),
    [(b"HTTP/1.1 100 ", 100), (b"HTTP/1.1 103 Hints", 103), (b"HTTP/1.0 199 x", 199)],
)
def test_an_interim_answer_has_no_body_and_ends_nothing(start, status):
    lines = LENGTH, b"Link: a", b"Connection: close, X", b"X: y", b"Spillover-Path: z"
    answer = said(*lines, start=start)
    told = passed_head(answer).headers
    assert (answer.status, told, answer.body.done, answer.keep_alive) == (
        status, ((b"Link", b"a"),), True, True
    )  # fmt: skip


@pytest.mark.parametrize(
    ("start", "status", "reason"),
    [
        (b"HTTP/1.1 200 OK", 200, b"OK"),
        (b"HTTP/1.1 200", 200, b""),
        (b"HTTP/1.1 200 ", 200, b""),
        (b"HTTP/1.0 999 two words", 999, b"two words"),
    ],
)
def test_how_an_answer_begins(start, status, reason):
    head = passed_head(said(LENGTH, start=start))
    assert (head.status, head.reason, head.headers) == (
        status,
        reason,
        ((b"Content-Length", b"5"),),
    )


@pytest.mark.parametrize(
    ("lines", "told", "body", "size", "keeps"),
    [
        ((LENGTH,), {}, ByLength, 5, True),
        ((b"Content-Length: 0",), {}, ByLength, 0, True),
        ((LENGTH, LENGTH), {}, ByLength, 5, True),
        ((LENGTH, b"Connection: x, close"), {}, ByLength, 5, False),
        ((LENGTH, b"Connection: x"), {}, ByLength, 5, True),
        ((LENGTH,), {"start": b"HTTP/1.0 200 OK"}, ByLength, 5, False),
        ((b"Transfer-Encoding: Chunked",), {}, Chunked, None, True),
        ((CODING, b"Connection: close"), {}, Chunked, None, False),
        ((), {}, ToTheEnd, None, False),
        ((), {"start": b"HTTP/1.0 200 OK"}, ToTheEnd, None, False),
        ((), {"start": b"HTTP/1.1 205 Reset"}, ToTheEnd, None, False),
        ((), {"start": b"HTTP/1.1 204 No"}, ByLength, 0, True),
        ((LENGTH,), {"start": b"HTTP/1.1 304 Same"}, ByLength, 0, True),
        ((CODING,), {"start": b"HTTP/1.1 304 Same"}, ByLength, 0, True),
        ((LENGTH,), {"method": "HEAD"}, ByLength, 0, True),
        ((), {"method": "HEAD"}, ByLength, 0, True),
        ((CODING, b"Connection: close"), {"method": "HEAD"}, ByLength, 0, False),
        ((b"Content-Length: " + b"1" * LENGTH_DIGITS_MAX,), {}, ByLength, int("1" * 15), True),
    ],
)
def test_where_an_answer_ends_and_what_follows_it(lines, told, body, size, keeps):
    answer = said(*lines, **told)
    assert type(answer.body) is body
    assert answer.body.done == (size == 0)
    if size is not None:
        assert answer.body.left_bytes == size
    assert answer.keep_alive == keeps


@pytest.mark.parametrize(
    ("lines", "kept"),
    [
        ((LENGTH, b"A: b"), ((b"Content-Length", b"5"), (b"A", b"b"))),
        ((LENGTH, b"A: b", LENGTH), ((b"Content-Length", b"5"), (b"A", b"b"))),
        ((CODING, b"A: b"), ((b"A", b"b"),)),
        ((b"Trailer: X", CODING, b"A: b"), ((b"A", b"b"), (b"Trailer", b"X"))),
        ((b"Trailer: X", LENGTH), ((b"Content-Length", b"5"),)),
        ((b"Keep-Alive: 5", b"A: b", b"Proxy-Authenticate: x"), ((b"A", b"b"),)),
        ((b"X-Mine: a", b"Connection: X-Mine", b"A: b"), ((b"A", b"b"),)),
        ((b"Set-Cookie: a", b"Connection: Set-Cookie"), ((b"Set-Cookie", b"a"),)),
        ((b"Spillover-Path: a", b"A: b"), ((b"A", b"b"),)),
        ((b"spillover-request-id: a", b"Spillover-Other: b"), ((b"Spillover-Other", b"b"),)),
        (
            (b"Connection: Spillover-Other", b"Spillover-Other: b"),
            ((b"Spillover-Other", b"b"),),
        ),
    ],
)
def test_what_goes_on_of_the_head_of_an_answer(lines, kept):
    assert passed_head(said(*lines)).headers == kept


@pytest.mark.parametrize(
    ("start", "lines"),
    [
        (b"HTTP/2 200 OK", ()),
        (b"HTTP/1.1 099 No", ()),
        (b"HTTP/1.1 2000 No", ()),
        (b"HTTP/1.1 101 Switching", (b"Upgrade: x",)),
        (b"HTTP/1.1 200 OK", (LENGTH, b"Content-Length: 6")),
        (b"HTTP/1.1 200 OK", (b"Content-Length: 5, 05",)),
        (b"HTTP/1.1 200 OK", (b"Content-Length: 5,",)),
        (b"HTTP/1.1 200 OK", (b"Content-Length: +5",)),
        (b"HTTP/1.1 200 OK", (b"Content-Length: " + b"1" * 16,)),
        (b"HTTP/1.1 204 No", (b"Content-Length: x",)),
        (b"HTTP/1.1 200 OK", (LENGTH, CODING)),
        (b"HTTP/1.0 200 OK", (CODING, LENGTH)),
        (b"HTTP/1.1 200 OK", (CODING, CODING)),
        (b"HTTP/1.1 200 OK", (b"Transfer-Encoding: gzip",)),
        (b"HTTP/1.1 200 OK", (b"Transfer-Encoding: gzip, chunked",)),
    ],
)
def test_an_answer_that_clients_might_read_differently_is_none(start, lines):
    with pytest.raises(Malformed):
        said(*lines, start=start)
