"""Heads and bodies of passed requests and answers, without connections: what is refused, and what
the other end sees of the rest, in whatever pieces it comes."""

from __future__ import annotations

import pytest

from spillover.live.handlers.proxy import framing
from spillover.live.handlers.proxy.framing import Chunked, HeadBytes, Malformed, TooLong
from spillover.live.handlers.proxy.heads import (
    Refused,
    Way,
    has_passed,
    onward,
    read_answer,
    read_request,
    values,
)
from spillover.live.handlers.proxy.sent_heads import OwnRequest, own_head, upstream_head
from spillover.model.passed import PassedRequest
from support.passed_requests import REFUSED, SEEN, get, without_way

WAY = Way("192.0.2.1", "http", "a-1.spillover")
BY_INTAKE = (413, 422)
"""Statuses of what is refused later than by a head."""


def read(raw, step):
    """The head and the body of what comes in pieces of this size."""
    head_bytes = HeadBytes()
    head, body, whole = None, None, b""
    raw = raw.lstrip(b"\r\n")
    for start in range(0, len(raw), step):
        data = raw[start : start + step]
        if head is None:
            found = head_bytes.feed(data)
            if found is None:
                continue
            head = read_request(found[0])
            body, data = head.body(), found[1]
        if data:
            whole += body.feed(data)
    return head, body, whole


@pytest.mark.parametrize("step", [1_000_000, 7])
@pytest.mark.parametrize("name", [name for name in REFUSED if REFUSED[name][0] not in BY_INTAKE])
def test_what_is_refused(name, step):
    status, raw = REFUSED[name]
    with pytest.raises(Malformed) as caught:
        read(raw, step)
    error = caught.value
    if isinstance(error, Refused):
        assert error.status == status
    else:  # of a body, or a head that is not read on
        assert status == (431 if isinstance(error, TooLong) else 400)


@pytest.mark.parametrize("step", [1_000_000, 1, 3])
@pytest.mark.parametrize("name", SEEN)
def test_what_a_service_sees(name, step):
    raw, start, lines, body = SEEN[name]
    head, reader, whole = read(raw, step)
    assert reader.done
    assert whole == body
    request = PassedRequest(head.method, head.target, onward(head, WAY, len(whole)), whole)
    sent = upstream_head(request, b"upstream:80", ())
    assert sent.endswith(b"\r\n\r\n")
    first, *others = sent[:-4].split(b"\r\n")
    assert first == start
    assert without_way(others) == lines


@pytest.mark.parametrize("name", SEEN)
def test_what_goes_as_it_is_is_what_a_neighbor_would_send(name):
    """A client's request that runs at its home, and the same over a hop."""
    head, _, whole = read(SEEN[name][0], 1_000_000)
    own, added = OwnRequest(head, WAY, whole), ((b"A", b"b"),)
    over_a_hop = PassedRequest.decode(own.encode())
    assert own_head(own, b"upstream:80", added) == upstream_head(over_a_hop, b"upstream:80", added)
    assert own.size_bytes >= len(own.encode()) - len(WAY.lines) - 200


def test_most_go_as_they_are():
    head, _, whole = read(b"POST /v1 HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}", 1_000)
    assert OwnRequest(head, WAY, whole).goes_as_it_is


def test_lines_that_are_added_are_no_others():
    head, _, _ = read(get(), 1_000)
    with pytest.raises(ValueError, match="another one"):
        OwnRequest(head, WAY, b"").head_with(((b"A", b"b\r\nC: d"),))


def test_there_are_enough_of_them():
    assert len(REFUSED) + len(SEEN) >= 100


def test_an_address_of_ipv6_is_quoted():
    head, _, _ = read(get(), 1000)
    fields = onward(head, Way("2001:db8::2", "https", "a-1.spillover"), 0)
    assert values(fields, b"forwarded") == [b'for="[2001:db8::2]";proto=https;host="h"']
    assert values(fields, b"x-forwarded-for") == [b"2001:db8::2"]


@pytest.mark.parametrize(
    ("via", "found"),
    [
        (b"1.1 a-1.spillover", True),
        (b"1.1 fred, 1.1 A-1.Spillover (x)", True),
        (b"1.1 a-2.spillover", False),
        (b"1.1 fred (1.1 a-1.spillover)", False),
    ],
)
def test_a_loop_is_found_by_the_name_of_the_door(via, found):
    for pseudonym in ("a-1.spillover", "A-1.spillover"):  # clusters may have capitals
        assert has_passed(((b"Via", via),), pseudonym) is found


