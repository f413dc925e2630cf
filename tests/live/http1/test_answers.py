"""What a connection makes of answers at its bounds: lengths, excerpts, heads that it knows, and
what it counts of bodies that are on their way. No sockets."""

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillover.core.overflow.held import HeldBytes
from spillover.live.engine.moving import Moving
from spillover.live.engine.timers import Timers
from spillover.live.http1.connection import Connection
from spillover.live.http1.known_heads import KnownHeads
from spillover.live.http1.outgoing import OutgoingRequest, Response
from spillover.live.http1.rules import HEAD_LIMIT_BYTES
from spillover.model.errors import NotDelivered, OutcomeUnknown
from support.http_wire import Wire

LIMIT = 1000
CHUNKED = b"Transfer-Encoding: chunked\r\n"
URL = "http://h/x"


def chunk(data):
    return b"%x\r\n%b\r\n" % (len(data), data)


def answer(body, *, status=200, framing="length", lines=b"", size=7):
    """An answer in this framing; chunks are of this size."""
    start = b"HTTP/1.1 %d X\r\n%b" % (status, lines)
    if framing == "length":
        return start + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    if framing == "end":
        return start + b"\r\n" + body
    chunks = [chunk(body[at : at + size]) for at in range(0, len(body), size)]
    return start + CHUNKED + b"\r\n" + b"".join([*chunks, b"0\r\n\r\n"])


class Talk:
    """A connection and its owner; all that requests on it came to."""

    def __init__(self, **options):
        self.idle, self.gone = [], []
        self.connection = Connection(self, **options)
        self.wire = Wire()
        self.connection.connection_made(self.wire)
        self.ends = []

    def released(self, connection):
        self.idle.append(connection)

    def dropped(self, connection):
        self.gone.append(connection)

    lost = dropped

    def abandoned(self, connection):
        pass

    def unanswered(self, _connection, exchange, what, **_):
        exchange.fail(OutcomeUnknown(f"{exchange.method} {exchange.url}: {what}"))

    def ask(self, **options):
        limits = {"body_limit_bytes": LIMIT} | options
        exchange = OutgoingRequest("GET", URL, self.ends.append, **limits)
        self.connection.send(exchange, b"GET /x HTTP/1.1\r\n\r\n", (b"",))
        return exchange

    def hear(self, data, size=None):
        """Segments of this size, while there is who reads them."""
        for at in range(0, len(data), size or len(data) or 1):
            if not self.wire.closing:
                self.connection.data_received(data[at : at + (size or len(data))])

    def end(self):
        if not self.wire.closing:
            self.connection.eof_received()


def heard(data, *, size=None, **options):
    """What came of one request, and whether its connection goes on."""
    talk = Talk()
    talk.ask(**options)
    talk.hear(data, size)
    talk.end()
    (came_to,) = talk.ends
    return came_to, bool(talk.idle)


@pytest.mark.parametrize("framing", ["length", "chunks", "end"])
@pytest.mark.parametrize("size", [None, 100])
def test_a_body_is_bounded_to_the_byte(framing, size):
    whole, _ = heard(answer(b"x" * LIMIT, framing=framing), size=size)
    assert (type(whole), whole.body) == (Response, b"x" * LIMIT)
    error, goes_on = heard(answer(b"x" * (LIMIT + 1), framing=framing), size=size)
    assert isinstance(error, OutcomeUnknown)
    assert str(error) == f"GET {URL}: the body of the answer exceeds {LIMIT} bytes"
    assert not goes_on


def test_what_says_that_it_is_too_long_is_not_read():
    """An answer that has no body says so of another one."""
    for status in (200, 500):
        error, _ = heard(b"HTTP/1.1 %d X\r\nContent-Length: 1001\r\n\r\n" % status)
        assert "exceeds" in str(error)
    unchanged, goes_on = heard(b"HTTP/1.1 304 X\r\nContent-Length: 1001\r\n\r\n")
    assert (unchanged.status, unchanged.body, goes_on) == (304, b"", True)


# The status, the body, its framing; what is kept of it, and whether the connection goes on.
EXCERPTS = {
    "short": (500, 9, "length", 9, True),
    "whole": (500, 10, "length", 10, True),
    "long": (500, 11, "length", 10, False),
    "beyond all limits": (500, LIMIT + 1, "length", 10, False),
    "short in chunks": (429, 9, "chunks", 9, True),
    "long in chunks": (429, 25, "chunks", 10, False),
    "no success yet": (300, 11, "length", 10, False),
    "a success": (299, 11, "length", 11, True),
    "a success in chunks": (200, 25, "chunks", 25, True),
}


@pytest.mark.parametrize("case", EXCERPTS)
@pytest.mark.parametrize("size", [None, 3])
def test_of_what_is_no_success_the_beginning_is_enough(case, size):
    """The rest may never end; who has read none of it cannot go on behind it."""
    status, length, framing, kept, goes_on = EXCERPTS[case]
    body = bytes(65 + at % 26 for at in range(length))
    got, does_go_on = heard(
        answer(body, status=status, framing=framing), size=size, excerpt_bytes=10
    )
    assert (got.status, got.body, does_go_on) == (status, body[:kept], goes_on)


