"""Heads that are written: as they are read again, or not at all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillover.live.http1.framing import ByLength, Chunked, ToTheEnd, split_head
from spillover.live.http1.heads import CHUNKED, read_answer
from spillover.live.http1.rules import Malformed
from spillover.live.http1.written import (
    STATUS_LINE,
    TO_THE_END,
    answer_head,
    head_lines,
    named_lines,
    request_head,
    size_sent,
    status_line,
)

START = b"GET / HTTP/1.1"
NAMES = st.binary(max_size=4) | st.sampled_from([b"A", b"b-C", b"a_b", b"A:b", b" A", b"A "])
VALUES = st.binary(max_size=4) | st.sampled_from(
    [b"", b"a b", b"\tx\xff ", b"x\r\nB: y", b"x\r\n\r\n", b"\r\n b", b"\0"]
)
FIELDS = st.lists(st.tuples(NAMES, VALUES), max_size=5)


def read(head):
    """The first line and the fields of a head, or None of what is none."""
    try:
        return split_head(head)
    except Malformed:
        return None


def stripped(fields):
    return tuple((name, value.strip(b" \t")) for name, value in fields)


@given(FIELDS)
def test_a_head_is_written_if_it_is_read_as_the_same(fields):
    whole = b"%b\r\n%b" % (START, b"".join([b"%b: %b\r\n" % field for field in fields]))
    if read(whole) == (START, stripped(fields)):
        assert request_head(START, fields) == whole + b"\r\n"
    else:
        with pytest.raises(ValueError, match="expected"):
            request_head(START, fields)


def test_no_first_line_becomes_two():
    for start in (START + b"\r\nA: b", START + b"\n", START + b"\r", START + b"\0"):
        with pytest.raises(ValueError, match="expected"):
            request_head(start, [(b"C", b"d")])
    for reason in (b"OK\r\nA: b", b"OK\n", b"\r", b"\0", b"\x01"):
        with pytest.raises(ValueError, match="expected"):
            status_line(200, reason)
    assert request_head(START, []) == START + b"\r\n\r\n"


@given(
    FIELDS,
    st.sampled_from([200, 204, 304, 404, 599]),
    st.sampled_from(["GET", "HEAD", "POST"]),
    st.none() | st.integers(min_value=0, max_value=9),
    st.booleans(),
    st.booleans(),
)
def test_an_answer_is_read_as_it_was_written(fields, status, method, length, keeps, is_old):
    """However it is framed, and whatever becomes of its connection; or it is not written."""
    others = [field for field in fields if not field[0].lower().startswith((b"conn", b"cont"))]
    try:
        lines = named_lines(others)
    except ValueError:
        whole = b"".join([b"%b: %b\r\n" % field for field in others])
        assert read(b"%b\r\n%b" % (START, whole)) != (START, stripped(others))
        return
    size = size_sent(method, status, length, is_old=is_old)
    keeps = keeps and size != TO_THE_END
    told = length if length is not None else CHUNKED if size == CHUNKED else None
    head = answer_head(STATUS_LINE[status], lines, told, keep_alive=keeps, is_old=is_old)
    assert head.endswith(b"\r\n\r\n")
    answer = read_answer(head[:-2], method)
    assert answer.status == status
    assert answer.fields[: len(others)] == stripped(others)
    assert (b"close" in answer.options, b"keep-alive" in answer.options) == (
        not keeps, keeps and is_old
    )  # fmt: skip
    kinds = {CHUNKED: Chunked, TO_THE_END: ToTheEnd}
    assert type(answer.body) is kinds.get(size, ByLength)
    if size >= 0:
        assert answer.body.done == (size == 0)


def test_names_that_are_known_are_not_looked_at():
    assert head_lines([(b"A B", b"c")]) == b"A B: c\r\n"
    with pytest.raises(ValueError, match="another one"):
        head_lines([(b"A", b"c\r\nd: e")])


@pytest.mark.parametrize("end", [b"\r", b"\n", b"\0", b"\x1b", b"\r\nX-Evil: 1\r\n\r\n"])
@pytest.mark.parametrize("field", [(b"a%b", b"1"), (b"a", b"1%b"), (b"a", b"%bb")])
def test_no_field_holds_control_characters(field, end):
    """Whoever said it, no value can be read as other lines."""
    name, value = (one.replace(b"%b", end) for one in field)
    with pytest.raises(ValueError, match="fields of a head"):
        head_lines([(b"fine", b"1"), (name, value)])
