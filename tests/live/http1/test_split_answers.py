"""Answers that come in pieces: split at each byte they are the same, and no part of one is one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillover.live.http1.answer_flow import AnswerFlow, Switched
from spillover.live.http1.rules import Malformed
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


def heard(*pieces):
    """All that is told of an answer that comes in these pieces, and how the connection goes on."""
    flow = AnswerFlow()
    flow.asked = "GET"
    heads, body, end, goes_on = [], b"", None, False
    for data in pieces:
        if not data and flow.asked is None:
            continue
        came = flow.receive(data)
        if came is None:
            goes_on = False
            break
        interim, head, piece, last = ((), None, came, None) if isinstance(came, bytes) else came
        heads += [(one.status, one.fields) for one in interim]
        if head is not None:
            heads.append((head.status, head.fields, head.keep_alive, type(head.body)))
        body += piece
        if isinstance(last, Malformed):
            return "none"  # which rule is broken first depends on the pieces
        if last is not None:
            end, goes_on = last
    if end is None and not flow.ends_whole:
        end = "broken off" if flow.has_begun else "unanswered"
    return heads, body, end, goes_on


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
    """Whether anything has come of it is told, since a request without is sent again."""
    raw = ANSWERS[name]
    for at in range(len(raw)):
        told = heard(raw[:at])
        if told != "none" and told[2] != ("broken off" if at else "unanswered"):
            assert name.endswith("behind it"), at


def test_a_connection_is_another_protocols_where_that_was_asked_for():
    head, behind = b"HTTP/1.1 101 X\r\nUpgrade: y\r\n\r\n", b"behind it"
    for at in range(1, len(head + behind)):
        flow = AnswerFlow()
        flow.asked, flow.may_switch = "GET", True
        came = [flow.receive((HINTS + head + behind)[: len(HINTS) + at])]
        if at < len(head):
            came.append(flow.receive((head + behind)[at:]))
        data = came[-1][3].data
        assert came[-1][3] == Switched(((b"Upgrade", b"y"),), data)
        assert behind.startswith(data)
        assert [one.status for one in came[0][0]] == [103]
        assert flow.has_begun
    assert heard(head) == "none"