@pytest.mark.parametrize(
    ("status", "body", "lines", "size", "is_known"),
    [
        (200, b"ok", b"", None, True),
        (299, b"ok", b"X: y\r\n", None, True),
        (200, b"", b"", None, True),
        (300, b"ok", b"", None, False),
        (404, b"ok", b"", None, False),
        (200, b"ok", b"Connection: close\r\n", None, False),
        (200, b"ok", b"", 9, False),
    ],
)
def test_a_success_that_comes_whole_is_known_the_next_time(status, body, lines, size, is_known):
    """By its head but for the length. It is the same answer then, and the connection goes on."""
    heads = KnownHeads()
    talk = Talk(heads=heads)
    talk.ask()
    talk.hear(answer(body, status=status, lines=lines), size)
    assert len(heads.meanings) == is_known
    if not is_known:
        return
    longer = body + b"!"
    talk.ask()
    before_s = time.monotonic()
    talk.hear(answer(longer, status=status, lines=lines))
    first, second = talk.ends
    assert (second.status, second.body) == (status, longer)
    assert second.headers == {**first.headers, b"content-length": b"%d" % len(longer)}
    assert second.sent_s <= before_s <= second.received_s == talk.connection.idle_since_s
    assert (len(talk.idle), talk.gone, len(heads.meanings)) == (2, [], 1)


def test_a_body_of_a_known_head_is_bounded_too():
    talk = Talk(heads=KnownHeads())
    for size_bytes in (2, LIMIT):
        talk.ask()
        talk.hear(answer(b"x" * size_bytes))
        assert talk.ends[-1].body == b"x" * size_bytes
    talk.ask()
    talk.hear(answer(b"x" * (LIMIT + 1)))
    assert isinstance(talk.ends[-1], OutcomeUnknown)


def test_what_stands_in_the_midst_of_an_answer_is_no_known_head():
    """A body may look like an answer, and so may what comes behind an interim one."""
    talk = Talk(heads=KnownHeads())
    talk.ask()
    talk.hear(answer(b"ok"))
    like_one = answer(b"no")
    talk.ask()
    whole = answer(b"12" + like_one + b"34")
    at = whole.index(like_one)
    for part in (whole[:at], like_one, whole[at + len(like_one) :]):
        talk.hear(part)
    assert talk.ends[-1].body == b"12" + like_one + b"34"
    talk.ask()
    talk.hear(b"HTTP/1.1 103 X\r\nX-Long: ")
    talk.hear(like_one)
    assert isinstance(talk.ends[-1], OutcomeUnknown), "no parser would take it"


@pytest.mark.parametrize("over", [0, 1])
def test_a_head_is_bounded(over):
    """To the byte, where the segment ends with it."""
    start = b"HTTP/1.1 200 X\r\nContent-Length: 2\r\n"
    lines = b"".join(b"X-%04d: %b\r\n" % (number, b"y" * 300) for number in range(200))
    left = HEAD_LIMIT_BYTES + over - len(start) - len(lines) - len(b"Z: \r\n\r\n")
    head = start + lines + b"Z: %b\r\n\r\n" % (b"z" * left)
    assert len(head) == HEAD_LIMIT_BYTES + over
    talk = Talk()
    talk.ask()
    talk.hear(head)
    talk.hear(b"ok")
    (came_to,) = talk.ends
    assert isinstance(came_to, OutcomeUnknown if over else Response)
    if over:
        assert f"expected a head of at most {HEAD_LIMIT_BYTES} bytes" in str(came_to)


def test_framing_is_bounded_only_where_there_is_no_body_in_it():
    """However much of it there is in all."""
    many = HEAD_LIMIT_BYTES // 3
    whole = answer(b"x" * many, framing="chunks", size=1)
    assert len(whole) > 2 * HEAD_LIMIT_BYTES - 100
    got, _ = heard(whole, size=1000, body_limit_bytes=many)
    assert got.body == b"x" * many


def test_an_answer_before_all_was_sent_is_the_last_one():
    """What is left would follow later, as if it belonged to the next request."""
    talk = Talk()
    talk.ask()
    talk.wire.unsent = 1
    talk.hear(answer(b"ok"))
    assert talk.ends[-1].body == b"ok"
    assert (talk.idle, len(talk.gone), talk.wire.closing) == ([], 1, True)


@given(
    bodies=st.lists(st.binary(max_size=40), min_size=1, max_size=5),
    size=st.integers(1, 30),
    framing=st.sampled_from(["length", "chunks"]),
)
def test_answers_follow_one_another_on_one_connection(bodies, size, framing):
    """Nothing of one answer shows in the next one on the same connection."""
    talk = Talk()
    for number, body in enumerate(bodies):
        talk.ask()
        lines = b"X-%d: a\r\n" % number
        talk.hear(answer(body, framing=framing, lines=lines, size=size), size)
        got = talk.ends[-1]
        assert got.body == body
        assert [name for name in got.headers if name.startswith(b"x-")] == [b"x-%d" % number]


