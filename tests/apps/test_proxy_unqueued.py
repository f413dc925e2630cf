"""What is asked beside the servers of a cluster: capped, told as other requests, over with its
answer."""

from __future__ import annotations

from spillover.live.handlers.proxy.handler import UNQUEUED_MAX
from spillover.model.routes import Route
from support.federation import until
from support.passed_requests import get
from support.proxy_doors import in_front, told

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
