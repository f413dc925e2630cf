"""The door of a service: what comes in as it may come, and what the service sees of it."""

import asyncio
import json

import pytest

from spillover.model.routes import Route
from spillover.model.topology import HELD_LIMIT_BYTES_MIN
from support.api_tokens import SECRETS, access_of_tests
from support.federation import until
from support.passed_requests import REFUSED, SEEN, get, post, without_way
from support.proxy_doors import in_front, told

LENGTH = b"Content-Length: 5"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

HOPS = pytest.mark.parametrize("hops", [0, 1])
"""Where what is said must not depend on the way."""


@pytest.mark.parametrize("hops", [0, 1, 2])
async def test_the_service_sees_the_same_request_or_none(hops):
    """Also where its head has come before."""

    async def check_seen(here):
        for name, (raw, start, lines, body) in SEEN.items():
            read = await here.ask(raw)
            while read.status == 100:
                read = await here.ask(raw)
            ((head, seen_body),) = here.service.seen
            first, *others = head[:-4].split(b"\r\n")
            assert (first, without_way(others), seen_body) == (start, lines, body), name
            here.service.seen.clear()

    async with in_front(hops) as here:
        await check_seen(here)
        for name, (status, raw) in REFUSED.items():
            read = await here.ask(raw)
            assert read.status == status, name
            assert told(read)["status"] == status, name
            # Of what can be told where it ends, the next one may come on the same connection.
            assert read.get(b"connection") == ("" if status == 422 else "close"), name
            assert read.get(b"proxy-status") == "spillover; error=http_request_error", name
            assert here.service.seen == [], name
        await check_seen(here)


@pytest.mark.parametrize("hops", [0, 1, 2])
async def test_heads_that_have_come_before_are_answered_as_the_first_ones(hops):
    """Whatever the length of what is asked and answered, and whoever else says something like it on
    the same connection."""

    async def echo(talk, head, body):
        lines = b"Date: now\r\n" if b"/dated" in head else b""
        told = b"" if head.startswith(b"HEAD") else body
        await talk.say(b"HTTP/1.1 200 Yes\r\n%bContent-Length: %d\r\nX: y\r\n\r\n%b" % (
            lines, len(body), told))  # fmt: skip
        return True

    async with in_front(hops) as here:
        here.service.answer = echo
        client = await here.client()
        ids = set()
        for size in (5, 5, 0, 12, 5, 1000, 5):
            body = b"x" * size
            length = b"Content-Length: %d" % size
            for target in (b"/", b"/dated"):
                raw = get(length, target=target, method=b"POST") + body
                read = await client.ask(raw)
                assert (read.start, read.body, read.is_whole) == (b"HTTP/1.1 200 Yes", body, True)
                names = [name for name, _ in read.fields]
                dated = [b"Date"] if target == b"/dated" else []
                assert names[: 2 + len(dated)] == [*dated, b"Content-Length", b"X"]
                assert read.get(b"spillover-path") == ",".join("abc"[: hops + 1])
                ids.add(read.get(b"spillover-request-id"))
                head, seen = here.service.seen.pop()
                assert (seen, head.count(b"Content-Length: %d\r\n" % size)) == (body, 1)
                assert f"Spillover-Request-Id: {read.get(b'spillover-request-id')}".encode() in head
        assert len(ids) == 14
        for _ in range(2):
            assert (await client.ask(get())).body == b""
            assert (await client.ask(get(method=b"HEAD"), method="HEAD")).body == b""
            old = await here.ask(post(LENGTH, version=b"1.0"))
            assert (old.body, old.get(b"connection")) == (b"hello", "close")
        assert told(await client.ask(get(b"Content-Length: ")))["status"] == 400


@HOPS
async def test_a_client_that_leaves_closes_the_services_connection(hops):
    async with in_front(hops) as here:
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


async def test_a_client_that_closes_its_half_in_midstream_gets_all_of_it():
    async with in_front() as here:
        go_on = asyncio.Event()

        async def stream(talk, *_):
            await talk.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n")
            await go_on.wait()
            await talk.say(b"2\r\ncd\r\n0\r\n\r\n")
            return True

        here.service.answer = stream
        client = await here.client()
        client.writer.write(get())
        begun = await client.reader.readuntil(b"ab\r\n")
        client.writer.write_eof()
        assert await client.reader.readexactly(3) == b"000"  # is it there?
        go_on.set()
        rest = await client.reader.read()
        assert rest.lstrip(b"0") == b"2\r\ncd\r\n0\r\n\r\n"
        assert begun.endswith(b"2\r\nab\r\n")


def shown(holder):
    return b"Proxy-Authorization: Bearer " + SECRETS.get(holder, holder).encode()


