"""What is kept of heads that have come before, and that it is made use of: which heads, how long
they may be, how they are written again. That nothing is told from what is read and written anew is
in `test_proxy_known`."""

from __future__ import annotations

import pytest

from spillover.live.handlers.proxy.framing import FIELDS_MAX, HeadBytes
from spillover.live.handlers.proxy.heads import Refused, Way, read_answer, read_request
from spillover.live.handlers.proxy.known import (
    Cut,
    KnownAnswers,
    KnownRequests,
    WrittenHeads,
    cut,
)
from spillover.live.handlers.proxy.sent_heads import (
    FIELD_BYTES,
    ForeignRequest,
    OwnRequest,
    own_head,
    upstream_head,
)
from spillover.live.http.known_heads import HEAD_BYTES_MAX, Known
from spillover.model.passed import PassedHead, PassedRequest, decode_lines, take_apart

WAY = Way("10.0.0.1", "http", "a-1.spillover")
OTHER_WAY = Way("10.0.0.2", "http", "a-1.spillover")
ADDED = ((b"Spillover-Request-Id", b"a-1"),)
TOLD = b"Spillover-Request-Id: a-1\r\n"


def asking(*lines, start=b"POST /a?b HTTP/1.1", host=b"Host: h", body=b""):
    told = (start, host, *lines) if host else (start, *lines)
    return b"".join(b"%b\r\n" % line for line in told) + b"\r\n" + body


def sized(body, *lines):
    return asking(b"Content-Length: %d" % len(body), *lines, body=body)


def read(data):
    lines, rest = HeadBytes().feed(data)
    return read_request(lines), rest


def own(data, way=WAY, known=None):
    """The request that this is, with what is known of its head."""
    head, body = read(data)
    return OwnRequest(head, way, body, known)


def learn(known, data):
    return known.learn_from(data, read(data)[0])


# --- which are kept -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        asking() + b"x",
        asking() + asking(),
        sized(b"hello", b"Expect: 100-continue"),
        asking(b"Expect: 100-continue"),
        asking(b"Content-Length: 05", body=b"hello"),
        asking(b"CONTENT-LENGTH: 5", body=b"hello"),
        sized(b"hello") + b"x",
        sized(b"hello")[:-1],
        asking(b"Transfer-Encoding: chunked", body=b"0\r\n\r\n"),
    ],
)
def test_what_is_no_whole_request_by_itself_is_not_kept(data):
    known = KnownRequests()
    assert learn(known, data) is None
    assert known.find(data) is None
    assert not known.meanings


@pytest.mark.parametrize(("more", "is_kept"), [(0, True), (1, False)])
def test_a_head_that_is_kept_is_so_long_and_no_longer(more, is_kept):
    """With the empty line that ends it, and without the digits of its length."""
    known = KnownRequests()
    room = HEAD_BYTES_MAX + more - len(asking(b"X: "))
    data = asking(b"X: " + b"y" * room)
    learn(known, data)
    assert (known.find(data) is not None) == is_kept
    head = PassedHead(200, b"OK", ())
    written = WrittenHeads()
    written.learn(head, Cut(b"x" * 48, b"y" * (HEAD_BYTES_MAX + more - 48)))
    assert (written.find(head) is not None) == is_kept


def test_what_is_kept_is_found_again_whatever_its_length():
    known = KnownRequests()
    for data in (asking(), sized(b"hello")):
        entry = learn(known, data)
        assert known.find(data)[0] is entry
    found, head, body = known.find(sized(b"x" * 1_000))
    assert (found, body) == (entry, b"x" * 1_000)
    assert head == read(sized(body))[0]
    assert head.length_bytes == len(sized(body)) - len(body) - 2
    assert found.of_length(b"1000") is head, "as it came last"


def learn_answer(known, data):
    lines, rest = HeadBytes().feed(data)
    answer = read_answer(lines, "GET")
    known.learn_from(data, answer, answer.body.feed(rest) if rest else b"")


@pytest.mark.parametrize(
    ("told", "is_kept"),
    [
        (b"Content-Length: 2\r\n", True),
        (b"content-length: 2\r\n", True),
        (b"CONTENT-LENGTH: 2\r\n", False),
        (b"Content-Length:2\r\n", False),
        (b"Content-Length: 2\r\nContent-Length: 2\r\n", False),
        (b"Content-Length: 2\r\nset-cookie: a\r\n", False),
        (b"Content-Length: 2\r\nX: " + b"y" * HEAD_BYTES_MAX + b"\r\n", False),
    ],
)
def test_which_answers_are_kept(told, is_kept):
    known = KnownAnswers()
    data = b"HTTP/1.1 200 OK\r\n%b\r\n{}" % told
    learn_answer(known, data)
    assert (known.find(data) is not None) == is_kept == bool(known.meanings)


