"""What an ASGI app gets and what becomes of what it sends, over real sockets: whole answers,
pieces, and apps that break the rules. A connection never waits for an answer that does not come."""

import asyncio
import inspect
import json
import logging
import re
from contextlib import asynccontextmanager
from functools import partial

import pytest
import uvicorn

from spillover.apps.http import asgi
from spillover.apps.http.server import HttpServer, url_of
from spillover.live.http1 import lingering
from spillover.live.http1.bounds import Bounds
from spillover.live.process.listening import bind_socket
from support.loop import turn, until

GET = b"GET /a%20b?c=d HTTP/1.1\r\nHost: x\r\n\r\n"
LAST = GET.replace(b"Host", b"Connection: close\r\nHost")
POST = b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n"


@pytest.fixture
def errors(monkeypatch, caplog):
    """What the log says of bugs, each time: it says the same once in a while only."""
    monkeypatch.setattr(asgi._log, "filters", [])
    return lambda: [each for each in caplog.records if each.levelno == logging.ERROR]


@asynccontextmanager
async def serving(app, bounds=None, **options):
    """A function that opens a connection to the app; `connections` are the server's ends."""
    with bind_socket("127.0.0.1", 0) as listening:
        server = HttpServer(app, bounds, **options)
        task = asyncio.create_task(server.serve(sockets=[listening]))
        await server.ready.wait()
        port = int(url_of(listening).rpartition(":")[2])
        connect = partial(asyncio.open_connection, "127.0.0.1", port)
        connect.connections = server.server_state.connections
        try:
            yield connect
        finally:
            server.stop()
            await task


def talk(app, *segments, bounds=None, **options):
    """All that comes back on one connection until its end."""

    async def main():
        async with serving(app, bounds, **options) as connect, asyncio.timeout(60.0):
            reader, writer = await connect()
            for segment in segments:
                writer.write(segment)
                await asyncio.wait_for(writer.drain(), 30.0)
            answer = await reader.read()
            writer.close()
            return answer

    return asyncio.run(main())


def start(status=200, *headers):
    return {"type": "http.response.start", "status": status, "headers": headers}


def part(body=b"", *, more=False):
    return {"type": "http.response.body", "body": body, "more_body": more}


def sends(*messages):
    """An app that does only that."""

    async def app(scope, receive, send):
        for message in messages:
            await send(message)

    return app


def test_uvicorn_has_what_is_replaced_of_it():
    """A release that calls these otherwise would look at the clock ten times a second, or take the
    signals: nothing else would tell."""
    of_uvicorn = {name for name, what in vars(uvicorn.Server).items() if callable(what)}
    replaced = of_uvicorn & set(vars(HttpServer))
    assert replaced == {"__init__", "startup", "main_loop", "shutdown", "capture_signals"}
    for name in ("startup", "main_loop", "shutdown"):
        assert inspect.iscoroutinefunction(getattr(uvicorn.Server, name))
    assert "http" in inspect.signature(uvicorn.Config).parameters


def test_an_app_gets_the_request_and_its_answer_arrives():
    """The scope, the body, and an answer whose length is told: the connection goes on."""

    async def app(scope, receive, send):
        message = await receive()
        told = [scope[name] for name in ("method", "path", "scheme", "root_path", "type")]
        told += [scope["query_string"].decode(), scope["client"][0], len(message["body"])]
        body = json.dumps([*told, message["more_body"]]).encode()
        await send(start(200, (b"Content-Length", b"%d" % len(body))))
        await send(part(body))

    answer = talk(app, GET, POST + b"\r\nhello", LAST)
    bodies = [json.loads(told) for told in re.findall(rb"\[.*?\]", answer)]
    assert len(bodies) == 3
    assert bodies[0] == ["GET", "/a b", "http", "", "http", "c=d", "127.0.0.1", 0, False]
    assert bodies[1] == ["POST", "/x", "http", "", "http", "", "127.0.0.1", 5, False]
    assert answer.count(b"connection: close") == 1


def test_an_answer_without_a_length_comes_in_chunks():
    """And ends like one, so that the connection goes on."""
    app = sends(start(201), part(b"some", more=True), part(b"", more=True), part(b"thing"))
    answer = talk(app, GET, LAST)
    assert answer.count(b"transfer-encoding: chunked\r\n") == 2
    assert answer.count(b"4\r\nsome\r\n5\r\nthing\r\n0\r\n\r\n") == 2
    assert answer.startswith(b"HTTP/1.1 201 Created\r\n")


@pytest.mark.parametrize("status", [204, 304])
def test_answers_that_have_no_body(status):
    head = b"HTTP/1.1 %d" % status
    answer = talk(sends(start(status), part()), GET, LAST)
    assert answer.count(head) == 2
    assert b"chunked" not in answer


