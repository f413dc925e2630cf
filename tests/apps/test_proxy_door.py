"""The door of a service: what comes in as it may come, and what the service sees of it."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from spillover.core.overflow.events import ServersDown
from spillover.live.handlers.proxy.handler import UNQUEUED_MAX
from spillover.model.routes import Route
from support.api_tokens import SECRETS, access_of_tests
from support.federation import turn, until
from support.passed_requests import REFUSED, SEEN, get, post, without_way
from support.proxy_doors import in_front, told

LENGTH = b"Content-Length: 5"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

HOPS = pytest.mark.parametrize("hops", [0, 1])
"""Where what is said must not depend on the way."""


@HOPS
def test_the_service_sees_the_same_request_or_none(hops):
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

    in_front(check, hops)


@HOPS
def test_a_client_that_leaves_closes_the_services_connection(hops):
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

    in_front(check, hops)


@HOPS
def test_a_client_that_leaves_a_quiet_stream_is_found_out(hops):
    """It has read all that came, so that it ends in order, and nothing is written that could fail.
    One that only has no more to say gets the rest of its answer, whole."""

    async def check(here):
        go_on = asyncio.Event()

        async def stream(talk, *_):
            await talk.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n")
            await asyncio.wait(
                [asyncio.ensure_future(one) for one in (talk.until_closed(), go_on.wait())],
                return_when=asyncio.FIRST_COMPLETED,
            )
            await talk.say(b"1\r\nc\r\n0\r\n\r\n")

        here.service.answer = stream
        client, waits = await here.client(), await here.client()
        for one in (client, waits):
            one.writer.write(get())
            await one.reader.readuntil(b"ab\r\n")
        client.close()
        waits.writer.write_eof()
        await until(lambda: here["a"].ledger.home["cancelled"] == 1 and here.service.gone == 1)
        go_on.set()
        rest = await waits.reader.read()
        assert rest.lstrip(b"0") == b"1\r\nc\r\n0\r\n\r\n"
        assert rest.startswith(b"0")

    in_front(check, hops, cluster={"servers": 2})


def shown(holder):
    return b"Proxy-Authorization: Bearer " + SECRETS.get(holder, holder).encode()


def test_an_api_token_is_shown_as_to_a_proxy_and_goes_no_further():
    async def check(here):
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

    in_front(check, access=access_of_tests())


def test_names_belong_to_tenants_here_too():
    async def check(here):
        go_on = asyncio.Event()

        async def wait(talk, *_):
            await go_on.wait()
            await talk.say(OK)
            return True

        here.service.answer = wait
        clients = []
        for number, holder in enumerate(("submitter", "other")):
            clients.append(await here.client())
            clients[-1].writer.write(get(shown(holder), b"Idempotency-Key: k"))
            await until(lambda n=number: len(here.service.seen) == n + 1)
        go_on.set()
        for client in clients:
            read = await client.answer()
            assert (read.body, read.get(b"spillover-request-id")) == (b"ok", "k")

    in_front(check, access=access_of_tests(), cluster={"servers": 2})


@HOPS
def test_a_name_that_is_under_way_is_a_conflict(hops):
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

    in_front(check, hops)


def test_what_runs_beside_the_servers_is_capped_and_ends_with_its_client():
    async def check(here):
        async def hang(talk, *_):
            await talk.until_closed()

        here.service.answer = hang
        clients = [await here.client() for _ in range(UNQUEUED_MAX)]
        for client in clients:
            client.writer.write(get())
        await until(lambda: len(here.service.seen) == UNQUEUED_MAX)
        read = await here.ask(get())
        assert (read.status, told(read)["reason"]) == (429, "queue_full")
        for client in clients:
            client.close()
        await until(lambda: here.service.gone == UNQUEUED_MAX)
        here.service.answer = OK
        assert (await here.ask(get())).body == b"ok"
        read = await here.ask(get(b"Spillover-Deadline-Ms: 5000", method=b"HEAD"), "HEAD")
        assert read.get(b"spillover-path") == "a"
        assert here["a"].ledger.home["accepted"] == 0

    in_front(check, cluster={"routes": (Route(path="/", unqueued=True),)})


def test_doubt_is_tried_once_more_with_a_key_alone():
    async def check(here):
        async def hang_up_once(talk, *_):
            if len(here.service.seen) == 1:
                talk.reset()
                return False
            await talk.say(OK)
            return True

        here.service.answer = hang_up_once
        assert (await here.ask(get())).status == 502
        assert len(here.service.seen) == 1
        here.service.seen.clear()
        assert (await here.ask(get(b"Idempotency-Key: k"))).body == b"ok"
        assert len(here.service.seen) == 2

    in_front(check, handler="proxy:{url},{other}")


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
    routes = (
        Route(path="/health", unqueued=True),
        Route(path="/slow", methods=("GET",), deadline_ms=50),
        Route(path="/events", sse_error_event=True),
    )

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

    in_front(check, cluster={"routes": routes})


def test_what_is_refused_at_once_has_a_name_all_the_same():
    async def check(here):
        here["a"].shell.feed(ServersDown())
        read = await here.ask(get())
        assert (read.status, told(read)["reason"]) == (503, "no_servers")
        assert told(read)["id"].startswith("a-")
        assert read.get(b"spillover-request-id") == told(read)["id"]

    in_front(check)


def test_the_api_of_the_node_sends_requests_to_the_door():
    async def check(here):
        status, _, body = await here["a"].send("POST", "/requests", b'{"payload": 1}')
        assert (status, body["reason"]) == (422, "invalid")
        assert "http://proxy.example:9000" in body["detail"]

    in_front(check, cluster={"proxy_url": "http://proxy.example:9000"})


def test_what_passed_is_counted():
    async def check(here):
        await here.ask(get())
        text = (await here["a"].client.request("GET", "/metrics", timeout_s=5.0)).body.decode()
        assert 'spillover_passed_responses_total{cluster="a",end="whole"} 1.0' in text
        assert 'spillover_passed_head_seconds_count{cluster="a"} 1.0' in text

    in_front(check)


def test_cancels_at_random_instants_leave_nothing():
    async def stream(talk, *_):
        await talk.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(3):
            await talk.say(b"2\r\nab\r\n")
            await turn(0)
        await talk.say(b"0\r\n\r\n")
        return True

    async def check(here):
        here.service.answer = stream
        random = Random(7)
        for _ in range(16):
            clients = [await here.client() for _ in range(25)]
            for client in clients:
                client.writer.write(get())
            for client in clients:
                for _ in range(random.randrange(4)):
                    await turn(0)
                client.close()
        await until(here.is_idle)
        await until(lambda: here.service.gone == here.service.connections)
        ledger = here["a"].ledger.home
        assert ledger["accepted"] == ledger["done"] + ledger["cancelled"] <= 400
        assert ledger["cancelled"]

    in_front(check, cluster={"servers": 8})