async def test_an_api_token_is_shown_as_to_a_proxy_and_goes_no_further():
    async with in_front(access=access_of_tests()) as here:
        for lines, status, reason in (
            ((b"A: b",), 407, "proxy_unauthenticated"),
            ((shown("unknown"),), 407, "proxy_unauthenticated"),
            ((shown("submitter"), shown("submitter")), 407, "proxy_unauthenticated"),
            ((b"Authorization: Bearer " + SECRETS["submitter"].encode(),), 407, None),
            ((shown("reader"),), 403, "forbidden"),
        ):
            read = await here.ask(get(*lines))
            assert read.status == status, lines
            assert told(read)["reason"] in {reason, "proxy_unauthenticated"}
            assert (read.get(b"proxy-authenticate") != "") == (status == 407)
        assert here.service.seen == []
        here.service.answer = OK
        read = await here.ask(get(shown("submitter"), b"Authorization: Bearer of-the-service"))
        assert read.body == b"ok"
        ((head, _),) = here.service.seen
        assert b"\r\nAuthorization: Bearer of-the-service\r\n" in head
        assert b"roxy-" not in head


async def test_requests_in_a_pipeline_are_answered_though_its_half_is_closed():
    """Those that came whole. What is there of another one is nobody's."""
    async with in_front() as here:
        go_on = asyncio.Event()

        async def tell(talk, head, _):
            await go_on.wait()
            told = head.split(b" ")[1]
            await talk.say(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(told), told))
            return True

        here.service.answer = tell
        for behind in (b"", b"GET / HTTP", post(LENGTH, body=b"he")):
            go_on.clear()
            client = await here.client()
            client.writer.write(get(target=b"/1") + get(target=b"/2") + get(target=b"/3") + behind)
            client.writer.write_eof()
            before = len(here.service.seen)
            await until(lambda before=before: len(here.service.seen) > before)
            go_on.set()
            for target in (b"/1", b"/2", b"/3"):
                assert (await client.answer()).body == target
            assert await client.reader.read() == b""
            assert len(here.service.seen) == before + 3
        await until(lambda: not any(c.is_gone is False for c in here.doors["a"].connections))


async def test_bodies_are_read_only_where_there_is_room():
    """Told before they are read, or as they come; what is there of them counts."""
    async with in_front(cluster={"held_limit_bytes": HELD_LIMIT_BYTES_MIN}) as here:
        moving = here["a"].shell.room.moving
        for lines, body in (
            ((b"Content-Length: 100000",), b""),
            ((b"Transfer-Encoding: chunked",), b"%x\r\n%b\r\n" % (100_000, b"x" * 100_000)),
        ):
            read = await here.ask(post(*lines, body=body))
            assert (read.status, told(read)["reason"]) == (429, "queue_full")
            assert read.get(b"retry-after")
            assert read.get(b"proxy-status") == "spillover; error=connection_limit_reached"
            await until(lambda: moving.bytes == 0)
        assert here.service.seen == []
        clients = [await here.client() for _ in range(2)]
        clients[0].writer.write(post(b"Content-Length: 40000", body=b"x" * 39_999))
        await until(lambda: moving.bytes == 39_999)
        clients[1].writer.write(post(b"Content-Length: 40000", body=b""))
        assert (await clients[1].answer()).status == 429
        clients[0].writer.write(b"x")
        assert (await clients[0].answer()).status == 200


@pytest.mark.parametrize(
    ("said", "tells"),
    [
        ((), True),
        ((b"data: a\n\n",), True),
        ((b"data: a\r\n", b"\r", b"\n"), True),
        ((b"data: a\r", b"\r"), True),
        ((b"data: a\n", b"\r\n"), True),
        ((b": ping\n\ndata: a\r\r\n",), True),
        ((b"data: a\n",), False),
        ((b"data: a\n\n", b"d"), False),
        ((b"data: a\r\n",), False),
        ((b"data: a\r", b"\n"), False),
        ((b"event: a\n", b"da"), False),
    ],
)
async def test_last_words_are_said_between_two_events_alone(said, tells):
    """Within one they would be taken for more of it, and break who reads it."""
    async with in_front(cluster={"routes": (Route(path="/", sse_error_event=True),)}) as here:

        async def break_off(talk, *_):
            await talk.say(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                b"Transfer-Encoding: chunked\r\n\r\n"
            )
            for piece in said:
                await talk.say(b"%x\r\n%b\r\n" % (len(piece), piece))
            return False

        here.service.answer = break_off
        read = await here.ask(get())
        assert not read.is_whole
        assert read.body.startswith(b"".join(said))
        words = read.body.removeprefix(b"".join(said))
        assert words.startswith(b'data: {"error":{"message":"') == tells
        assert words.endswith(b"}}\n\n") == tells


