"""What a client makes of answers that nodes do not give, or give only when they please."""

import asyncio
import time

import pytest

from spillover.client import (
    AsyncSpillover,
    NotANode,
    OutcomeUnknown,
    Refused,
    Retries,
    Spillover,
    Unreachable,
)
from support.loop import until
from support.scripted_server import RESET, answer, done, problem, scripted
from support.waiting import slack

AT_ONCE = Retries(rounds=1, comeback_s=0.0)
HTML = b"<html><h1>It works!</h1></html>"


@pytest.mark.parametrize(
    "said",
    [
        answer(200, HTML, kind="text/html"),
        answer(200, {"id": 7}),
        answer(301, location="https://elsewhere/"),
        answer(200, b"\xff\xfe"),
        answer(200, b"[" * 100_000),
    ],
    ids=["html", "other json", "redirect", "binary", "deep"],
)
async def test_what_is_no_node_is_told_in_one_line(said):
    async with scripted(said) as server, AsyncSpillover(server.url) as client:
        with pytest.raises(NotANode, match="is no node of Spillover") as error:
            await client.run(1)
        assert server.url in str(error.value)
        assert "\n" not in str(error.value)
        assert (len(server.seen), error.value.surely_did_not_run) == (1, False)
        with pytest.raises(NotANode):
            await client.submit(1)
        with pytest.raises(NotANode):
            await client.job("x").state()


async def test_a_page_of_a_proxy_is_not_taken_for_the_node():
    page = answer(502, HTML, kind="text/html")
    async with scripted(page, page, done(7)) as server, AsyncSpillover(server.url) as client:
        assert (await client.run(1)).result == 7
        keys = {headers["idempotency-key"] for _, headers in server.seen}
        assert (len(server.seen), len(keys)) == (3, 1)
    async with (
        scripted(page) as server,
        AsyncSpillover(server.url, retries=AT_ONCE) as client,
    ):
        with pytest.raises(OutcomeUnknown, match="what stands before node"):
            await client.run(1)


@pytest.mark.parametrize("waits_here", [False, True])
async def test_a_client_that_was_closed_holds_no_connection(waits_here, monkeypatch):
    """Of its loop, and of threads that have waited; however long it would have kept it."""
    monkeypatch.setattr("spillover.client.calls.IDLE_S_MAX", 3600.0)

    def ask(url):
        with Spillover(url) as client:
            assert client.run(1).result == 7

    async with scripted(done(7)) as server:
        if waits_here:
            await asyncio.to_thread(ask, server.url)
        else:
            async with AsyncSpillover(server.url) as client:
                assert (await client.run(1)).result == 7
                assert len(server._connections) == 1
        await until(lambda: not server._connections)


async def test_a_retry_that_nobody_waits_for_is_called_off_where_it_may_run():
    async with (
        scripted(RESET, problem(503, "no_servers", retry_after="9")) as server,
        AsyncSpillover(server.url) as client,
    ):
        running = asyncio.create_task(client.run(1))
        await until(lambda: len(server.seen) == 2)
        running.cancel()
        name = server.seen[0][1]["idempotency-key"]
        await until(lambda: server.seen[-1][0] == f"DELETE /requests/{name}")


async def test_a_cancel_that_breaks_with_its_connections_is_sent_once_more():
    """What carries it sends it on one more connection by itself, since it was idle."""
    later = problem(503, "no_servers", retry_after="9")
    async with (
        scripted(RESET, later, RESET, RESET, RESET, answer(200)) as server,
        AsyncSpillover(server.url) as client,
    ):
        running = asyncio.create_task(client.run(1))
        await until(lambda: len(server.seen) == 2)
        running.cancel()
        await until(lambda: len(server.seen) == 6)
        assert [words.split()[0] for words, _ in server.seen[2:]] == ["DELETE"] * 4


async def test_what_is_called_off_is_asked_for_until_it_is_there():
    """The word of it may come to the node before the request does."""
    unknown = problem(404, "unknown_request")
    async with (
        scripted(b"", unknown, unknown, answer(200)) as server,
        AsyncSpillover(server.url) as client,
    ):
        running = asyncio.create_task(client.run(1))
        await until(lambda: server.seen)
        running.cancel()
        await until(lambda: len(server.seen) == 4)
    name = server.seen[0][1]["idempotency-key"]
    assert [words for words, _ in server.seen[1:]] == [f"DELETE /requests/{name}"] * 3


async def test_under_overload_retries_stay_within_the_budget():
    retries = Retries(share=0.25, floor_per_s=0.0, rounds=2)
    async with scripted(problem(429, "queue_full")) as server:
        async with AsyncSpillover(server.url, retries=retries) as client:

            async def one():
                with pytest.raises(Refused):
                    await client.run(1, deadline_s=0.5 * slack())

            await asyncio.gather(*(one() for _ in range(40)))
            assert client.stats.retries == 10
        assert len(server.seen) == 50


@pytest.mark.slow
async def test_a_job_of_a_node_that_is_gone_is_unknown(nowhere):
    async with AsyncSpillover(nowhere, retries=Retries(comeback_s=0.1)) as client:
        job = client.job("order-7")
        for ask in (job.state, job.result, job.cancel):
            with pytest.raises(OutcomeUnknown, match="cannot be asked") as error:
                await ask()
            assert not error.value.surely_did_not_run
        with pytest.raises(Unreachable):
            await client.run(None)


async def test_a_job_is_asked_again_when_its_node_stumbles():
    ended = {"id": "x", "state": "done", "result": 7, "cluster": "z", "path": ["z"], "hops": 0}
    said = answer(200, {**ended, "timing_ms": {}})
    stumbles = (RESET, problem(429, "queue_full"), answer(503, HTML, kind="text/html"))
    async with scripted(*stumbles, said) as server, AsyncSpillover(server.url) as client:
        assert (await client.job("x").result()).result == 7
        assert len(server.seen) == 4


async def test_a_job_whose_node_never_lets_it_wait_is_not_asked_in_a_spin():
    said = answer(200, {"id": "x", "state": "queued"})
    async with scripted(said) as server, AsyncSpillover(server.url) as client:
        with pytest.raises(TimeoutError, match=r"still queued after 0\.2 s"):
            await client.job("x").result(timeout_s=0.2)
        assert len(server.seen) <= 3


async def test_a_node_that_cannot_be_asked_for_a_job_is_asked_again_for_so_long():
    async with (
        scripted(problem(503, "draining")) as server,
        AsyncSpillover(server.url, retries=Retries(comeback_s=0.3)) as client,
    ):
        with pytest.raises(OutcomeUnknown, match="cannot be asked"):
            await client.job("x").state()
        assert len(server.seen) > 1


async def test_nobody_waits_for_a_job_longer_than_said(monkeypatch):
    """However long the pause before the next look would be."""
    monkeypatch.setattr("spillover.client.job.PAUSE_S", 10.0)
    said = answer(200, {"id": "x", "state": "queued"})
    async with scripted(said) as server, AsyncSpillover(server.url) as client:
        began_s = time.monotonic()
        with pytest.raises(TimeoutError, match=r"still queued after 0\.05 s"):
            await client.job("x").result(timeout_s=0.05)
        assert 0.05 <= time.monotonic() - began_s < 5.0
