"""Heads and bodies that are read: the same in any pieces, and no longer than they may be."""

from itertools import combinations

import pytest

from spillover.live.http1.framing import (
    CHUNK_LINE_MAX_BYTES,
    ByLength,
    Chunked,
    HeadBytes,
    split_head,
)
from spillover.live.http1.rules import FIELDS_MAX, HEAD_LIMIT_BYTES, Malformed, Rule

START = b"GET / HTTP/1.1"


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


@pytest.mark.parametrize("blank", [b" ", b"\t", b" \t", b"\t ", b""])
def test_blanks_around_a_value_are_none_of_it(blank):
    head = START + b"\r\nA:" + blank + b"b c" + blank + b"\r\nD:" + blank + b"\r\n"
    assert split_head(head) == (START, ((b"A", b"b c"), (b"D", b"")))


def test_a_head_has_so_many_lines_and_no_more():
    fields = split_head(START + b"\r\n" + b"A: b\r\n" * FIELDS_MAX)[1]
    assert fields == ((b"A", b"b"),) * FIELDS_MAX
    with pytest.raises(Malformed, match=f"at most {FIELDS_MAX} headers"):
        split_head(START + b"\r\n" + b"A: b\r\n" * (FIELDS_MAX + 1))


# --- what is read -------------------------------------------------------------------------------


def pieces_of(raw, cuts):
    """The bytes in as many pieces and one more."""
    return [raw[a:b] for a, b in zip((0, *cuts), (*cuts, len(raw)), strict=True)]


def all_in_three(raw):
    return [pieces_of(raw, cuts) for cuts in combinations(range(1, len(raw)), 2)]


def test_a_head_ends_where_it_does_in_whatever_pieces_it_comes():
    head = START + b"\r\nHost: h\r\nA: \r\n"
    for pieces in all_in_three(head + b"\r\n\r\n\r\nx"):
        reader, found, rest = HeadBytes(), None, b""
        for piece in pieces:
            if found is not None:
                rest += piece
            elif (told := reader.feed(piece)) is not None:
                found, rest = told
            assert bool(reader.held) == (found is None)
        assert (found, rest) == (head, b"\r\n\r\nx")


def long_head(size):
    """So long with the empty line that ends it."""
    return START + b"\r\nA: " + b"b" * (size - len(START) - 9) + b"\r\n\r\n"


def test_a_head_is_so_long_and_no_longer():
    longest, longer = long_head(HEAD_LIMIT_BYTES), long_head(HEAD_LIMIT_BYTES + 1)
    assert HeadBytes().feed(longest) == (longest[:-2], b"")
    reader = HeadBytes()
    assert reader.feed(longer[:-1]) is None
    with pytest.raises(Malformed, match=f"at most {HEAD_LIMIT_BYTES} bytes"):
        reader.feed(longer[-1:])
    with pytest.raises(Malformed):
        HeadBytes().feed(longer)


@pytest.mark.parametrize(
    "pieces",
    [[b"\n"], [b"GET /\n"], [b"GET /\r", b"x"], [b"\r", b"x"], [b"GET /", b"\n"], [b"\rx"]],
)
def test_a_line_of_a_head_that_ends_otherwise_is_told_as_it_comes(pieces):
    """Nobody has to wait for the rest."""
    reader, *others = HeadBytes(), *pieces[:-1]
    for piece in others:
        assert reader.feed(piece) is None
    with pytest.raises(Malformed, match="CR and LF"):
        reader.feed(pieces[-1])


def test_a_body_of_a_known_length_ends_there():
    for pieces in (
        [b"hello"],
        [b"he", b"llo"],
        [b"hell", b"o"],
        [b"hello, you"],
        [b"h", b"ello, you"],
        [b"hello", b", you"],
    ):
        body, whole = ByLength(5), b""
        for piece in pieces:
            assert body.done == (len(whole) == 5)
            whole += body.feed(piece)
        assert (whole, body.done, body.trailers) == (b"hello", True, ())
        assert body.rest == b"".join(pieces)[5:]
    assert ByLength(0).done
    assert not ByLength(1).done


# What looks like something else where it stands, in chunks whose lengths are written in many ways.
DATA = [b"5\r\nhello\r\n", b"\r\n", b"0\r\n\r\n", b"x" * 17, b"a", b"\n"]
LENGTHS = [b"%x", b"%X", b"0%x", b"%x;a=b", b"%x ;a", b"%x"]
CHUNKS = b"".join(
    b"%b\r\n%b\r\n" % (length % len(data), data) for length, data in zip(LENGTHS, DATA, strict=True)
)


