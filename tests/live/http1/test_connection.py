"""How one connection reads answers, whatever segments they come in. No sockets."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from spillover.live.http1.connection import Connection
from spillover.live.http1.outgoing import OutgoingRequest, Response
from spillover.model.errors import NotDelivered, OutcomeUnknown

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

# The answer, its status, its body, whether its connection can be reused.
ANSWERS = {
    "length": (OK, 200, b"ok", True),
    "empty": (b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n", 500, b"", True),
    "chunks": (
        CHUNKED + b"2\r\nab\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n",
        200,
        b"ab0123456789",
        True,
    ),
    "shouted": (
        CHUNKED.replace(b"chunked", b"CHUNKED") + b"1\r\na\r\n0\r\n\r\n",
        200,
        b"a",
        True,
    ),
    "trailers": (CHUNKED + b"1\r\na\r\n0\r\nX-Late: 1\r\n\r\n", 200, b"a", True),
    "empty header": (OK.replace(b"OK\r\n", b"OK\r\nA:\r\nB: \r\n"), 200, b"ok", True),
    "204": (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", True),
    "304": (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", 304, b"", True),
    "100": (b"HTTP/1.1 100 Continue\r\nX-Late: 1\r\n\r\n" + OK, 200, b"ok", True),
    "103": (b"HTTP/1.1 103 Early Hints\r\nX-Late: 1\r\n\r\n" + OK, 200, b"ok", True),
    "close": (OK.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n"), 200, b"ok", False),
    "1.0": (OK.replace(b"HTTP/1.1", b"HTTP/1.0"), 200, b"ok", False),
    "another answer": (OK + OK, 200, b"ok", False),
    "half another": (OK + OK[:17], 200, b"ok", False),
    "garbage": (OK + b"\0\0", 200, b"ok", False),
    "to the end": (b"HTTP/1.1 200 OK\r\n\r\nok", 200, b"ok", False),
    "1.0 to the end": (b"HTTP/1.0 200 OK\r\n\r\nok", 200, b"ok", False),
}


class Wire(asyncio.Transport):
    """Stands for the socket: what arrives, and in which segments, is up to the test."""

    def __init__(self, protocol):
        super().__init__()
        self.protocol = protocol
        self.closing = False
        protocol.connection_made(self)

    def deliver(self, segments):
        for segment in segments:
            if not self.closing:
                self.protocol.data_received(segment)
        if not self.closing and self.protocol.exchange is not None:
            self.protocol.eof_received()

    def write(self, _data):
        assert not self.closing

    def is_closing(self):
        return self.closing

    def abort(self):
        self.closing = True

    def get_write_buffer_size(self):
        return 0


class Owner:
    """Notes what the connection tells it."""

    def __init__(self):
        self.told = []

    def released(self, _connection):
        self.told.append("released")

    def dropped(self, _connection):
        self.told.append("dropped")

    def lost(self, _connection):
        self.told.append("lost")

    def abandoned(self, _connection):
        pass

    def unanswered(self, _connection, exchange, what, *, is_unread):
        exchange.fail(NotDelivered(what) if is_unread else OutcomeUnknown(what))


def ends_on(connection):
    """What an exchange on it comes to, once it has."""
    ends = []
    exchange = OutgoingRequest("GET", "http://127.0.0.1:1/", ends.append, 1000)
    connection.send(exchange, b"GET / HTTP/1.1\r\n\r\n", b"")
    return ends


def read(segments):
    """The answer that these segments make, and whether the connection can carry another."""
    owner = Owner()
    connection = Connection(owner)
    wire = Wire(connection)
    ends = ends_on(connection)
    wire.deliver(segments)
    [answer] = ends
    return answer, owner.told[:1] == ["released"] and not wire.closing


@given(
    answer=st.sampled_from([answer for answer, *_ in ANSWERS.values()]),
    cuts=st.lists(st.integers(1, 200), max_size=20),
)
def test_segments_do_not_matter(answer, cuts):
    """Any split of a valid answer into segments gives the same answer."""
    places = [0, *sorted({cut for cut in cuts if cut < len(answer)}), len(answer)]
    segments = [answer[start:end] for start, end in pairwise(places)]
    got, _ = read(segments)
    whole, _ = read([answer])
    assert (got.status, got.headers, got.body) == (whole.status, whole.headers, whole.body)


@given(
    bodies=st.lists(st.binary(max_size=40), min_size=1, max_size=5),
    sizes=st.lists(st.integers(1, 30), min_size=1),
    chunked=st.booleans(),
)
def test_answers_follow_one_another_on_one_connection(bodies, sizes, chunked):
    """Nothing of one answer shows in the next one on the same connection."""
    connection = Connection(Owner())
    wire = Wire(connection)
    for index, body in enumerate(bodies):
        pieces = [body[at : at + sizes[0]] for at in range(0, len(body), sizes[0])]
        chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
        answer = CHUNKED.replace(b"OK\r\n", b"OK\r\nX-%d: a\r\n" % index)
        answer += chunks + b"0\r\nX-Late: 1\r\n\r\n"
        if not chunked:
            head = b"HTTP/1.1 200 OK\r\nX-%d: a\r\nContent-Length: %d\r\n\r\n"
            answer = head % (index, len(body)) + body
        ends = ends_on(connection)
        step = sizes[index % len(sizes)]
        wire.deliver(answer[at : at + step] for at in range(0, len(answer), step))
        [got] = ends
        assert got.body == body
        assert [name for name in got.headers if name.startswith(b"x-")] == [b"x-%d" % index]


@given(data=st.binary(max_size=200), prefix=st.sampled_from([b"", OK[:17], OK[:-1], CHUNKED]))
def test_no_bytes_confuse_it(data, prefix):
    """Any bytes whatever end in an answer, in OutcomeUnknown, or in waiting; nothing escapes."""
    connection = Connection(Owner())
    wire = Wire(connection)
    ends = ends_on(connection)
    wire.deliver([prefix, data, data])
    [came_to] = ends
    assert isinstance(came_to, OutcomeUnknown | Response)
    assert wire.closing or isinstance(came_to, Response)
