"""The door of a service: what comes in as it may come, and what the service and the client see."""

from __future__ import annotations

import asyncio
import json

from support.federation import run, turn, until
from support.passed_requests import REFUSED, SEEN, get, post, without_way
from support.proxy_doors import doors

LENGTH = b"Content-Length: 5"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def in_front(check, *ids, **options):
    """Run the check with doors in front of a service."""

    async def main():
        async with doors(*ids, **options) as here:
            await check(here)

    run(main)


def told(read):
    """A problem of ours."""
    assert read.get(b"content-type") == "application/problem+json"
    assert read.get(b"proxy-status").startswith("spillover; error=")
    return json.loads(read.body)


def test_the_service_sees_the_same_request_or_none():
    async def check(here):
        for name, (status, raw) in REFUSED.items():
            read = await here.ask(raw)
            assert read.status == status, name
            assert told(read)["status"] == status, name
            assert here.service.seen == [], name
        for name, (raw, start, lines, body) in SEEN.items():
            read = await here.ask(raw)
            while read.status == 100:
                read = await here.ask(raw)
            ((head, seen_body),) = here.service.seen
            first, *others = head[:-4].split(b"\r\n")
            assert (first, without_way(others), seen_body) == (start, lines, body), name
            here.service.seen.clear()

    in_front(check)


def test_the_answer_comes_as_it_is():
    answers = {
        b"HTTP/1.1 203 Odd reason\r\nX-a: 1\r\nset-cookie: b\r\nSet-Cookie: c\r\n"
        b"Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\n\x1f\x8b\x00": b"\x1f\x8b\x00",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n": b"abc",
        b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-1/9\r\n"
        b"Content-Length: 2\r\n\r\nab": b"ab",
        b"HTTP/1.1 204 No Content\r\n\r\n": b"",
        b'HTTP/1.1 304 Not Modified\r\nETag: "a"\r\nContent-Length: 99\r\n\r\n': b"",
        b"HTTP/1.1 503 Busy\r\nRetry-After: 1\r\nContent-Length: 1\r\n\r\nx": b"x",
        b"HTTP/1.1 429 Much\r\nContent-Length: 1\r\n\r\nx": b"x",
        b"HTTP/1.1 500 Oh\r\nContent-Length: 1\r\n\r\nx": b"x",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: a\r\n\r\n" + OK: b"ok",
        b"HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n": b"",
    }

    async def check(here):
        for answer, body in answers.items():
            here.service.answer = answer
            before = len(here.service.seen)
            read = await here.ask(get())
            final = answer[answer.rindex(b"HTTP/1.1") :]
            start, *lines = final.partition(b"\r\n\r\n")[0].split(b"\r\n")
            assert read.start == start
            assert [b"%b: %b" % field for field in read.fields][: len(lines)] == lines
            assert (read.body, read.is_whole) == (body, True)
            assert read.get(b"spillover-path") == "a"
            assert len(here.service.seen) == before + 1, "it was retried"

    in_front(check)


def test_head_has_no_body_whatever_it_tells():
    async def check(here):
        for lines in (b"Content-Length: 9\r\n", b"Transfer-Encoding: chunked\r\n", b""):
            here.service.answer = b"HTTP/1.1 200 OK\r\n%b\r\n" % lines
            client = await here.client()
            for _ in range(2):  # nothing is left over for the next one
                read = await client.ask(get(method=b"HEAD"), "HEAD")
                assert (read.status, read.is_whole) == (200, True)

    in_front(check)


def test_an_answer_that_ends_with_its_connection():
    async def close(talk, *_):
        await talk.say(b"HTTP/1.1 200 OK\r\n\r\nabc", b"def")
        return False

    async def check(here):
        here.service.answer = close
        read = await here.ask(get())
        assert (read.body, read.is_whole) == (b"abcdef", True)
        assert read.get(b"transfer-encoding") == "chunked"
        read = await here.ask(get(version=b"1.0"))
        assert (read.body, read.get(b"connection")) == (b"abcdef", "close")

    in_front(check)


def test_trailers_where_both_sides_can():
    async def check(here):
        here.service.answer = (
            b"HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"2\r\nab\r\n0\r\nX-Sum: 1\r\n\r\n"
        )
        read = await here.ask(get(b"TE: trailers", b"Connection: TE"))
        assert (read.body, read.trailers, read.get(b"trailer")) == (
            b"ab",
            ((b"X-Sum", b"1"),),
            "X-Sum",
        )
        read = await here.ask(get())
        assert (read.body, read.trailers, read.get(b"trailer")) == (b"ab", (), "")

    in_front(check)


