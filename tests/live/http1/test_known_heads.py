"""Heads that have come before are read without the parser: what comes of a message is the same."""

import pytest

from spillover.live.http1.known_heads import (
    HEAD_BYTES_MAX,
    KNOWN_MAX,
    KnownHeads,
    whole_message,
)

HEAD = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\nx-a: b\r\n\r\n"


@pytest.mark.parametrize("size", [0, 1, 9, 10, 123_456])
def test_a_whole_message_is_its_head_without_the_length_and_its_body(size):
    body = b"x" * size
    head, length, found = whole_message(HEAD % size + body)
    assert head == b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: \r\nx-a: b\r\n\r\n"
    assert (length, found) == (b"%d" % size, body)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        HEAD % 3 + b"ab",
        HEAD % 1 + b"ab",
        HEAD % 0 + HEAD % 0,
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        HEAD[:-2] % 0,
        b"POST / HTTP/1.1\r\nContent-Length: 1 1\r\n\r\nx",
        b"POST / HTTP/1.1\r\nContent-Length: +1\r\n\r\nx",
        b"POST / HTTP/1.1\r\nContent-Length: \r\n\r\n",
        b"POST / HTTP/1.1\r\nx-Content-Length: 1\r\n\r\nx",
        b"POST /\r\n\r\nContent-Length: 0\r\n\r\n",
        b"POST / HTTP/1.1\r\nx: " + b"y" * HEAD_BYTES_MAX + b"\r\nContent-Length: 0\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: " + b"9" * 16 + b"\r\n\r\n",
    ],
)
def test_what_is_more_or_less_than_one_message_is_the_parsers(data):
    assert whole_message(data) is None


def test_a_head_that_says_its_length_twice_is_never_known():
    """Else the length that was taken out may not be the one that counts."""
    heads = KnownHeads()
    data = b"POST / HTTP/1.1\r\nContent-Length: 1\r\ncontent-length:\t1\r\n\r\nx"
    heads.learn(whole_message(data)[0], "meaning")
    assert not heads.meanings


@pytest.mark.parametrize("over", [0, 1])
def test_a_head_is_known_up_to_a_length(over):
    """Who sends longer ones sends few of them."""
    start = b"GET / HTTP/1.1\r\nContent-Length: \r\nx: "
    head = start + b"y" * (HEAD_BYTES_MAX + over - len(start) - 4) + b"\r\n\r\n"
    heads = KnownHeads()
    heads.learn(head, "meaning")
    assert heads.meanings == ({} if over else {head: "meaning"})


def test_what_has_come_lately_is_known_after_all_was_forgotten():
    heads = KnownHeads()
    for number in range(KNOWN_MAX + 1):
        assert len(heads.meanings) == number
        heads.learn(b"\r\nContent-Length: \r\nx: %d\r\n" % number, number)
    assert list(heads.meanings.values()) == [KNOWN_MAX]
