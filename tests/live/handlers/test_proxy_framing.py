"""Heads that are written: as they are read again, or not at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillover.live.handlers.proxy.framing import Malformed, split_head, write_head

START = b"GET / HTTP/1.1"
NAMES = st.binary(max_size=4) | st.sampled_from([b"A", b"b-C", b"a_b", b"A:b", b" A", b"A "])
VALUES = st.binary(max_size=4) | st.sampled_from(
    [b"", b"a b", b"\tx\xff ", b"x\r\nB: y", b"x\r\n\r\n", b"\r\n b", b"\0"]
)


@given(st.lists(st.tuples(NAMES, VALUES), max_size=5))
def test_a_head_is_written_if_it_is_read_as_the_same(fields):
    lines = b"".join([b"%b: %b\r\n" % field for field in fields])
    whole = b"%b\r\n%b" % (START, lines)
    try:
        read = split_head(whole)
    except Malformed:
        read = None
    same = START, tuple((name, value.strip(b" \t")) for name, value in fields)
    assert write_head(START, fields) == (whole + b"\r\n" if read == same else None)


def test_no_first_line_becomes_two():
    assert write_head(START + b"\r\nA: b", [(b"C", b"d")]) is None
    assert write_head(START + b"\n", []) is None
    assert write_head(START, []) == START + b"\r\n\r\n"


def test_a_head_with_control_characters_is_none():
    """What others may take for the end of a line, or of a text."""
    for line in (b"A: b\0", b"A: b\x7f", b"A\x01: b"):
        with pytest.raises(Malformed):
            split_head(START + b"\r\n" + line + b"\r\n")
    with pytest.raises(Malformed, match="no control characters"):
        split_head(START + b"\0\r\nA: b\r\n")


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (b"A: b\r\n c: d\r\n", "no line that begins with a blank"),
        (b"A: b\r\n\tc\r\n", "no line that begins with a blank"),
        (b" A: b\r\n", "no line that begins with a blank"),
        (b"\tA: b\r\n", "no line that begins with a blank"),
        (b"A b\r\n", "NAME: VALUE"),
        (b"A: b\r\n: d\r\n", "NAME: VALUE"),
    ],
)
def test_who_sends_a_line_that_is_no_header_is_told_why(lines, says):
    """Lines that go on in the next one were allowed once, and some still send them."""
    with pytest.raises(Malformed, match=f"^header: expected {says}$"):
        split_head(START + b"\r\n" + lines)
