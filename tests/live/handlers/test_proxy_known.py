"""Heads of passed requests and answers that have come before: nothing else is read of them, and
nothing else written, than of those that come for the first time."""

import asyncio
import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillover.live.handlers.proxy.exchange import PassedExchange
from spillover.live.handlers.proxy.known import KnownRequests, WrittenHeads, cut
from spillover.live.handlers.proxy.onward import Ingress
from spillover.live.handlers.proxy.sent_heads import (
    ForeignRequest,
    OwnRequest,
    own_head,
)
from spillover.live.http1.answer_flow import AnswerFlow
from spillover.live.http1.connection import Connection
from spillover.live.http1.framing import HeadBytes
from spillover.live.http1.heads import read_request
from spillover.live.http1.known_heads import HEAD_BYTES_MAX, KNOWN_MAX, Known, KnownHeads
from spillover.live.http1.rules import Malformed
from spillover.model.passed import PassedHead, PassedRequest, with_length
from support.few import examples
from support.passed_requests import REFUSED, SEEN, get, post

WAY = Ingress("10.0.0.1", "http", "a-1.spillover")
OTHER_WAY = Ingress("10.0.0.2", "http", "a-1.spillover")
ADDED = ((b"Spillover-Request-Id", b"a-1"), (b"Spillover-Deadline-Ms", b"9"))


def read(data):
    """What the reader makes of bytes that begin with a head: (head, what follows)."""
    lines, rest = HeadBytes().feed(data)
    return read_request(lines), rest


def sized(size, *lines):
    return post(b"Content-Length: %d" % size, *lines, body=b"x" * size)


WHOLE = [
    raw
    for raw in [*(one[0] for one in SEEN.values()), get(), sized(0), sized(5), sized(123)]
    if not raw.startswith(b"\r\n")
]


def learned(*datas):
    """What is known after these."""
    known = KnownRequests()
    for data in datas:
        head, rest = read(data)
        if head.size_bytes in (0, len(rest)):
            known.learn_from(data, head)
    return known


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_never_known(name):
    assert learned(*WHOLE).find(REFUSED[name][1]) is None


@pytest.mark.parametrize(
    "data",
    [
        post(b"Content-Length: ", body=b""),
        post(b"Content-Length:", body=b""),
        sized(5)[:-1],
        sized(5) + b"x",
        sized(5) + get(),
        get() + get(),
        get() + b"x",
        get()[:-2],
        get(b"Content-Length: "),
        sized(5).replace(b"POST", b"PUT"),
        sized(5).replace(b"Content-Length: 5", b"Content-Length: +5"),
        sized(5).replace(b"Content-Length: 5", b"Content-Length: 05"),
        sized(5, b"Content-Length: 5"),
        sized(5, b"Transfer-Encoding: chunked"),
    ],
)
def test_what_is_more_or_less_than_what_has_come_is_read_anew(data):
    assert learned(get(), sized(5), sized(0)).find(data) is None


@pytest.mark.parametrize(
    "line",
    [b"Authorization: Bearer x", b"cookie: a", b"Idempotency-Key: k",
     b"Proxy-Authorization: Bearer x", b"traceparent: 00-1-2-01"],
)  # fmt: skip
def test_secrets_and_names_are_not_kept(line):
    for data in (get(line), sized(5, line)):
        assert not learned(data).meanings
    answers = KnownHeads()
    learn_answer(answers, answer_of(b"{}", b"Set-Cookie: a"))
    assert not answers.meanings


def test_what_is_known_is_bounded():
    known, answers, written = KnownRequests(), KnownHeads(), WrittenHeads()
    for number in range(3 * KNOWN_MAX):
        for data in (sized(5, b"X: %d" % number), get(b"X: %d" % number)):
            known.learn_from(data, read(data)[0])
        learn_answer(answers, answer_of(b"{}", b"Date: %d" % number))
        head = PassedHead(200, b"OK", ())
        written.learn(head, cut(b"a\r\n\r\n", b"a", (), None, b""))
        assert written.find(head) is not None
        assert len(known.meanings) <= KNOWN_MAX
        assert len(answers.meanings) <= KNOWN_MAX
    long = get(b"X: " + b"y" * HEAD_BYTES_MAX)
    known.learn_from(long, read(long)[0])
    assert known.find(long) is None