@pytest.mark.parametrize(
    "request_",
    [
        PassedRequest("GET", b"/ HTTP/1.1\r\nA: b\r\nB:", ((b"Host", b"h"),), b""),
        PassedRequest("GET", b"/", ((b"Host", b"h"), (b"A", b"b\r\nC: d")), b""),
        PassedRequest("GET", b"/", ((b"Host", b"h"), (b"A: b\r\nC", b"d")), b""),
        PassedRequest("GET\r\n", b"/", ((b"Host", b"h"),), b""),
        PassedRequest("GET", b"/", ((b"Host", b"h"),), b"hello"),
        PassedRequest("GET", b"/", ((b"Host", b"h"), (b"Content-Length", b"4")), b"hello"),
        PassedRequest("GET", b"/", ((b"Host", b"h"), (b"Transfer-Encoding", b"chunked")), b""),
        PassedRequest("GET", b"/", ((b"Host", b"h"), (b"Transfer-Encoding", b" chunked")), b""),
        PassedRequest("GET", b"/", ((b"Host", b"h"), (b"", b"b")), b""),
        PassedRequest("GET", b"/", ((b"Host", b"h"), (b" A", b"b")), b""),
        PassedRequest("GET", b"/", ((b"Host", b"h"), (b"Content_Length", b"4")), b""),
        PassedRequest("GET", b"/", ((b"Host", b"h"), *(((b"A", b"b"),) * 256)), b""),
    ],
)
def test_what_a_neighbor_makes_up_is_not_sent(request_):
    with pytest.raises(ValueError, match=r"expected|its head"):
        upstream_head(request_, b"upstream", ())


def test_a_service_is_named_where_the_client_did_not():
    sent = upstream_head(PassedRequest("GET", b"/", (), b""), b"upstream:9", ((b"A", b"b"),))
    assert sent == b"GET / HTTP/1.1\r\nHost: upstream:9\r\nA: b\r\n\r\n"


# --- answers ------------------------------------------------------------------------------------