def test_of_a_head_that_is_written_no_secret_is_kept():
    written = WrittenHeads()
    for field in ((b"Set-Cookie", b"a"), (b"authorization", b"b")):
        head = PassedHead(200, b"OK", ((b"A", b"b"), field))
        written.learn(head, Cut(b"a", b"b"))
        assert written.find(head) is None
    open_ = PassedHead(200, b"OK", ((b"A", b"b"),))
    written.learn(open_, Cut(b"a", b"b"))
    assert written.find(open_) == Cut(b"a", b"b")
    assert written.find(PassedHead(200, b"OK", ((b"A", b"b"),))) is None, "another one"


# --- how they are written again -----------------------------------------------------------------

FIELDS = ((b"Host", b"h"), (b"Content-Length", b"5"), (b"A", b"b"))
START = b"POST / HTTP/1.1"
WRITTEN = START + b"\r\nHost: h\r\nContent-Length: 5\r\nA: b\r\nVia: x\r\n" + TOLD + b"\r\n"


def test_a_head_is_cut_around_its_length_and_before_what_was_added():
    found = cut(WRITTEN, START, FIELDS, 1, TOLD)
    assert found.whole(b"12", b"Z: 1\r\n") == (
        START + b"\r\nHost: h\r\nContent-Length: 12\r\nA: b\r\nVia: x\r\nZ: 1\r\n\r\n"
    )
    assert found.whole(b"5", TOLD) == WRITTEN
    assert cut(WRITTEN, START, FIELDS, None, TOLD).whole(b"", TOLD) == WRITTEN
    first = (b"Content-Length", b"5"), (b"A", b"b")
    written = START + b"\r\nContent-Length: 5\r\nA: b\r\n\r\n"
    assert cut(written, START, first, 0, b"").whole(b"5", b"") == written


@pytest.mark.parametrize(
    ("start", "fields", "at", "added"),
    [
        (START, FIELDS, 1, b"Other: a\r\n"),
        (START, FIELDS, None, b"Other: a\r\n"),
        (b"PUT / HTTP/1.1", FIELDS, 1, TOLD),
        (START, ((b"Host", b"i"), *FIELDS[1:]), 1, TOLD),
        (START, (FIELDS[0], (b"Content-Length", b"55")), 1, TOLD),
        (START, (FIELDS[0], (b"Content-Length", b"")), 1, TOLD),
        (START, (FIELDS[0], (b"content-length", b"5")), 1, TOLD),
        (START, FIELDS, 2, b"Via: x\r\n"),
    ],
)
def test_a_head_that_was_written_otherwise_is_not_cut(start, fields, at, added):
    assert cut(WRITTEN, start, fields, at, added) is None


@pytest.mark.parametrize("data", [asking(), sized(b"hello"), sized(b"hello", b"Via: 1.1 x")])
def test_what_was_written_for_a_service_is_written_again_for_the_same_way(data):
    known = KnownRequests()
    entry = learn(known, data)
    request = own(data, known=entry)
    head = request.head
    is_as_it_is = request.goes_as_it_is
    assert is_as_it_is == (b"Via" not in data)
    assert not entry.is_sent
    assert entry.sent(head, WAY, TOLD) is None
    written = own_head(request, b"u:1", ADDED)
    assert entry.is_sent == is_as_it_is
    if is_as_it_is:
        assert entry.sent(head, WAY, TOLD) == written == upstream_head(request.passed(), b"", ADDED)
        assert entry.sent(head, WAY, b"A: 1\r\n").endswith(b"A: 1\r\n\r\n")
        assert entry.sent(head, OTHER_WAY, TOLD) is None
        assert own_head(own(data, OTHER_WAY, entry), b"u:1", ADDED) != written
        assert entry.sent(head, WAY, TOLD) is None, "another one has asked last"


@pytest.mark.parametrize("data", [asking(), sized(b"hello"), sized(b"hello", b"Via: 1.1 x")])
def test_what_was_written_for_a_neighbor_is_written_again_for_the_same_way(data):
    known = KnownRequests()
    entry = learn(known, data)
    assert entry.travels(WAY) is None
    work = own(data, known=entry).encode()
    lines, body = take_apart(work)
    assert entry.travels(WAY) == lines
    assert entry.travels(OTHER_WAY) is None
    assert body == read(data)[1]
    lengths = [value for name, value in decode_lines(lines).headers if name == b"Content-Length"]
    assert lengths == ([b""] if body else []), "it is that of the body"
    assert PassedRequest.decode(work) == own(data).passed()