# --- what is written ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        ((b"Host", b"h"), (b"Authorization", b"Bearer x")),
        ((b"Host", b"h"), (b"cookie", b"a")),
        ((b"X", b"no host"),),
    ],
)
def test_nor_are_secrets_kept_of_what_a_neighbor_sends(headers):
    known = Known()
    request = ForeignRequest(PassedRequest("GET", b"/", headers, b"").encode(), known)
    with contextlib.suppress(ValueError):
        request.head_with(b"u:1", ADDED)
    assert not known.meanings


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (((b"Host", b"h"),), b"hello"),
        (((b"Host", b"h"), (b"Content-Length", b"4")), b"hello"),
        (((b"Host", b"h"), (b"Content-Length", b""), (b"content-length", b"")), b"hello"),
        (((b"Host", b"h"), (b"Transfer-Encoding", b"chunked"), (b"Content-Length", b"")), b"hello"),
        (((b"Host", b"h"), (b"A", b"b\r\nC: d")), b""),
        (((b"Host", b"h"), (b"Content_Length", b"4")), b""),
    ],
)
def test_what_a_neighbor_makes_up_is_refused_each_time(headers, body):
    """Also once the same head has come with a body that fits."""
    known = Known()
    for fits in (b"", b"1234"):
        try:
            one = ForeignRequest(PassedRequest("GET", b"/", headers, fits).encode(), known)
            one.head_with(b"u:1", ADDED)
        except ValueError:
            continue
    for _ in range(2):
        request = ForeignRequest(PassedRequest("GET", b"/", headers, body).encode(), known)
        with pytest.raises(ValueError, match=r"expected|its head"):
            request.head_with(b"u:1", ADDED)


# --- answers ------------------------------------------------------------------------------------


def answer_of(body, *lines, status=b"200 OK", name=b"Content-Length"):
    told = b"".join(b"%b\r\n" % line for line in lines)
    return b"HTTP/1.1 %b\r\n%b%b: %d\r\nX: y\r\n\r\n%b" % (status, told, name, len(body), body)


def heard(heads, data, method="GET"):
    """All that is told of the answer that these bytes are, on a new connection with these known
    heads, and whether that goes on."""
    told, owner = [], Owner()
    connection = Connection(owner, heads=heads)
    connection.connection_made(Wire())
    exchange = PassedExchange(
        method, "u", told.append, 10**6,
        on_begin=told.append, on_piece=told.append, takes_whole=True,
    )  # fmt: skip
    connection.send(exchange, b"GET / HTTP/1.1\r\n\r\n", ())
    connection.data_received(data)
    at_once = exchange.at_once
    if at_once is not None:
        head, body = at_once
        at_once = PassedHead(head.status, head.reason, with_length(head.headers, len(body))), body
    ends = [getattr(one, "status", None) or repr(one) for one in told]
    return at_once, ends, exchange.trailers, owner.kept


class Owner:
    """Notes whether a connection goes on."""

    kept = 0

    def released(self, _):
        self.kept += 1

    def dropped(self, _):
        self.kept -= 1


class Wire(asyncio.Transport):
    """Stands for a socket that is always open."""

    def writelines(self, _):
        pass

    def is_closing(self):
        return False

    def abort(self):
        pass

    def get_write_buffer_size(self):
        return 0


def learn_answer(heads, data):
    heard(heads, data)


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 204 No\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 304 No\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nSet-Cookie: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n2\r\n{}\r\n0\r\n\r\n",
    ],
)
def test_an_answer_that_may_be_another_one_next_time_is_not_kept(data):
    answers = KnownHeads()
    for _ in range(2):
        learn_answer(answers, data)
    assert not answers.meanings


def test_an_idle_connection_holds_nothing_of_its_last_answer():
    """It may be secret, and there may be thousands of them."""
    connection = Connection(Owner(), heads=KnownHeads())
    connection.connection_made(Wire())
    exchange = PassedExchange("GET", "u", None, 9, on_begin=list, on_piece=list, takes_whole=True)
    connection.send(exchange, b"GET / HTTP/1.1\r\n\r\n", ())
    coded = b"Set-Cookie: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    connection.data_received(b"HTTP/1.1 200 OK\r\n" + coded)
    held = [getattr(connection, name) for name in AnswerFlow.__slots__]
    assert not any(b"Set-Cookie" in one for one in held if isinstance(one, bytes))


def test_a_known_head_says_nothing_of_what_is_no_answer():
    answers = KnownHeads()
    learn_answer(answers, answer_of(b"{}"))
    coded = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    for _ in range(2):
        learn_answer(answers, coded + b"2\r\n{}\r\n0\r\n\r\n")
    assert len(answers.meanings) == 2
    for data in (
        coded + b"x",
        coded + b"2\r\n{}\r\n0\r\n\r\nx",
        coded.replace(b"\r\n\r\n", b"\r\nContent-Length: 2\r\n\r\n{}"),
        answer_of(b"{}") + b"x",
        answer_of(b"{}")[:-1],
        answer_of(b"{}").replace(b": 2", b": "),
        answer_of(b"{}").replace(b": 2", b": 2, 2"),
        answer_of(b"{}").replace(b": 2", b": 02"),
        answer_of(b"{}").replace(b": 2\r\n", b": 2\r\nContent-Length: 3\r\n"),
    ):
        assert heard(answers, data) == heard(None, data)