@pytest.mark.parametrize(
    ("trusted", "is_told"),
    [
        (None, True),
        ((), False),
        (("127.0.0.1",), True),
        (("10.0.0.0/8", "127.0.0.0/8"), True),
        (("::/0", "10.0.0.0/8"), False),
    ],
)
@HOPS
async def test_who_is_trusted_tells_the_way_up_to_the_door(hops, trusted, is_told):
    """A balancer that takes TLS off says so, and nothing that a node adds contradicts it."""
    async with in_front(hops, cluster={"trusted_proxies": trusted}) as here:
        for _ in range(2):
            assert await here.ask(get(b"X-Forwarded-For: 1.2.3.4", b"X-Forwarded-Proto: https"))
            head, _ = here.service.seen.pop()
            lines = head.lower().split(b"\r\n")
            way = b"1.2.3.4, 127.0.0.1" if is_told else b"127.0.0.1"
            assert b"x-forwarded-for: " + way in lines
            assert (b"x-forwarded-proto: https" in lines) == is_told
            assert (b"x-forwarded-proto: http" in lines) != is_told
            assert any(line.startswith(b"forwarded:") for line in lines) != is_told


async def test_a_body_is_asked_for_and_bounded():
    async with in_front(cluster={"passed_body_limit_bytes": 100}) as here:
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
            assert read.get(b"connection") in ("", "close")
        assert here.service.seen == []
        for lines, body in (  # the limit itself is not beyond it
            ((b"Content-Length: 100",), b"x" * 100),
            ((b"Transfer-Encoding: chunked",), b"32\r\n%b\r\n" % (b"x" * 50) * 2 + b"0\r\n\r\n"),
        ):
            assert (await here.ask(post(*lines, body=body))).status == 200


async def test_routes_say_what_requests_do_not():
    routes = (
        Route(path="/health", unqueued=True),
        Route(path="/slow", methods=("GET",), deadline_ms=50),
        Route(path="/events", sse_error_event=True),
    )
    async with in_front(cluster={"routes": routes}) as here:

        async def serve(talk, head, _):
            match head.split(b" ")[1]:
                case b"/health":
                    await talk.say(OK)
                    return True
                case b"/events":
                    events = b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
                    await talk.say(b"HTTP/1.1 200 OK\r\n%b\r\n6\r\ndata\n\n\r\n" % events)
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
        words, _, event = read.body.partition(b"data\n\ndata: ")
        error = json.loads(event)["error"]
        assert (words, error["type"], error["code"]) == (b"", "server_error", "handler_failed")
        assert "closed the connection" in error["message"]


async def test_the_api_of_the_node_sends_requests_to_the_door():
    async with in_front(cluster={"proxy_url": "http://proxy.example:9000"}) as here:
        status, _, body = await here["a"].send("POST", "/requests", b'{"payload": 1}')
        assert (status, body["reason"]) == (422, "invalid")
        assert "http://proxy.example:9000" in body["detail"]


async def test_a_door_that_leads_back_to_itself_is_a_loop():
    async with in_front() as here:

        async def around(talk, head, _):
            read = await here.ask(head)
            await talk.say(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n%d" % read.status)
            return True

        here.service.answer = around
        assert (await here.ask(get())).body == b"508"
        assert len(here.service.seen) == 1


async def test_last_words_are_no_part_of_a_coded_body():
    """A reader of gzip would take them for garbage, or read on."""
    async with in_front(cluster={"routes": (Route(path="/", sse_error_event=True),)}) as here:
        for coding, tells in ((b"gzip", False), (b"identity", True), (b"br, gzip", False)):

            async def break_off(talk, *_, coding=coding):
                await talk.say(
                    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                    b"Content-Encoding: %b\r\nTransfer-Encoding: chunked\r\n\r\n"
                    b"4\r\n\x1f\x8b\n\n\r\n" % coding
                )
                return False

            here.service.answer = break_off
            read = await here.ask(get())
            assert not read.is_whole
            assert (b'data: {"error":' in read.body) == tells, coding


@pytest.mark.parametrize("name", ["{}", "{:08x}-0000-4000-8000-000000000000"])
async def test_things_that_are_numbered_are_one_kind_and_their_failures_no_sites(name):
    """One client asks for one after the other, and the service fails each; others do well."""

    async def fail_items(talk, head, _):
        status = b"500 Broken" if b" /items/" in head else b"200 OK"
        await talk.say(b"HTTP/1.1 %b\r\nContent-Length: 2\r\n\r\nok" % status)
        return True

    async with in_front() as here:
        here.service.answer = fail_items
        client = await here.client()
        for _ in range(5):
            assert (await client.ask(get(target=b"/well"))).status == 200
        for number in range(30):
            target = f"/items/{name.format(number)}".encode()
            assert (await client.ask(get(target=target))).status == 500
            assert (await client.ask(get(target=b"/well"))).status == 200
            assert not here["a"].shell.machine.health.degraded