@pytest.mark.parametrize(
    ("end", "trailers"),
    [(b"0\r\n\r\n", ()), (b"00;x\r\nA: b\r\nc: \r\n\r\n", ((b"A", b"b"), (b"c", b"")))],
)
def test_a_body_in_chunks_is_the_same_in_whatever_pieces_it_comes(end, trailers):
    rest = b"1\r\nx\r\n\r\n"
    for pieces in all_in_three(CHUNKS + end + rest):
        body, whole, behind = Chunked(), b"", b""
        for piece in pieces:
            if body.done:
                behind += piece
            else:
                whole += body.feed(piece)
                behind = body.rest
        assert whole == b"".join(DATA)
        assert (body.done, body.trailers, behind) == (True, trailers, rest)


@pytest.mark.parametrize("data", [*DATA, b"x" * 15, b"x" * 16, b"x" * 5_000])
def test_a_chunk_that_comes_by_itself_is_what_is_in_it(data):
    """As streams mostly come."""
    body = Chunked()
    for _ in range(3):
        assert body.feed(b"%x\r\n%b\r\n" % (len(data), data)) == data
        assert not body.done
    assert body.feed(b"0\r\n\r\n") == b""
    assert body.done


def refused_at(pieces):
    """Which of these pieces of a body in chunks is no good."""
    body = Chunked()
    for number, piece in enumerate(pieces):
        try:
            body.feed(piece)
        except Malformed:
            return number
    return None


@pytest.mark.parametrize(
    ("pieces", "number"),
    [
        ([b"\n"], 0),
        ([b"5\n"], 0),
        ([b"\r", b"x"], 1),
        ([b"5\r", b"x"], 1),
        ([b"5\r\nhello\n"], 0),
        ([b"5\r\nhello", b"x"], None),
        ([b"5\r\nhello", b"xy"], 1),
        ([b"5\r\nhello\r", b"x"], 1),
        ([b"5\r\nhellox\r\n"], 0),
        ([b"5\r\nhelloxx"], 0),
        ([b"5\r\nhello\r\n\r\n"], 0),
        ([b"0\r\n", b"\n"], 1),
        ([b"0\r\nA: b\n"], 0),
        ([b"0\r\nA: b\r", b"x"], 1),
        ([b"0\r\nA: b\0\r\n\r\n"], 0),
        ([b"0\r\nA\r\n\r\n"], 0),
    ],
)
def test_what_is_no_chunk_is_told_as_it_comes(pieces, number):
    assert refused_at(pieces) == number


def test_the_line_of_a_chunk_is_so_long_and_no_longer():
    room = CHUNK_LINE_MAX_BYTES - len(b"5;\r\n")
    fits, beyond = b"5;" + b"a" * room, b"5;" + b"a" * (room + 1)
    assert refused_at([fits + b"\r\nhello\r\n"]) is None
    assert refused_at([fits, b"\r\nhello\r\n"]) is None
    assert refused_at([beyond + b"\r\nhello\r\n"]) == 0
    assert refused_at([fits + b"aa", b"a"]) == 1, "it is not waited for"


def test_trailers_are_so_long_and_no_longer():
    room = HEAD_LIMIT_BYTES - len(b"A: \r\n")
    fits, beyond = b"A: " + b"b" * room, b"A: " + b"b" * (room + 1)
    assert refused_at([b"0\r\n" + fits + b"\r\n\r\n"]) is None
    assert refused_at([b"0\r\n" + beyond + b"\r\n\r\n"]) == 0
    assert refused_at([b"0\r\n", beyond, b"b", b"b"]) == 3, "nor are these"
    assert refused_at([b"0\r\n", *[b"A: b\r\n"] * FIELDS_MAX, b"\r\n"]) is None
    assert refused_at([b"0\r\n", *[b"A: b\r\n"] * FIELDS_MAX, b"A: b\r\n\r\n"]) == FIELDS_MAX + 1


@pytest.mark.parametrize("end", [b"\rX", b"\r\rX", b"A: b\rX"])
def test_a_cr_alone_where_a_body_should_end_is_no_long_trailer(end):
    data = b"0\r\n" + end
    for pieces in ([data], [data[at : at + 1] for at in range(len(data))]):
        body = Chunked()
        with pytest.raises(Malformed) as told:
            list(map(body.feed, pieces))
        assert told.value.rule is Rule.CR_OR_NUL


@pytest.mark.parametrize(
    "trailers", [b"a: b\r\n\n", b"a: b\n\r\n", b"a: b\n\n", b"a: b\nc: d\r\n\r\n", b"\n"]
)
def test_trailers_of_a_request_end_where_others_on_the_way_see_their_end(trailers):
    """Another end would be another reading: what follows would be a request to one alone."""
    behind = b"GET /admin HTTP/1.1\r\nHost: x\r\n\r\n"
    data = b"0\r\n" + trailers + behind
    assert refused_at([data]) is not None
    assert refused_at([data[at : at + 1] for at in range(len(data))]) is not None