def test_a_length_that_stands_otherwise_travels_as_it_came():
    data = asking(b"Content-Length: 05", body=b"hello")
    lines, _ = take_apart(own(data).encode())
    assert (b"Content-Length", b"05") in decode_lines(lines).headers


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ((b"Connection: keep-alive",), {}),
        ((b"Keep-Alive: 5",), {}),
        ((b"Expect: 100-continue",), {}),
        ((b"Via: 1.1 x",), {}),
        ((b"X-Forwarded-Proto: http",), {}),
        ((b"spillover-type: a",), {}),
        ((), {"start": b"GET / HTTP/1.0"}),
        ((), {"start": b"GET http://h/ HTTP/1.0", "host": b""}),
    ],
)
def test_what_has_to_be_changed_goes_as_it_is_never(lines, told):
    request = own(asking(*lines, **told))
    assert not request.goes_as_it_is
    assert own_head(request, b"h", ADDED) == upstream_head(request.passed(), b"h", ADDED)
    assert own(asking(b"A: b")).goes_as_it_is


def test_what_it_takes_to_hold_a_request():
    data = sized(b"hello", b"A: b")
    request = own(data)
    assert request.size_bytes == len(data) - 2 + 3 * FIELD_BYTES
    assert (request.method, request.path) == ("POST", "/a")


# --- a neighbor's -------------------------------------------------------------------------------


def foreign(headers, body, heads):
    return ForeignRequest(PassedRequest("POST", b"/a?b", headers, body).encode(), heads)


HOSTED = ((b"Host", b"h"), (b"A", b"b"))


@pytest.mark.parametrize(
    ("headers", "bodies"),
    [
        (HOSTED, [b"", b""]),
        ((*HOSTED, (b"Content-Length", b"")), [b"hello", b"", b"x" * 1_000]),
        (((b"content-length", b""), *HOSTED), [b"hello", b"hi"]),
    ],
)
def test_a_head_of_a_neighbor_is_kept_as_it_is_written(headers, bodies):
    heads = Known()
    for body in bodies:
        request = foreign(headers, body, heads)
        assert (request.method, request.path, bytes(request.body)) == ("POST", "/a", body)
        assert request.head_with(b"u", ADDED) == upstream_head(request.passed(), b"u", ADDED)
        (kept,) = heads.meanings.values()
        assert kept.tells_size == (len(headers) == 3)
        assert kept.cut.whole(b"%d" % len(body) if kept.tells_size else b"", TOLD) == (
            upstream_head(request.passed(), b"u", ADDED)
        )


@pytest.mark.parametrize(
    "headers",
    [
        ((b"A", b"b"),),
        ((b"Host", b"h"), (b"Content-Length", b"5")),
        ((b"Host", b"h"), (b"Content-Length", b""), (b"Cookie", b"a")),
    ],
)
def test_a_head_of_a_neighbor_that_holds_for_itself_alone_is_not_kept(headers):
    heads = Known()
    body = b"" if len(headers) == 1 else b"hello"
    assert foreign(headers, body, heads).head_with(b"u", ADDED)
    assert not heads.meanings


@pytest.mark.parametrize(
    ("headers", "body", "length"),
    [((*HOSTED, (b"Content-Length", b"")), b"hi", b"2"), (HOSTED, b"", b"")],
)
def test_what_is_known_is_written_from_what_is_kept(headers, body, length):
    """Not anew: whatever has been kept of it."""
    heads = Known()
    foreign(headers, body, heads).head_with(b"u", ADDED)
    ((told, kept),) = heads.meanings.items()
    heads.keep(told, kept._replace(cut=Cut(b"kept ", b" so\r\n")))
    written = foreign(headers, body, heads).head_with(b"u", ADDED)
    assert written == b"kept %b so\r\n%b\r\n" % (length, TOLD)


def test_a_head_to_a_service_has_so_many_lines_and_no_more():
    """With the host and what the node adds."""
    fields = (*HOSTED, *[(b"A", b"b")] * (FIELDS_MAX - 3))
    head = upstream_head(PassedRequest("GET", b"/", fields, b""), b"u", ADDED)
    assert head.count(b"\r\n") == FIELDS_MAX + 2
    with pytest.raises(Refused, match=f"at most {FIELDS_MAX} headers") as caught:
        upstream_head(PassedRequest("GET", b"/", (*fields, (b"A", b"b")), b""), b"u", ADDED)
    assert caught.value.status == 431


def test_a_service_is_named_before_all_else_where_nobody_did():
    fields = ((b"Content-Length", b"5"), (b"TE", b"trailers"))
    request = PassedRequest("POST", b"/", fields, b"hello")
    assert upstream_head(request, b"u:9", ADDED) == (
        b"POST / HTTP/1.1\r\nHost: u:9\r\nContent-Length: 5\r\nTE: trailers\r\n"
        b"%bConnection: TE\r\n\r\n" % TOLD
    )
