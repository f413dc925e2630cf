"""Requests that pass through, each on one connection: what is told of an answer, in whatever pieces
it comes, whether the connection carries another one behind it, and connections that turn out to be
no good before a request has left."""

import asyncio
from contextlib import asynccontextmanager
from functools import partial

import pytest

from spillover.live.engine.write_batch import WriteBatch
from spillover.live.handlers.proxy.exchange import PassedExchange
from spillover.live.http1.client import HttpClient
from spillover.live.http1.connection import Connection
from spillover.live.http1.known_heads import KnownHeads
from spillover.live.http1.outgoing import Again, Response
from spillover.live.http1.rules import INTERIM_MAX
from spillover.live.http1.small_reads import READ_BYTES
from spillover.model.errors import OutcomeUnknown
from support.loop import until
from support.scripted_server import answer, scripted

LIMIT = 1_000_000
REQUEST = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
POSTED = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n"
SAID = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

HAPPENS = {
    "an answer comes": lambda connection: connection.data_received(SAID),
    "it ends": lambda connection: connection.eof_received(),
    "it breaks": lambda connection: connection.connection_lost(ConnectionResetError()),
}


def client_of(server, **options):
    writes = WriteBatch(asyncio.get_running_loop())
    make = partial(Connection, writes=writes, heads=KnownHeads(), reads_small=True)
    return HttpClient(server.url, make_connection=make, **options)


@pytest.mark.parametrize("happens", HAPPENS.values(), ids=HAPPENS)
async def test_what_comes_before_a_request_has_left_sends_it_on_another_connection(happens):
    """In the same turn of the loop: it is no answer to it, and nothing of it was sent."""
    ends, heads = [], []
    async with scripted(answer(204)) as server:
        client = client_of(server)
        await client.warm(1)
        (connection,) = client._kept.idle
        exchange = PassedExchange(
            "POST", "u", ends.append, LIMIT, on_begin=heads.append, on_piece=heads.append
        )
        client.dispatch(exchange, POSTED, ())
        happens(connection)
        await until(lambda: ends)
        assert (ends[0].status, len(server.seen), len(heads)) == (204, 1, 1)
        assert connection not in client._open
        await client.close()


async def test_who_takes_no_whole_answers_gets_known_ones_piece_by_piece_too():
    """Though others were told all of it at once, by its head."""
    told = []
    async with scripted(answer(200, b"ok")) as server:
        client = client_of(server)
        for takes_whole in (True, True, False):
            ends, heads, pieces = [], [], []
            exchange = PassedExchange(
                "GET",
                "u",
                ends.append,
                LIMIT,
                on_begin=heads.append,
                on_piece=pieces.append,
                takes_whole=takes_whole,
            )
            client.dispatch(exchange, REQUEST, ())
            await until(lambda ends=ends: ends)
            told.append((len(heads), b"".join(pieces), exchange.at_once is not None))
        await client.close()
    assert told == [(0, b"", True), (0, b"", True), (1, b"ok", False)]


# --- answers that are played by hand ------------------------------------------------------------

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"
CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
ENDLESS = b"HTTP/1.1 200 OK\r\n\r\n"
HINTS = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
END, BREAK = "the service ends it", "it breaks"
CLOSED = "the server closed the connection before the answer was whole"
BROKE = "the connection broke before the answer was whole: gone"
NOT_HTTP = "the answer is not valid HTTP: "


class Asked:
    """A request that has left on a connection of `client`. What comes is played by hand; `told` has
    all that is told of it. `stops_at` is what its owner wants to hear no more behind."""

    def __init__(self, client, connection, method="GET", *, takes_whole=False, stops_at=None):
        self.told, self.hints, self.stops_at = [], [], stops_at
        self.exchange = PassedExchange(
            method,
            "u",
            lambda came_to: self.tell("end", came_to),
            LIMIT,
            on_begin=self.head_came,
            on_piece=lambda data: self.tell("piece", data),
            takes_whole=takes_whole,
        )
        client.dispatch(self.exchange, REQUEST, ())
        connection._writes.flush()
        assert self.exchange.connection is connection

    def head_came(self, head):
        if head.status < 200:
            self.hints.append((head.status, head.headers))
        else:
            self.tell("head", head)

    def tell(self, what, came):
        self.told.append((what, came))
        if what == self.stops_at:
            self.exchange.cancel()

    @property
    def statuses(self):
        return [came.status for what, came in self.told if what == "head"]

    @property
    def body(self):
        """Of what was told piece by piece."""
        return b"".join(came for what, came in self.told if what == "piece")

    @property
    def ends(self):
        return [came for what, came in self.told if what == "end"]


@asynccontextmanager
async def with_connection():
    """A client that has one connection, which is idle, to who says nothing."""
    async with scripted(b"") as server:
        client = client_of(server, again=Again.NEVER)
        await client.warm(1)
        (connection,) = client._kept.idle
        try:
            yield client, connection, server
        finally:
            await client.close()