ANSWERS = {
    "by length": (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n", "GET", "ByLength", True),
    "in chunks": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n", "GET", "Chunked", True),
    "to the end": (b"HTTP/1.1 200 OK\r\n", "GET", "ToTheEnd", False),
    "HTTP/1.0": (b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n", "GET", "ByLength", False),
    "that closes": (
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n",
        "GET",
        "ByLength",
        False,
    ),
    "to HEAD": (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n", "HEAD", None, True),
    "to HEAD without a length": (b"HTTP/1.1 200 OK\r\n", "HEAD", None, True),
    "to HEAD in chunks": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n",
        "HEAD",
        None,
        True,
    ),
    "204": (b"HTTP/1.1 204 No Content\r\n", "GET", None, True),
    "304 with a length": (b"HTTP/1.1 304 \r\nContent-Length: 5\r\n", "GET", None, True),
    "a length twice, alike": (
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n",
        "GET",
        "ByLength",
        True,
    ),
    "no reason": (b"HTTP/1.1 299\r\nContent-Length: 5\r\n", "GET", "ByLength", True),
    "a status beyond": (b"HTTP/1.1 999 Odd\r\nContent-Length: 5\r\n", "GET", "ByLength", True),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_how_an_answer_is_framed(name):
    head, method, kind, keep_alive = ANSWERS[name]
    answer = read_answer(head, method)
    if kind is None:
        assert answer.body.done
    else:
        assert type(answer.body).__name__ == kind
        assert not answer.body.done
    assert answer.keep_alive is keep_alive
    assert len(values(answer.head.headers, b"content-length")) <= 1


BAD_ANSWERS = {
    "a length and chunks": (
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n"
    ),
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n",
    "a negative length": b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n",
    "gzip and chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n",
    "a folded line": b"HTTP/1.1 200 OK\r\nA: b\r\n c\r\n",
    "a NUL": b"HTTP/1.1 200 OK\r\nA: \0\r\n",
    "another protocol": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n",
    "HTTP/2": b"HTTP/2 200 OK\r\n",
    "a status of two digits": b"HTTP/1.1 99 OK\r\n",
    "a status of four digits": b"HTTP/1.1 2000 OK\r\n",
    "a status in words": b"HTTP/1.1 OK\r\n",
    "no HTTP": b"220 smtp.example.org ESMTP\r\n",
    "257 lines": b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 257,
}


@pytest.mark.parametrize("name", BAD_ANSWERS)
def test_an_answer_that_clients_might_read_differently_is_none(name):
    with pytest.raises(Malformed):
        read_answer(BAD_ANSWERS[name], "GET")


def test_an_answer_stays_as_it_is_but_for_what_means_something_to_a_hop():
    head = (
        b"HTTP/1.1 203 Odd  reason\r\nset-Cookie: a\r\nX-a: b\r\nSet-Cookie: c\r\n"
        b"Connection: X-Hop, Set-Cookie\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\n"
        b"Spillover-Request-Id: theirs\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n"
    )
    answer = read_answer(head, "GET")
    assert (answer.head.status, answer.head.reason) == (203, b"Odd  reason")
    assert answer.head.headers == (
        (b"set-Cookie", b"a"),
        (b"X-a", b"b"),
        (b"Set-Cookie", b"c"),
        (b"Content-Encoding", b"gzip"),
        (b"Content-Length", b"3"),
    )


@pytest.mark.parametrize("ours", [b"Spillover-Path", b"spillover-request-id"])
def test_a_service_does_not_say_where_a_request_went(ours):
    """Nodes say that, also where nothing else of the head is to be changed."""
    head = b"HTTP/1.1 200 OK\r\n%b: z\r\nA: b\r\nContent-Length: 0\r\n" % ours
    answer = read_answer(head, "GET")
    assert ours not in dict(answer.head.headers)
    assert (b"A", b"b") in answer.head.headers


def test_chunks_in_any_pieces_with_trailers_and_what_follows():
    raw = b"3;x=y\r\nabc\r\n0a\r\n0123456789\r\n0\r\nX-Sum: 1\r\nx-sum: 2\r\n\r\nHTTP/1.1"
    for step in range(1, len(raw) + 1):
        body, whole, rest = Chunked(), b"", b""
        for start in range(0, len(raw), step):
            if body.done:
                rest += raw[start : start + step]
                continue
            whole += body.feed(raw[start : start + step])
        assert whole == b"abc0123456789"
        assert body.trailers == ((b"X-Sum", b"1"), (b"x-sum", b"2"))
        assert body.rest + rest == b"HTTP/1.1"


@pytest.mark.parametrize(
    "raw",
    [
        b"3\r\nabc\r\n",
        b"03;x=y\r\na\r\n\r\n",
        b"0\r\n\r\n",
        b"3\r\nabcde\r\n",
        b"4\r\nabc\r\n",
        b"3\r\nabc\n\n",
        b"3\nabc\r\n",
        b"+3\r\nabc\r\n",
        b"0x3\r\nabc\r\n",
        b"3 \r\nabc\r\n",
        b"\r\nabc\r\n",
    ],
)
def test_a_chunk_that_comes_alone_is_read_as_one_in_pieces(raw):
    """A short way must not be another reader."""

    def read(*parts):
        body, whole = Chunked(), b""
        try:
            for part in (b"1\r\nx\r\n", *parts, b"0\r\n\r\n"):
                whole += b"" if body.done else body.feed(part)
        except Malformed:
            return None
        return whole, body.done

    assert read(raw) == read(*(raw[at : at + 1] for at in range(len(raw))))


def test_a_head_that_never_ends_is_not_kept():
    head = HeadBytes()
    line = b"A: bcd\r\n"
    for _ in range(framing.HEAD_LIMIT_BYTES // len(line)):
        assert head.feed(line) is None
    with pytest.raises(TooLong):
        head.feed(line)


def test_a_head_has_no_more_than_256_fields():
    start = b"GET / HTTP/1.1"
    assert framing.split_head(start + b"\r\nA: b" * 256 + b"\r\n") == (start, ((b"A", b"b"),) * 256)
    with pytest.raises(TooLong, match="at most 256 headers"):
        framing.split_head(start + b"\r\nA: b" * 257 + b"\r\n")