BEGUN = answer(b"ok")


@given(
    data=st.binary(max_size=200),
    begun=st.sampled_from(
        [b"", BEGUN[:17], BEGUN[:-1], b"HTTP/1.1 200 OK\r\n" + CHUNKED + b"\r\n"]
    ),
)
def test_no_bytes_confuse_it(data, begun):
    """Any bytes whatever end in an answer, or in OutcomeUnknown; nothing escapes."""
    talk = Talk()
    talk.ask()
    for piece in (begun, data, data):
        talk.hear(piece)
    talk.end()
    (came_to,) = talk.ends
    assert isinstance(came_to, OutcomeUnknown | Response)
    assert talk.wire.closing or isinstance(came_to, Response)


# --- the exchange ---------------------------------------------------------------------------------


def test_what_breaks_off_is_unknown_once_it_was_written():
    ends = []
    unsent = OutgoingRequest("GET", URL, ends.append, LIMIT)
    unsent.expire(2.0)
    unsent.expire(2.0)
    talk = Talk()
    talk.ask().expire(0.5)
    (early,), (late,) = ends, talk.ends
    assert (type(early), str(early)) == (NotDelivered, f"GET {URL}: no connection within 2 s")
    assert (type(late), str(late)) == (
        OutcomeUnknown,
        f"GET {URL}: no complete answer within 0.5 s",
    )
    assert (len(talk.gone), talk.wire.closing) == (1, True)


@pytest.mark.parametrize("how", ["cancel", "fail", "answer"])
async def test_what_has_ended_rings_no_more_and_is_told_once(how):
    loop = asyncio.get_running_loop()
    talk = Talk()
    exchange = talk.ask()
    timer = exchange.timer = loop.call_later(3600.0, exchange.expire, 3600.0)
    opening = loop.create_future()
    if how == "cancel":
        exchange.opening = opening
        exchange.cancel()
    elif how == "fail":
        exchange.fail(KeyError("x"))
    else:
        talk.hear(answer(b"ok"))
    assert timer.cancelled()
    assert (exchange.timer, exchange.on_end, exchange.connection) == (None, None, None)
    assert opening.cancelled() is (how == "cancel")
    assert talk.wire.closing is (how != "answer")
    exchange.break_off("again")
    exchange.end(KeyError("again"))
    assert len(talk.ends) == (how != "cancel")


# --- streams --------------------------------------------------------------------------------------


def test_a_stream_that_ends_gives_its_connection_back_and_reads_on():
    talk = Talk()
    pieces = []
    exchange = talk.ask(on_head=lambda *_: pieces.append)
    whole = answer(b"abcdef", framing="chunks", size=3)
    talk.hear(whole[:-5])
    assert b"".join(pieces) == b"abcdef"
    exchange.pause()
    talk.hear(whole[-5:])
    (end,) = talk.ends
    assert (end.body, end.headers, talk.wire.reading, len(talk.idle)) == (b"", {}, True, 1)


def test_an_answer_with_a_length_is_never_a_stream_of_its_head():
    """Nor where the head wants it whole."""
    for framing, asked in (("length", 0), ("chunks", 1)):
        talk, told = Talk(), []
        talk.ask(on_head=lambda status, headers, told=told: told.append((status, dict(headers))))
        talk.hear(answer(b"abc", framing=framing, lines=b"X: y\r\n"))
        assert talk.ends[-1].body == b"abc"
        assert talk.ends[-1].headers[b"x"] == b"y"
        assert [status for status, _ in told] == [200] * asked


# --- what is counted ------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["answer", "lost", "closed", "too long", "large"])
async def test_a_body_in_parts_counts_while_it_is_read(how):
    """What comes in one piece is handed over at once. Nothing is left of it, however it ends."""
    moving = Moving(Timers(asyncio.get_running_loop()), HeldBytes(2**40), lambda _: None)
    talk = Talk(moving=moving)
    size = 300_000 if how == "large" else 900
    exchange = talk.ask(body_limit_bytes=max(size, LIMIT))
    talk.hear(answer(b"x" * size)[: -size + 100])
    assert moving.bytes == 0
    talk.hear(b"x" * 200)
    assert moving.bytes == 300
    talk.hear(b"x" * 300)
    assert moving.bytes == 600
    if how in ("answer", "large"):
        talk.hear(b"x" * (size - 600))
        assert talk.ends[-1].body == b"x" * size
    elif how == "lost":
        talk.connection.connection_lost(None)
    elif how == "closed":
        exchange.cancel()
    else:
        exchange.break_off("too long")
    assert moving.bytes == 0


async def test_a_body_in_parts_that_is_handed_on_counts_no_more():
    moving = Moving(Timers(asyncio.get_running_loop()), HeldBytes(2**40), lambda _: None)
    talk, pieces = Talk(moving=moving), []
    talk.ask(on_head=lambda *_: pieces.append)
    talk.hear(answer(b"x" * 400, framing="chunks", size=100))
    assert (b"".join(pieces), moving.bytes) == (b"x" * 400, 0)