def test_each_piece_leaves_before_the_next_one_comes():
    async def check(here):
        more = asyncio.Queue()

        async def stream(talk, *_):
            await talk.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            while piece := await more.get():
                await talk.say(b"%x\r\n%b\r\n" % (len(piece), piece))
            await talk.say(b"0\r\n\r\n")
            return True

        here.service.answer = stream
        client = await here.client()
        client.writer.write(get())
        await client.reader.readuntil(b"\r\n\r\n")
        for number in range(50):
            piece = b"piece %d" % number
            more.put_nowait(piece)
            expected = b"%x\r\n%b\r\n" % (len(piece), piece)
            assert await client.reader.readexactly(len(expected)) == expected
        assert here["a"].ledger.home["running"] == 1
        more.put_nowait(b"")
        assert await client.reader.readexactly(5) == b"0\r\n\r\n"
        await until(lambda: here["a"].ledger.home["done"] == 1)

    in_front(check)


def test_a_service_that_lies_before_anything_begins():
    async def hang_up(talk, *_):
        talk.reset()

    lies = {
        "no HTTP": b"220 hello\r\n\r\n",
        "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "a length and chunks": (
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        ),
        "interim answers for ever": b"HTTP/1.1 103 Early\r\n\r\n" * 1000,
        "a head of 1 MiB": b"HTTP/1.1 200 OK\r\nA: " + b"b" * 1_048_576 + b"\r\n\r\n",
        "another protocol": b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        "a reset": hang_up,
    }

    async def check(here):
        for name, lie in lies.items():
            here.service.answer = lie
            before = len(here.service.seen)
            read = await here.ask(get())
            assert (read.status, told(read)["reason"]) == (502, "handler_failed"), name
            assert len(here.service.seen) == before + 1, name
            here.service.answer = OK
            assert (await here.ask(get())).body == b"ok", name

    in_front(check)


def test_what_begins_and_does_not_come_whole_is_reset():
    async def begin(talk, head, _):
        lie = LIES[head.split(b" ")[1][1:].decode()]
        await talk.say(lie)
        return False

    LIES = {  # noqa: N806 - a table
        "short": b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc",
        "chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        "bad-chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n",
        "bad-trailers": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n: a\r\n\r\n",
    }

    async def check(here):
        here.service.answer = begin
        for name in LIES:
            for version in (b"1.1", b"1.0"):
                client = await here.client()
                read = await client.ask(get(target=b"/" + name.encode(), version=version))
                # What is seen to be bad along with the head has never begun.
                assert read.status == 502 or not read.is_whole, name
        await until(lambda: here["a"].ledger.home["failed"] == 2 * len(LIES))
        assert here["a"].ledger.home["done"] == 0

    in_front(check)


def test_what_comes_behind_an_answer_is_nobodys():
    async def check(here):
        here.service.answer = OK + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"
        client = await here.client()
        for _ in range(3):
            assert (await client.ask(get())).body == b"ok"
        assert here.service.connections >= 3

    in_front(check)


def test_a_client_that_leaves_closes_the_services_connection():
    async def check(here):
        begun = asyncio.Event()

        async def stream(talk, *_):
            await talk.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n")
            begun.set()
            await talk.until_closed()

        here.service.answer = stream
        for key in (b"A: b", b"Idempotency-Key: k"):
            begun.clear()
            gone = here.service.gone
            client = await here.client()
            client.writer.write(get(key))
            await begun.wait()
            client.close()
            await until(lambda gone=gone: here.service.gone == gone + 1)
        await until(lambda: here["a"].ledger.home["cancelled"] == 2)

    in_front(check)


def test_a_client_that_never_reads_stops_the_service():
    async def check(here):
        sent = 0

        async def endless(talk, *_):
            nonlocal sent
            await talk.say(b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n")
            piece = b"x" * 65_536
            while sent < 1_073_741_824:
                await talk.say(piece)
                sent += len(piece)

        here.service.answer = endless
        client = await here.client(limit=1)
        client.writer.transport.pause_reading()
        client.writer.write(get())
        last = -1

        async def stands_still():
            nonlocal last
            before, last = last, sent
            await turn(0.05)
            return sent == before and sent > 0

        await until(stands_still)
        assert sent < 16 * 2**20, "what the kernel takes, and little more"
        (connection,) = here.doors["a"].connections
        assert connection.transport.get_write_buffer_size() < 1_048_576
        client.close()
        await until(lambda: here["a"].ledger.home["cancelled"] == 1)

    in_front(check)


def test_a_name_that_is_under_way_is_a_conflict():
    async def check(here):
        go_on = asyncio.Event()

        async def wait(talk, *_):
            await go_on.wait()
            await talk.say(OK)
            return True

        here.service.answer = wait
        client = await here.client()
        client.writer.write(get(b"Idempotency-Key: k"))
        await until(lambda: here.service.seen)
        read = await here.ask(get(b"Idempotency-Key: k"))
        assert (read.status, told(read)["reason"]) == (409, "conflict")
        go_on.set()
        assert (await client.answer()).get(b"spillover-request-id") == "k"
        assert (await here.ask(get(b"Idempotency-Key: k"))).body == b"ok"
        assert len(here.service.seen) == 2

    in_front(check)


def test_requests_in_a_pipeline_are_answered_in_order():
    async def echo(talk, head, body):
        told = head.split(b" ")[1] + body
        await talk.say(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(told), told))
        return True

    async def check(here):
        here.service.answer = echo
        client = await here.client()
        chunks = b"5\r\nhello\r\n0\r\n\r\n"
        client.writer.write(
            get(target=b"/1")
            + post(LENGTH)
            + post(b"Transfer-Encoding: chunked", body=chunks)
            + get(target=b"/4")
            + b"GARBAGE\r\n\r\n"
        )
        for expected in (b"/1", b"/hello", b"/hello", b"/4"):
            assert (await client.answer()).body == expected
        assert (await client.answer()).status == 400

    in_front(check)


