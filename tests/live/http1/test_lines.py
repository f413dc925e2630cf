"""A stream as lines, however it is cut."""

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillover.live.http1.lines import LINE_BYTES, LineSplitter, Pace, PacedLines
from spillover.model.errors import PeerError
from support.loop import until

LIMIT = 10


def splitting():
    lines = []
    return LineSplitter("GET x", lines.append, LIMIT), lines


@given(
    lines=st.lists(st.binary(max_size=LIMIT).map(lambda line: line.replace(b"\n", b"_"))),
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=5),
)
def test_lines_are_the_same_however_they_come(lines, sizes):
    stream = b"".join(line + b"\n" for line in lines)
    splitter, heard = splitting()
    at = number = 0
    while at < len(stream):
        size = sizes[number % len(sizes)]
        splitter.feed(stream[at : at + size])
        at, number = at + size, number + 1
    splitter.end()
    assert heard == lines
    assert {type(line) for line in heard} <= {bytes}


@pytest.mark.parametrize("ended", [b"", b"\n", b"\nmore"])
def test_a_line_is_bounded_before_it_ends_too(ended):
    splitter, heard = splitting()
    splitter.feed(b"short\n" + b"x" * LIMIT)
    with pytest.raises(PeerError) as error:
        splitter.feed(b"y" + ended)
    assert str(error.value) == f"GET x: a line exceeds {LIMIT} bytes"
    assert heard == [b"short"]


def test_what_stands_behind_a_line_is_bounded_too():
    splitter, heard = splitting()
    with pytest.raises(PeerError):
        splitter.feed(b"short\n" + b"x" * (LIMIT + 1))
    assert heard == [b"short"]


def test_an_end_within_a_line_is_none():
    splitter, heard = splitting()
    splitter.end()
    splitter.feed(b"one\ntw")
    with pytest.raises(PeerError, match="GET x: the stream ended within a line"):
        splitter.end()
    splitter.feed(b"o\n")
    splitter.end()
    assert heard == [b"one", b"two"]


def test_only_a_whole_line_has_been_heard():
    splitter, _ = splitting()
    splitter.feed(b"on")
    assert splitter.heard_s == -math.inf
    before_s = time.monotonic()
    splitter.feed(b"e\ntwo")
    heard_s = splitter.heard_s
    assert before_s <= heard_s <= time.monotonic()
    splitter.feed(b"more")
    assert splitter.heard_s == heard_s


class Source:
    """A stream that is paused and goes on."""

    def __init__(self):
        self.told = []

    def pause(self):
        self.told.append("pause")

    def resume(self):
        self.told.append("resume")

    def fail(self, error):
        self.told.append(error)


def paced(give):
    lines = PacedLines("a stream", give, 100, Pace(per_s=500.0, burst=10.0))
    lines.source = Source()
    return lines


async def test_whoever_sends_more_lines_than_are_taken_waits():
    """None is lost, and they stay in order. What is there at once is not held up."""
    got = []
    lines = paced(got.append)
    began_s = time.monotonic()
    lines.feed(b"".join(b"%d\n" % n for n in range(60)))
    assert len(got) == 10
    assert lines.source.told == ["pause"]
    await until(lambda: len(got) == 60)
    assert time.monotonic() - began_s >= 0.09
    assert got == [b"%d" % n for n in range(60)]
    assert lines.source.told == ["pause", "resume"]
    lines.close()


async def test_what_a_line_raises_ends_the_stream_also_later():
    error = ValueError("a line")

    def give(line):
        if line == b"20":
            raise error

    lines = paced(give)
    lines.feed(b"".join(b"%d\n" % n for n in range(60)))
    await until(lambda: len(lines.source.told) == 2)
    assert lines.source.told == ["pause", error]
    lines.close()


async def test_a_long_line_counts_as_several():
    got = []
    lines = PacedLines("a stream", got.append, 9 * LINE_BYTES, Pace(per_s=10.0, burst=10.0))
    lines.source = Source()
    lines.feed((b"x" * 5 * LINE_BYTES + b"\n") * 3)
    assert len(got) == 2
    await until(lambda: len(got) == 3)
    lines.close()
