"""What comes of a client: the same requests in any pieces, and what takes too long."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillover.live.http1.bounds import Bounds
from spillover.live.http1.request_flow import (
    AwaitsBody,
    Begun,
    Late,
    Piece,
    Refused,
    RequestFlow,
    Whole,
)
from support.odd_heads import EXAMPLES
from support.passed_requests import CHUNKED, REFUSED, SEEN, get, post

LONG_BYTES = 2000
"""A longer example is not split."""
SPLITS_MAX = 100
"""At so many of its bytes at most a request is split in two."""

SHORT = {name: raw for name, (_, raw) in REFUSED.items() if len(raw) < LONG_BYTES}
SHORT |= {name: one[0] for name, one in SEEN.items() if len(one[0]) < LONG_BYTES}
SHORT |= {
    f"{rule.name} {number}": raw
    for rule, (_, requests) in EXAMPLES.items()
    for number, raw in enumerate(requests)
    if len(raw) < LONG_BYTES
}
SHORT |= {
    "trailers": post(CHUNKED, body=b"2\r\nhe\r\n3;a=b\r\nllo\r\n0\r\nA: b\r\nC: d\r\n\r\n"),
    "two": post(b"Content-Length: 5") + get(target=b"/2"),
    "empty lines before": b"\r\n\r\n" + get() + b"\r\n" + get(target=b"/2"),
    "an expectation": post(b"Content-Length: 5", b"Expect: 100-continue"),
}


class Reader:
    """Whoever has the connection: each request is answered once it is whole."""

    def __init__(self):
        self.flow = RequestFlow(Bounds())
        self.told = []
        """(method, target, fields, body) of each request; and by which rule one was refused."""
        self.is_over = False

    def say(self, data, now_s=0.0):
        while not self.is_over and (events := self.flow.receive(data, now_s)):
            data = b""
            for event in events:
                self.hear(event)

    def hear(self, event):
        if type(event) is Refused:
            self.told.append(event.error.rule)
            self.is_over = True
        elif type(event) in (Begun, Whole):
            self.head, self.body = event.head, b""
            self.flow.is_busy = True
        if type(event) is Piece:
            self.body += event.data
        if type(event) is Whole:
            self.body = event.body
        if type(event) is Whole or (type(event) is Piece and event.is_last):
            head = self.head
            self.told.append((head.method, head.target, head.fields, self.body))
            self.flow.is_busy = False


def told_of(*pieces):
    reader = Reader()
    for piece in pieces:
        reader.say(piece)
    return reader.told


@pytest.mark.parametrize("name", SHORT)
def test_a_request_is_the_same_split_anywhere_and_no_part_of_one_is_taken_for_it(name):
    """And byte by byte; a second one behind it as well."""
    raw = SHORT[name]
    for behind in (b"", get(target=b"/behind")):
        whole = raw + behind
        expected = told_of(whole)
        refusals = [one for one in expected if not isinstance(one, tuple)]
        for at in range(1, len(whole), 1 + len(whole) // SPLITS_MAX):
            told = told_of(whole[:at], whole[at:])
            if refusals:  # which rule is broken first depends on how much has come
                assert told[:-1] == expected[:-1], (name, at)
                assert not isinstance(told[-1], tuple), (name, at)
            else:
                assert told == expected, (name, at)
        singly = told_of(*[whole[at : at + 1] for at in range(len(whole))])
        assert len(singly) == len(expected)
        assert singly == expected or (refusals and singly[:-1] == expected[:-1])
    whole = len(told_of(raw))
    for at in range(0, len(raw) if whole else 0, 1 + len(raw) // SPLITS_MAX):
        told = told_of(raw[:at])
        assert len(told) <= whole
        if len(told) == whole and isinstance(told[-1], tuple):
            assert not raw[at:].strip(b"\r\n"), (name, at)


@given(
    st.lists(st.sampled_from(sorted(SEEN)), max_size=4), st.lists(st.integers(1, 400), max_size=9)
)
def test_requests_in_a_row_are_those_in_whatever_pieces_they_come(names, sizes):
    raw = b"".join([SEEN[name][0] for name in names])
    pieces = []
    for size in sizes:
        pieces.append(raw[:size])
        raw = raw[size:]
    assert told_of(*pieces, raw) == [one for name in names for one in told_of(SEEN[name][0])]


# --- one after another ---------------------------------------------------------------------------


def flow_of(*pieces, now_s=0.0):
    flow = RequestFlow(Bounds())
    events = [event for piece in pieces for event in flow.receive(piece, now_s)]
    return flow, [type(event) for event in events]


def test_what_comes_behind_a_request_waits_until_that_is_answered():
    flow, events = flow_of(get() + get(target=b"/2"))
    assert events == [Whole]
    flow.is_busy = True
    assert flow.receive(get(target=b"/3"), 1.0) == []
    flow.is_busy = False
    (second,) = flow.receive(b"", 2.0)
    assert (second.head.target, flow.received_s) == (b"/2", 2.0)
    (third,) = flow.receive(b"", 3.0)
    assert third.head.target == b"/3"
    assert flow.is_between


def test_a_request_waits_while_answers_are_not_read():
    flow = RequestFlow(Bounds())
    flow.write_paused = True
    assert flow.receive(get(), 0.0) == []
    flow.write_paused = False
    assert [type(event) for event in flow.receive(b"", 0.0)] == [Whole]


def test_a_body_that_has_not_begun_is_awaited():
    assert flow_of(post(b"Content-Length: 5", body=b""))[1] == [Begun, AwaitsBody]
    assert flow_of(post(b"Content-Length: 5", body=b"h"))[1] == [Begun, Piece]


# --- what takes too long -------------------------------------------------------------------------

HEAD_S, BODY_S = Bounds().head_s, Bounds().body_s


def late(flow, now_s, unsent_bytes=0, *, is_closing=False):
    return flow.late(now_s, unsent_bytes, is_closing=is_closing)


def test_a_head_is_due_from_its_first_byte_on_and_no_later_one():
    flow, _ = flow_of(b"GET", b" / ", now_s=1.0)
    assert flow.receive(b"HTTP", 9.0) == []
    assert flow.due_s == 1.0 + HEAD_S
    assert late(flow, flow.due_s) is Late.HEAD
    assert [type(event) for event in flow.receive(b"/1.1\r\nHost: h\r\n\r\n", 10.0)] == [Whole]
    assert flow.due_s == math.inf


def test_a_body_may_be_slow_but_not_slower():
    flow, _ = flow_of(post(b"Content-Length: 1000000", body=b""), now_s=1.0)
    assert flow.due_s == 1.0 + BODY_S
    flow.receive(b"x" * round(BODY_S * Bounds().body_bytes_per_s), 2.0)
    assert late(flow, 61.0) is None
    assert flow.due_s == 61.0 + BODY_S
    assert late(flow, 121.0) is Late.BODY


def test_what_is_not_read_of_an_answer_is_given_time_as_long_as_it_shrinks():
    flow = RequestFlow(Bounds())
    flow.is_busy = True
    assert late(flow, 0.0, 900) is None
    assert flow.due_s == Bounds().unread_s
    assert late(flow, flow.due_s, 800) is None
    assert late(flow, flow.due_s, 800) is Late.ABORT


def test_an_exchange_that_may_take_no_longer_is_cut_off_whatever_goes_on():
    flow, _ = flow_of(get())
    flow.cut_s = 5.0
    assert late(flow, 5.0, 900) is Late.ABORT


def test_an_idle_connection_is_closed_and_one_that_closes_is_not_waited_for():
    flow = RequestFlow(Bounds())
    assert late(flow, 1.0) is Late.CLOSE
    assert late(flow, 1.0, is_closing=True) is Late.ABORT
    flow.is_busy = True
    assert late(flow, 1.0) is None
