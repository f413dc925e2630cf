"""What is asked beside the servers of a cluster: capped, told as other requests, over with its
answer."""

from __future__ import annotations

import asyncio

from spillover.live.handlers.proxy.handler import UNQUEUED_MAX
from spillover.model.routes import Route
from spillover.model.topology import HELD_LIMIT_BYTES_MIN
from support.federation import until
from support.passed_requests import get, post
from support.proxy_doors import in_front, told

LENGTH = b"Content-Length: 5"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


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


def test_what_comes_of_it_beside_the_servers_is_told_as_of_others():
    """What was not delivered surely did not run, and what is late is not what failed."""

    async def hang(talk, *_):
        await talk.until_closed()

    async def hang_up(talk, *_):
        talk.reset()

    async def check(here):
        for answer, status, reason, error in (
            (hang, 504, "deadline_exceeded", "http_response_timeout"),
            (hang_up, 502, "handler_failed", "http_response_incomplete"),
        ):
            here.service.answer = answer
            read = await here.ask(get(b"Spillover-Deadline-Ms: 100"))
            assert (read.status, told(read)["reason"]) == (status, reason)
            again = "the work may have run: to send the request again may run it again"
            told_of = f'spillover; error={error}; details="{again}"'
            assert read.get(b"proxy-status") == told_of
            assert read.get(b"x-should-retry") == "false"

    async def not_there(here):
        read = await here.ask(get())
        assert (read.status, told(read)["reason"]) == (503, "no_servers")
        assert "127.0.0.1:1/ cannot be reached" in told(read)["detail"]
        assert read.get(b"proxy-status") == "spillover; error=destination_unavailable"
        assert read.get(b"retry-after") == "1"

    beside = {"routes": (Route(path="/", unqueued=True),)}
    in_front(check, cluster=beside)
    in_front(not_there, cluster=beside, handler="proxy:http://127.0.0.1:1")


def test_what_runs_beside_the_servers_counts_too_and_does_not_stand_still():
    async def check(here):
        go_on = asyncio.Event()

        async def endless(talk, *_):
            await go_on.wait()
            await talk.say(b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n")
            while True:
                await talk.say(b"x" * 65_536)

        here.service.answer = endless
        moving = here["a"].shell.moving
        client = await here.client(limit=1)
        client.writer.transport.pause_reading()
        client.writer.write(post(b"Content-Length: 40000", body=b"x" * 40_000))
        await until(lambda: here.service.seen)
        assert moving.bytes == 40_000
        read = await here.ask(post(b"Content-Length: 40000", body=b""))
        assert (read.status, told(read)["reason"]) == (429, "queue_full")
        go_on.set()  # nobody reads it
        await until(lambda: here.service.gone == 1)
        assert moving.bytes == 0

    limits = {"held_limit_bytes": HELD_LIMIT_BYTES_MIN, "passed_stall_ms": 200.0}
    in_front(check, cluster={"routes": (Route(path="/", unqueued=True),), **limits})


def test_what_ran_beside_the_servers_is_over_with_its_answer():
    """Its deadline, when that comes, ends nothing, and it counts once."""

    async def check(here):
        shell = here["a"].shell
        client = await here.client()
        asked = post(b"Content-Length: 5", b"Spillover-Deadline-Ms: 60", body=b"hello")
        assert (await client.ask(asked)).body == b"ok"
        due_s = shell.now_s + 0.06
        await until(lambda: shell.now_s > due_s + 0.02)
        assert shell.moving.bytes == 0
        assert (await client.ask(asked)).body == b"ok", "its connection is there"

    in_front(check, cluster={"routes": (Route(path="/", unqueued=True),)})


def test_a_client_that_reads_on_in_time_has_all_of_its_answer():
    async def check(here):
        go_on = asyncio.Event()
        piece = b"x" * 65_536

        async def answer(talk, *_):
            await talk.say(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (200 * 65_536))
            await talk.say(*[piece] * 199)
            await go_on.wait()
            await talk.say(piece)
            return True

        here.service.answer = answer
        shell = here["a"].shell
        client = await here.client()
        client.writer.transport.pause_reading()
        client.writer.write(get())
        (line,) = here.doors["a"].connections
        await until(lambda: line.write_paused)
        stalls_s = shell.now_s + 0.4
        client.writer.transport.resume_reading()
        read = asyncio.ensure_future(client.answer())
        await until(lambda: shell.now_s > stalls_s + 0.05)
        go_on.set()
        assert (await read).is_whole

    cluster = {"routes": (Route(path="/", unqueued=True),), "passed_stall_ms": 400.0}
    in_front(check, cluster=cluster)
