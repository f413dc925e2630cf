"""Answers that come in pieces: split at each byte they are the same, and no part of one is one."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillover.live.http1.connection import Connection
from spillover.live.http1.outgoing import OutgoingExchange
from support.http_wire import Wire
from support.odd_heads import EXAMPLES

LONG_BYTES = 2000
"""A longer example is not split."""
SPLITS_MAX = 200
"""At so many of its bytes at most an answer is split in two."""

OK = b"HTTP/1.1 200 OK\r\n"
CODED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
HINTS = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
ANSWERS = {
    "a length": OK + b"Content-Length: 3\r\n\r\nabc",
    "no body": OK + b"Content-Length: 0\r\n\r\n",
    "no content": b"HTTP/1.1 204 No Content\r\n\r\n",
    "not modified": b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n",
    "chunks": CODED + b"2\r\nab\r\n1;x=y\r\nc\r\n0\r\n\r\n",
    "trailers": CODED + b"3\r\nabc\r\n0\r\nA: b\r\nC: d\r\n\r\n",
    "trailers with LF alone": CODED + b"3\nabc\n0\nA: b\nC : d\n\n",
    "interim answers": b"HTTP/1.1 100 Continue\r\n\r\n"
    + 2 * HINTS
    + OK
    + b"Content-Length: 1\r\n\r\na",
    "interim answers with LF alone": b"HTTP/1.1 102 Wait\n\n" + OK + b"Content-Length: 1\n\na",
    "something behind it": OK + b"Content-Length: 3\r\n\r\nabcd",
    "another one behind it": 2 * (CODED + b"3\r\nabc\r\n0\r\n\r\n"),
}
ANSWERS |= {
    f"{rule.name} {number}": raw
    for rule, (answers, _) in EXAMPLES.items()
    for number, raw in enumerate(answers)
    if len(raw) < LONG_BYTES
}
TO_THE_END = {"the end": OK + b"\r\nabc", "the end of 1.0": b"HTTP/1.0 200 OK\r\nA: b\r\n\r\nabc"}


@dataclass(slots=True, eq=False)
class Heard(OutgoingExchange):
    """All that a connection tells of an answer."""

    heads: list = field(default_factory=list)
    body: bytes = b""
    end: object = None

    def interim(self, answer):
        self.heads.append((answer.status, answer.fields))

    def begin(self, answer, piece):
        self.heads.append((answer.status, answer.fields, answer.keep_alive, type(answer.body)))
        self.body += piece

    def take(self, piece):
        self.body += piece

    def whole(self, trailers, received_s):  # noqa: ARG002 - of a kind
        self.end = "whole", trailers

    def cannot_read(self, what):  # noqa: ARG002 - which rule is broken first depends on the pieces
        self.end = "none"
        self.abandon()

    def fail(self, error):  # noqa: ARG002
        self.end = "broken off"
        self.abandon()


class Owner:
    """Whoever has the connection."""

    def __init__(self):
        self.goes_on = False

    def released(self, _):
        self.goes_on = True

    def dropped(self, _):
        self.goes_on = False

    lost = abandoned = dropped

    def unanswered(self, _, exchange, what, *, is_unread):  # noqa: ARG002
        exchange.fail(None)


def heard(*pieces, ends=True):
    owner = Owner()
    connection, wire = Connection(owner), Wire()
    connection.connection_made(wire)
    exchange = Heard("GET", "http://h/", None, 10**6)
    connection.send(exchange, b"GET / HTTP/1.1\r\n\r\n", ())
    for piece in pieces:
        if connection.exchange is not None or (piece and not wire.closing):
            connection.data_received(piece)
    goes_on = owner.goes_on
    if ends and connection.exchange is not None:
        connection.eof_received()
    if exchange.end == "none":
        return "none"
    return exchange.heads, exchange.body, exchange.end, goes_on


@pytest.mark.parametrize("name", ANSWERS | TO_THE_END)
def test_an_answer_is_the_same_split_anywhere(name):
    raw = (ANSWERS | TO_THE_END)[name]
    expected = heard(raw)
    for at in range(1, len(raw), 1 + len(raw) // SPLITS_MAX):
        assert heard(raw[:at], raw[at:]) == expected, at
    assert heard(*[raw[at : at + 1] for at in range(len(raw))]) == expected


@given(st.sampled_from(sorted(ANSWERS)), st.lists(st.integers(min_value=1, max_value=9)))
def test_an_answer_is_the_same_in_whatever_pieces_it_comes(name, sizes):
    raw, pieces = ANSWERS[name], []
    for size in sizes:
        pieces.append(raw[:size])
        raw = raw[size:]
    assert heard(*pieces, raw) == heard(ANSWERS[name])


@pytest.mark.parametrize("name", ANSWERS)
def test_no_part_of_an_answer_is_taken_for_one(name):
    raw = ANSWERS[name]
    for at in range(len(raw)):
        told = heard(raw[:at])
        if told != "none" and told[2] != "broken off":
            assert name.endswith("behind it"), at
