"""What could put a client's connection, or a service's, out of step with its requests: nobody may
be given the answer to another one's request.
"""

import asyncio
from contextlib import asynccontextmanager

import pytest

from spillover.apps.node.door_pages import Origins, Page
from spillover.apps.node.passed_answers import PassedAnswer
from spillover.core.overflow.events import SoFar
from spillover.live.handlers.proxy.known import WrittenHeads
from spillover.live.http1.heads import read_request
from spillover.model.passed import PassedHead
from support.federation import until
from support.passed_requests import get, post
from support.proxy_doors import in_front

STRAY = b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n"


async def test_an_answer_that_was_held_back_and_is_empty_ends_once():
    """In chunks, where an empty one is the last."""
    says_no = b"HTTP/1.1 503 Busy\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    async with in_front(cluster={"not_run_statuses": (503,)}) as here:

        async def answer(talk, head, _):
            ok = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
            await talk.say(says_no if b"/busy" in head else ok)
            return True

        here.service.answer = answer
        client = await here.client()
        read = await client.ask(get(target=b"/busy"))
        assert (read.status, read.body, read.is_whole) == (503, b"", True)
        read = await client.ask(get())
        assert (read.start, read.body) == (b"HTTP/1.1 200 OK", b"ok")


async def test_what_a_service_says_unasked_is_the_answer_to_no_request():
    """It comes on an idle connection in the turn in which a request takes that."""
    async with in_front(cluster={"servers": 4}) as here:
        talks = []

        async def answer(talk, head, _):
            talks.append(talk)
            path = head.split(b" ")[1]
            await talk.say(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(path), path))
            return True

        here.service.answer = answer
        clients = [await here.client() for _ in range(2)]
        for number in range(20):
            await clients[0].ask(get())
            await until(lambda: here["a"].ledger.home["running"] == 0)
            first, second = (b"/of-%d-%d" % (number, client) for client in range(2))
            clients[0].writer.write(get(target=first))
            talks[-1].writer.write(STRAY)
            clients[1].writer.write(get(target=second))
            answers = [await client.answer() for client in clients]
            for read, path in zip(answers, (first, second), strict=True):
                assert read.body == path or read.status == 408


@asynccontextmanager
async def hasty_service(_):
    """One that answers a head and does not read the body behind it."""

    async def talk(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        ends.append(writer)

    ends = []
    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in ends:
            writer.close()


async def test_what_an_early_answer_has_left_of_its_request_stands_before_no_other():
    """It is still to be sent on that connection: another request goes on another one."""
    async with in_front(between=hasty_service) as here:
        client = await here.client()
        body = b"x" * (8 << 20)
        raw = post(b"Content-Length: %d" % len(body), body=body)
        assert (await client.ask(raw)).body == b"ok"
        assert (await client.ask(get())).body == b"ok"


class Line:
    """A client's connection, as far as answers go."""

    def __init__(self):
        self.write_paused = self.half_closed = self.is_gone = False
        self.out = b""
        self.is_reset = False

    def write(self, data):
        self.out += bytes(data)

    write_later = write

    def writelines(self, parts):
        self.out += b"".join(parts)

    def answered(self, *, keep_alive):
        pass

    def reset(self, last_words=b""):
        self.is_reset = True
        self.out += last_words


class Flow:
    """Never paused."""

    is_whole = False

    def pause(self):
        pass

    resume = pause


@pytest.mark.parametrize(
    ("fields", "trailers"),
    [
        ([(b"Content-Length", b"5"), (b"Transfer-Encoding ", b"chunked")], []),
        ([(b"X", b"y\x00z")], []),
        ([(b"", b"v")], []),
        ([(b"X", b"y\r\nZ: 1")], []),
        ([], [(b"Content-Length ", b"9")]),
        ([], [(b"X", b"y\r\n\r\nHTTP/1.1 200 OK")]),
    ],
)
async def test_what_a_neighbor_says_and_nobody_reads_alike_is_broken_off(fields, trailers):
    """Lines that some clients take for a header that frames the answer, and others do not."""
    line = Line()
    head = b"GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: TE\r\n"
    answer = PassedAnswer(None, line, read_request(head), WrittenHeads())
    answer.own_name = "x"
    answer.begin(PassedHead(200, b"OK", tuple(fields)), SoFar(("a",), 0, 0, 0), Flow())
    answer.piece(b"hello")
    answer.end(tuple(trailers), None)
    assert line.is_reset
    assert b"\r\n0\r\n" not in line.out
    assert all(name not in line.out for name, _ in [*fields, *trailers] if name.endswith(b" "))


async def test_a_head_that_cannot_be_sent_lets_no_page_read_and_no_event_follow():
    """What a neighbor has made up would be written into errors to other pages, as lines of ours."""
    line, origins = Line(), Origins()
    head = read_request(b"GET / HTTP/1.1\r\nHost: a\r\nOrigin: https://app.example\r\n")
    page = Page(origins, head)
    fields = (
        (b"Content-Type", b"text/event-stream"),
        (b"Access-Control-Allow-Origin", b"*"),
        (b"Access-Control-Allow-Methods", b"GET\r\nSet-Cookie: a=b"),
    )
    answer = PassedAnswer(None, line, head, WrittenHeads())
    answer.own_name, answer.page, answer.tells_events = "x", page, True
    answer.begin(PassedHead(200, b"OK", fields), SoFar(("a",), 0, 0, 0), Flow())
    assert (line.is_reset, line.out, page.may_read()) == (True, b"", ())


class Whole(Flow):
    """Of an answer that is there at once."""

    is_whole = True

    def __init__(self, size_bytes):
        self.size_bytes = size_bytes


@pytest.mark.parametrize("status", [204, 304])
def test_an_answer_that_has_no_body_gets_none_however_often_a_neighbor_says_it(status):
    """Its client would take that for the answer to what it asks next."""
    request = read_request(b"GET / HTTP/1.1\r\nHost: a\r\n")
    head = PassedHead(status, b"No", ((b"Content-Length", b""),))
    told = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    known = WrittenHeads()

    def answered(body):
        line = Line()
        answer = PassedAnswer(None, line, request, known)
        answer.own_name = "x"
        answer.begin(head, SoFar(("a",), 0, 0, 0), Whole(len(body)))
        answer.piece(body)
        answer.end((), None)
        return line

    for body in (b"", told, told):
        line = answered(body)
        assert line.is_reset == bool(body)
        assert told not in line.out