# --- any sequence -------------------------------------------------------------------------------

LINES = st.lists(
    st.sampled_from(
        [b"Content-Length: 3", b"content-length: 3", b"Content-Length:3", b"Content-Length: 03",
         b"Content-Length: +3", b"Content-Length: 3 ", b"Content-Length: 0", b"Content-Length: ",
         b"Content-Length: 12", b"X-Content-Length: 3", b"Content_Length: 3", b"Host: b",
         b"Transfer-Encoding: chunked", b"Connection: close", b"Connection: Content-Length",
         b"TE: trailers", b"Expect: 100-continue", b"Via: 1.1 other", b"Forwarded: for=x",
         b"X-Forwarded-For: 1.2.3.4", b"Spillover-Deadline-Ms: 5", b"Spillover-Type: t",
         b"Idempotency-Key: k", b"Idempotency-Key: l", b"Cookie: a", b"Set-Cookie: a",
         b"Proxy-Authorization: Bearer a", b"Authorization: Bearer b", b"X: 1", b"X: 2",
         b" folded", b"X: a\nb"]
    ),
    max_size=2,
)  # fmt: skip
BODIES = st.sampled_from([b"", b"xyz", b"x" * 12, b"3\r\nxyz\r\n0\r\n\r\n", b"\r\n\r\n", get()])
STARTS = st.sampled_from(
    [b"POST / HTTP/1.1", b"GET / HTTP/1.1", b"HEAD / HTTP/1.1", b"POST / HTTP/1.0"]
)
STATUSES = st.sampled_from(
    [b"HTTP/1.1 200 OK", b"HTTP/1.0 200 OK", b"HTTP/1.1 204 No", b"HTTP/1.1 304 No",
     b"HTTP/1.1 103 Hints", b"HTTP/1.1 500 No"]
)  # fmt: skip
METHODS = st.sampled_from(["GET", "HEAD", "POST"])


def message(start, lines, body):
    return b"".join(b"%b\r\n" % line for line in (start, *lines)) + b"\r\n" + body


def messages(starts, lines, others):
    """Some with the same head, but for the length, which mostly fits, each with another thing."""
    lengths = st.sampled_from([b"Content-Length: %d"] * 4 + [b"Content-Length: 0%d", b""])

    def alike(start, lines):
        def one(length, body, other):
            told = [length % len(body)] if b"%" in length else []
            return message(start, [*lines[:2], *told, *lines[2:]], body), other

        few = st.builds(one, lengths, BODIES, others)
        return st.lists(few, min_size=2, max_size=6)

    return st.tuples(starts, lines).flatmap(lambda told: alike(*told))


@settings(max_examples=examples(90), deadline=None)
@given(
    messages(
        STARTS, LINES.map(lambda lines: [b"Host: a", *lines]), st.sampled_from([WAY, OTHER_WAY])
    )
)
def test_no_sequence_of_requests_is_told_from_one_that_is_read_anew(asked):
    """Each of them twice, so that it has come before; all of them are under way at once."""
    known, under_way = KnownRequests(), []
    for data, way in asked * 2:
        found = known.find(data)
        try:
            head, rest = read(data)
        except Malformed:
            assert found is None
            continue
        if head.size_bytes not in (0, len(rest)):
            assert found is None  # there is more to come, or another one behind it
            continue
        body = rest if head.size_bytes else b""
        if found is None:
            kept = known.learn_from(data, head)
        else:
            kept = found[0]
            assert found[1:] == (head, rest)
        told = head if found is None else found[1]
        under_way.append((OwnRequest(told, way, body, kept), OwnRequest(head, way, body)))
    for same, new in under_way + under_way[::-1]:
        assert own_head(same, b"u:1", ADDED) == own_head(new, b"u:1", ADDED)
        assert same.encode() == new.encode()
        assert same.head == new.head


@settings(max_examples=examples(90), deadline=None)
@given(messages(STATUSES, LINES, METHODS))
def test_no_sequence_of_answers_is_told_from_one_that_is_read_anew(said):
    known = KnownHeads()
    for data, method in said * 2:
        assert heard(known, data, method) == heard(None, data, method)