async def play(connection, *pieces):
    """They come when nothing of the request is still to be written."""
    await until(lambda: not connection._transport.get_write_buffer_size())
    for piece in pieces:
        if piece is END:
            connection.eof_received()
        elif piece is BREAK:
            connection.connection_lost(ConnectionResetError("gone"))
        else:
            connection.data_received(piece)


def singly(data):
    return [data[at : at + 1] for at in range(len(data))]


# By name: method, what comes, status, body, whether it is told by its end alone to who takes whole
# ones, and whether the connection is used again.
WHOLE = {
    "in one piece": ("GET", [HEAD + b"ok"], 200, b"ok", True, True),
    "byte by byte": ("GET", singly(HEAD + b"ok"), 200, b"ok", False, True),
    "the body behind its head": ("GET", [HEAD, b"ok"], 200, b"ok", False, True),
    "no body": ("GET", singly(SAID), 200, b"", True, True),
    "to HEAD": ("HEAD", [HEAD], 200, b"", True, True),
    "chunks": ("GET", [CHUNKS, b"2\r\nok\r\n", b"0\r\n\r\n"], 200, b"ok", False, True),
    "chunks at once": ("GET", [CHUNKS + b"2\r\nok\r\n0\r\n\r\n"], 200, b"ok", True, True),
    "behind hints": ("GET", [HINTS + HINTS, HINTS + HEAD, b"ok"], 200, b"ok", False, True),
    "behind many hints": ("GET", [HINTS * INTERIM_MAX, HEAD + b"ok"], 200, b"ok", True, True),
    "with more behind it": ("GET", [HEAD + b"okHTTP/1.1 408 "], 200, b"ok", True, False),
    "with more behind its last piece": ("GET", [HEAD + b"o", b"kx"], 200, b"ok", False, False),
    "a body to HEAD": ("HEAD", [HEAD + b"ok"], 200, b"", True, False),
    "the last one": (
        "GET",
        [HEAD.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") + b"ok"],
        200,
        b"ok",
        True,
        False,
    ),
    "to the end": ("GET", [ENDLESS, b"o", b"k", END], 200, b"ok", False, False),
    "to the end in one piece": ("GET", [ENDLESS + b"ok", END], 200, b"ok", False, False),
    "nothing to the end": ("GET", [ENDLESS, END], 200, b"", False, False),
}


@pytest.mark.parametrize("takes_whole", [False, True])
@pytest.mark.parametrize("name", WHOLE)
async def test_a_whole_answer_is_told_as_it_comes(name, takes_whole):
    method, pieces, status, body, is_at_once, is_reused = WHOLE[name]

    async with with_connection() as (client, connection, _):
        asked = Asked(client, connection, method, takes_whole=takes_whole)
        before_s = asked.exchange.sent_s
        await play(connection, *pieces)
        (ended,) = asked.ends
        assert isinstance(ended, Response)
        assert (ended.status, ended.body, ended.sent_s) == (status, b"", before_s)
        assert asked.told[-1] == ("end", ended)
        assert asked.exchange.has_begun
        if takes_whole and is_at_once:
            head, whole = asked.exchange.at_once
            assert (asked.statuses, asked.body, head.status, whole) == ([], b"", status, body)
        else:
            assert asked.exchange.at_once is None
            assert asked.told[0][0] == "head"
            assert (asked.statuses, asked.body) == ([status], body)
        assert (client.idle, client.busy) == (int(is_reused), 0)
        assert asked.exchange.connection is connection.exchange is None
        if is_reused:
            assert connection.idle_since_s == ended.received_s >= before_s


# By name: what comes, whether a head is told, what of the body is, and why it is not whole.
NOT_WHOLE = {
    "no answer": ([END], False, b"", CLOSED),
    "half a head": ([HEAD[:20], END], False, b"", CLOSED),
    "half a body": ([HEAD + b"o", END], True, b"o", CLOSED),
    "half of the chunks": ([CHUNKS + b"2\r\nok\r\n", END], True, b"ok", CLOSED),
    "hints alone": ([HINTS, END], False, b"", CLOSED),
    "it breaks at once": ([BREAK], False, b"", BROKE),
    "it breaks in a body": ([ENDLESS + b"o", BREAK], True, b"o", BROKE),
    "no HTTP": ([b"SSH-2.0\r\n\r\n"], False, b"", NOT_HTTP),
    "no chunk": ([CHUNKS, b"2\r\nok\r\n", b"x\r\n"], True, b"ok", NOT_HTTP),
    "no chunk at once": ([CHUNKS + b"x\r\n"], False, b"", NOT_HTTP),
    "hints for ever": (
        [HINTS] * (INTERIM_MAX + 1), False, b"", f"{NOT_HTTP}more than {INTERIM_MAX} interim"
    ),
    "hints for ever at once": (
        [HINTS * (INTERIM_MAX + 1) + HEAD], False, b"", f"{NOT_HTTP}more than {INTERIM_MAX} interim"
    ),
}  # fmt: skip


@pytest.mark.parametrize("takes_whole", [False, True])
@pytest.mark.parametrize("name", NOT_WHOLE)
async def test_what_does_not_come_whole_is_told_to_be_broken_off(name, takes_whole):
    pieces, has_head, body, why = NOT_WHOLE[name]

    async with with_connection() as (client, connection, _):
        asked = Asked(client, connection, takes_whole=takes_whole)
        await play(connection, *pieces)
        (ended,) = asked.ends
        assert isinstance(ended, OutcomeUnknown)
        assert str(ended).startswith(f"GET u: {why}")
        assert (asked.statuses, asked.body) == ([200] * has_head, body)
        assert asked.exchange.has_begun == has_head
        assert asked.exchange.at_once is None
        assert (client.idle, client.busy) == (0, 0)


@pytest.mark.parametrize("takes_whole", [False, True])
async def test_trailers_are_there_when_the_end_is_told(takes_whole):

    async with with_connection() as (client, connection, _):
        for pieces in ([CHUNKS + b"0\r\nA: b\r\n\r\n"], [CHUNKS, b"0\r\nA: b\r\n\r\n"]):
            asked = Asked(client, connection, takes_whole=takes_whole)
            await play(connection, *pieces)
            assert len(asked.ends) == 1
            assert asked.exchange.trailers == ((b"A", b"b"),)


@pytest.mark.parametrize("stops_at", ["head", "piece"])
@pytest.mark.parametrize("pieces", [[HEAD + b"ok"], [HEAD, b"o", b"k"], [ENDLESS + b"ok", b"x"]])
async def test_who_wants_no_more_of_an_answer_hears_no_more_of_it(pieces, stops_at):
    async with with_connection() as (client, connection, _):
        asked = Asked(client, connection, stops_at=stops_at)
        await play(connection, *pieces)
        assert [what for what, _ in asked.told] == ["head", "piece"][: 1 + (stops_at == "piece")]
        assert (client.idle, client.busy) == (0, 0)


async def test_what_comes_on_an_idle_connection_is_its_end():
    """It must not be taken for the answer to the next request, nor may that one be lost."""
    async with with_connection() as (client, connection, _):
        await play(connection, SAID)
        assert (client.idle, client.busy) == (0, 0)
        await client.warm(1)
        (other,) = client._kept.idle
        await play(other, END)
        assert (client.idle, client.busy) == (0, 0)


async def test_a_known_answer_is_one_from_its_first_byte_on_and_not_to_head():
    """What looks like one may stand in the midst of another, which has to be read."""
    async with with_connection() as (client, connection, _):
        for length in (b"2", b""):  # the second time it is known, whatever its length
            asked = Asked(client, connection, takes_whole=True)
            await play(connection, HEAD + b"ok")
            head, body = asked.exchange.at_once
            assert (head.headers, body) == (((b"Content-Length", length),), b"ok")
        asked = Asked(client, connection, takes_whole=True)
        await play(connection, b"HTTP/1.1 500 No\r\nX: ", HEAD + b"no")
        head, body = asked.exchange.at_once
        assert (head.status, head.headers[0], body) == (500, (b"X", b"HTTP/1.1 200 OK"), b"no")
        assert asked.ends[0].status == 500
        asked = Asked(client, connection, "HEAD", takes_whole=True)
        await play(connection, HEAD + b"ok")
        assert asked.exchange.at_once[1] == b""
        assert (client.idle, client.busy) == (0, 0), "the two bytes are nobody's"


async def test_what_is_known_by_its_head_ends_a_connection_that_says_so():
    """Each time it says so, also the second time, when it is not read."""
    last = HEAD.replace(b"Content", b"Connection: close\r\nContent")

    async with with_connection() as (client, *_):
        for round_ in range(3):
            (connection,) = client._kept.idle
            asked = Asked(client, connection, takes_whole=True)
            await play(connection, last + b"ok")
            assert (asked.exchange.has_begun, asked.exchange.at_once[1]) == (True, b"ok"), round_
            assert (asked.ends[0].status, client.idle, client.busy) == (200, 0, 0)
            await client.warm(1)


async def test_a_long_answer_comes_in_parts_of_which_no_more_than_one_waits():
    size = 2**22

    async with with_connection() as (client, connection, server):
        head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size
        server.answers(head + b"x" * size)
        asked = Asked(client, connection)
        await until(lambda: asked.ends)
        sizes = [len(came) for what, came in asked.told if what == "piece"]
        assert sum(sizes) == size
        assert max(sizes) <= READ_BYTES