BROKEN = {
    "no answer": sends(),
    "a body first": sends(part(b"x")),
    "a name with a blank": sends(start(200, (b"a b", b"c"))),
    "a value with a line end": sends(start(200, (b"a", b"b\r\nc: d"))),
    "no number": sends(start(200, (b"content-length", b"x"))),
}


@pytest.mark.parametrize("name", BROKEN)
def test_an_app_that_has_not_begun_to_answer_is_a_bug(name, errors):
    """500 with the reason `internal`, and a line in the log."""
    answer = talk(BROKEN[name], LAST)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 500")
    assert json.loads(body)["reason"] == "internal"
    assert len(errors()) == 1


LEFT = {
    "too little": sends(start(200, (b"content-length", b"4")), part(b"xx")),
    "too much": sends(start(200, (b"content-length", b"4")), part(b"xxxxx")),
    "no end": sends(start(200), part(b"xx", more=True)),
    "begun twice": sends(start(200, (b"content-length", b"4")), start(200)),
}


@pytest.mark.parametrize("name", LEFT)
def test_an_answer_that_is_left_ends_its_connection(name, errors):
    """Nothing else is taken for its rest."""
    answer = talk(LEFT[name], GET)
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.count(b"HTTP/1.1") == 1
    assert len(errors()) == 1


@pytest.mark.parametrize("reads", [True, False])
def test_a_body_is_asked_for_where_the_client_waits_for_that(reads):
    """Else what follows the answer may be the body or not, and the connection ends."""

    async def app(scope, receive, send):
        body = (await receive())["body"] if reads and scope["method"] == "POST" else b"none"
        await send(start(200, (b"content-length", b"%d" % len(body))))
        await send(part(body))

    async def main():
        async with serving(app) as connect, asyncio.timeout(10.0):
            reader, writer = await connect()
            writer.write(POST + b"Expect: 100-continue\r\n\r\n")
            if reads:
                assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
                writer.write(b"hello" + LAST)
            answer = await reader.read()
            writer.close()
            return answer

    answer = asyncio.run(main())
    assert answer.count(b"HTTP/1.1 200") == 1 + reads
    assert (b"hello" in answer) == reads
    assert answer.count(b"connection: close") == 1


async def test_a_slow_reader_holds_up_the_sender():
    """Who sends is told to wait: what is unread does not pile up."""
    sent = []

    async def app(scope, receive, send):
        await send(start())
        for number in range(200):
            await send(part(b"x" * 100_000, more=number < 199))
            sent.append(number)

    async with serving(app) as connect, asyncio.timeout(30.0):
        reader, writer = await connect()
        writer.write(LAST)
        await reader.readexactly(1)
        for _ in range(1000):
            await turn()
        assert len(sent) < 200
        while await reader.read(1_000_000):
            pass
        assert len(sent) == 200
        writer.close()


@pytest.mark.parametrize("chunks", [b"", b"5\r\nhel", b"zz\r\n", b"5\r\nhello\r\n0\r\n\r\n"])
async def test_a_connection_beyond_the_limit_is_not_kept_for_a_body(chunks, caplog, monkeypatch):
    """Whatever has come of it: there is one answer, and it counts no more, though its client keeps
    its end."""
    monkeypatch.setattr(lingering, "QUIET_S", lingering.LINGER_S)
    ok = sends(start(200, (b"content-length", b"2")), part(b"ok"))
    async with serving(ok, Bounds(connections_max=0)) as connect, asyncio.timeout(10.0):
        reader, writer = await connect()
        coded = b"POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        writer.write(coded + chunks)
        answers = await reader.read()
        assert answers.startswith(b"HTTP/1.1 503")
        assert answers.count(b"HTTP/1.1") == 1
        await until(lambda: not connect.connections)
        writer.close()
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


async def test_an_exchange_that_takes_too_long_is_cut_off():
    """Where it is bounded: while nothing comes, or too little, and while the app works."""

    async def waits(scope, receive, send):
        await asyncio.Event().wait()

    async with serving(waits, Bounds(exchange_s=0.2), stop_s=0) as connect, asyncio.timeout(60.0):

        async def answer_to(said):
            reader, writer = await connect()
            writer.write(said)
            answer = await reader.read()
            writer.close()
            return answer

        said = (b"", b"GE", POST + b"\r\nhel", POST + b"\r\nhello")
        assert await asyncio.gather(*map(answer_to, said)) == [b""] * len(said)


async def test_at_the_end_what_is_not_answered_in_time_is_cut_off():
    """Its task is cancelled, and nobody waits for it."""
    began, ended = asyncio.Event(), []

    async def waits(scope, receive, send):
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(scope["path"])

    async with serving(waits, stop_s=0) as connect, asyncio.timeout(10.0):
        _, writer = await connect()
        writer.write(GET)
        await began.wait()
    await until(lambda: ended == ["/a b"])
    writer.close()
    await until(lambda: not connect.connections)