def test_a_client_that_closes_its_half_gets_its_answer():
    async def check(here):
        go_on = asyncio.Event()

        async def wait(talk, *_):
            await go_on.wait()
            await talk.say(OK)
            return True

        here.service.answer = wait
        client = await here.client()
        client.writer.write(get())
        client.writer.write_eof()
        await until(lambda: here.service.seen)
        go_on.set()
        read = await client.answer()
        assert (read.status, read.body) == (200, b"ok")
        assert await client.reader.read() == b""

    in_front(check)


def test_a_body_is_asked_for_and_bounded():
    async def check(here):
        client = await here.client()
        client.writer.write(post(LENGTH, b"Expect: 100-continue", body=b""))
        assert (await client.answer()).status == 100
        client.writer.write(b"hello")
        assert (await client.answer()).status == 200
        assert here.service.seen.pop()[1] == b"hello"
        for lines, body in (
            ((b"Content-Length: 101", b"Expect: 100-continue"), b""),
            ((b"Content-Length: 101",), b"x" * 101),
            ((b"Transfer-Encoding: chunked",), b"32\r\n%b\r\n" % (b"x" * 50) * 3),
        ):
            read = await here.ask(post(*lines, body=body))
            assert (read.status, told(read)["reason"]) == (413, "too_large")
        assert here.service.seen == []

    in_front(check, cluster={"passed_body_limit_bytes": 100})


def test_a_door_that_leads_back_to_itself_is_a_loop():
    async def check(here):
        async def around(talk, head, _):
            read = await here.ask(head)
            await talk.say(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n%d" % read.status)
            return True

        here.service.answer = around
        assert (await here.ask(get())).body == b"508"
        assert len(here.service.seen) == 1

    in_front(check)


def test_routes_say_what_requests_do_not():
    routes = [
        {"path": "/health", "unqueued": True},
        {"path": "/slow", "methods": ["GET"], "deadline_ms": 50},
        {"path": "/events", "sse_error_event": True},
    ]

    async def check(here):
        async def serve(talk, head, _):
            match head.split(b" ")[1]:
                case b"/health":
                    await talk.say(OK)
                    return True
                case b"/events":
                    events = b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
                    await talk.say(b"HTTP/1.1 200 OK\r\n%b\r\n5\r\ndata\n\r\n" % events)
                    return False
            await talk.until_closed()
            return False

        here.service.answer = serve
        client = await here.client()
        client.writer.write(get(target=b"/hangs"))  # on the only server
        await until(lambda: here.service.seen)
        assert (await here.ask(get(target=b"/health"))).body == b"ok"
        read = await here.ask(get(target=b"/slow"))
        assert (read.status, told(read)["reason"]) == (504, "deadline_exceeded")
        client.close()
        await until(here.is_idle)
        read = await here.ask(get(target=b"/slow"))
        assert read.status == 504
        read = await here.ask(get(target=b"/events"))
        assert not read.is_whole
        assert b"event: error\ndata: {" in read.body

    in_front(check, cluster={"routes": routes_of(routes)})


def routes_of(told):
    from spillover.model.routes import Route

    return tuple(Route(**{**one, "methods": tuple(one.get("methods", ()))}) for one in told)


def test_an_upstream_that_is_not_there_is_passed_over_and_doubt_is_not_tried_twice():
    async def check(here):
        for _ in range(4):
            assert (await here.ask(get())).body == b"ok"

        async def hang_up(talk, *_):
            talk.reset()

        here.service.answer = hang_up
        here.service.seen.clear()
        assert (await here.ask(get())).status == 502
        assert len(here.service.seen) == 1

    in_front(check, handler="proxy:http://127.0.0.1:1,{url}")


def test_the_deadline_is_for_the_head_alone():
    async def check(here):
        go_on = asyncio.Event()

        async def slowly(talk, *_):
            await talk.say(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no")
            await go_on.wait()
            await talk.say(b"k")
            return True

        here.service.answer = slowly
        client = await here.client()
        client.writer.write(get(b"Spillover-Deadline-Ms: 40"))
        await client.reader.readuntil(b"\r\n\r\no")
        await turn(0.1)  # beyond it
        go_on.set()
        assert await client.reader.readexactly(1) == b"k"

    in_front(check)
