"""How a client's requests are carried: which of them a thread sends by itself, what retries cost,
how often a node is asked again, and what is left of what nobody waits for any more."""

import asyncio
import resource
import time
from contextlib import asynccontextmanager
from types import ModuleType

import pytest

from spillover.client import AsyncSpillover, Retries, Spillover, Unreachable, calls, job
from spillover.client.wire import encode_payload
from spillover.live.http1.blocking import BODY_MAX_BYTES
from spillover.model.errors import OutcomeUnknown
from support.loop import turn, until
from support.scripted_server import answer, done, problem, scripted, scripted_aside

PAGE = answer(500, b"<html></html>", kind="text/html")
QUEUED = answer(200, {"id": "x", "state": "queued"})


def hosts(client):
    """Whom threads have asked by themselves."""
    return list(client._client._calls._blocking)


@pytest.mark.parametrize("more", [0, 1])
def test_a_thread_sends_what_is_small_by_itself(more):
    """What is large might have to be read while it is written. Both count the same."""
    payload = "x" * (BODY_MAX_BYTES - len(encode_payload("")) + more)
    with scripted_aside(done(7)) as server, Spillover(server.url) as client:
        for count in (1, 2):
            assert client.run(payload).result == 7
            assert client.stats == (count, count, 0, 0, 0, 0)
        assert hosts(client) == ([] if more else [server.url])


def test_a_thread_sends_nothing_by_itself_where_that_has_to_be_secret(nowhere):
    url = nowhere.replace("http:", "https:")
    with Spillover(url, retries=Retries(rounds=1)) as client:
        with pytest.raises(Unreachable):
            client.run(1)
        assert hosts(client) == []


def test_a_thread_sends_nothing_by_itself_while_a_node_rests(nowhere):
    with scripted_aside(done(7)) as server, Spillover([nowhere, server.url]) as client:
        client.nodes.failed(nowhere, time.monotonic(), 3600.0)
        for _ in range(3):
            assert client.run(1).result == 7
        assert client.stats.retries == 0
        assert hosts(client) == []


# --- a node that is asked about a job ------------------------------------------------------------


@pytest.fixture
def pauses(monkeypatch):
    """All that was waited for: nothing of it is waited here."""
    noted = []

    async def sleep(pause_s):
        noted.append(pause_s)
        await turn()

    # The library's own is left alone: others wait by it.
    clocked = ModuleType("asyncio")
    clocked.__dict__.update(vars(asyncio) | {"sleep": sleep})
    for module in (calls, job):
        monkeypatch.setattr(module, "asyncio", clocked)
    return noted


@pytest.mark.parametrize(
    "said", [problem(408, "timeout"), problem(429, "queue_full"), PAGE], ids=["408", "429", "500"]
)
async def test_a_node_that_says_later_is_asked_again(pauses, said):
    async with scripted(said, QUEUED) as server, AsyncSpillover(server.url) as client:
        assert await client.job("x").state() == "queued"
        assert len(server.seen) == 2


async def test_a_node_is_not_asked_again_beyond_the_time_in_which_it_may_come_back(pauses):
    """Not even once where the first pause would be as long."""
    async with (
        scripted(problem(503, "draining", retry_after=10)) as server,
        AsyncSpillover(server.url, retries=Retries(comeback_s=10.0)) as client,
    ):
        with pytest.raises(OutcomeUnknown, match="cannot be asked"):
            await client.job("x").state()
        assert (len(server.seen), pauses) == (1, [])


ENDED = {"id": "x", "state": "done", "result": 7, "cluster": "z", "path": ["z"], "hops": 0}
DONE = answer(200, {**ENDED, "timing_ms": {}})


@pytest.mark.parametrize(("timeout_s", "least_ms", "most_ms"), [
    (None, 60_000, 60_000), (3600.0, 60_000, 60_000), (30.0, 20_000, 30_000),
])  # fmt: skip
async def test_a_node_is_told_how_long_an_end_is_waited_for(pauses, timeout_s, least_ms, most_ms):
    """A minute at most. One that has it not wait is asked again after half a second."""
    async with scripted(QUEUED, QUEUED, DONE) as server, AsyncSpillover(server.url) as client:
        assert (await client.job("a/b").result(timeout_s)).result == 7
        for words, _ in server.seen:
            path, _, wait_ms = words.partition("?wait_ms=")
            assert path == "GET /requests/a%2Fb"
            assert least_ms <= int(wait_ms) <= most_ms
    assert pauses == [0.5, 0.5]


# --- what nobody waits for any more --------------------------------------------------------------


def cancels(server):
    return [words for words, _ in server.seen if words.startswith("DELETE")]


@asynccontextmanager
async def one_called_off(answers, monkeypatch):
    """A client and a server, after a request without an answer was cancelled. As long as it has not
    ended at its node, that is asked for it."""
    monkeypatch.setattr("spillover.client.calls.PARTING_S", 3600.0)
    async with scripted(b"", *answers) as server, AsyncSpillover(server.url) as client:
        running = asyncio.create_task(client.run(1))
        await until(lambda: server.seen)
        running.cancel()
        yield client, server
        await until(lambda: not client._calls._partings)


async def test_what_was_called_off_leaves_nothing_behind(monkeypatch):
    """Neither its connection, which waits for an answer, nor what has asked for its end."""
    async with one_called_off([answer(200)], monkeypatch) as (client, server):
        await until(lambda: "POST" not in "".join(server._connections.values()))
        assert len(cancels(server)) == 1
        assert client.stats == (1, 0, 0, 0, 1, 0)


@pytest.mark.parametrize("not_yet", [answer(202), problem(404, "unknown_request")])
async def test_it_is_called_off_until_it_has_ended(monkeypatch, not_yet):
    """The word of it may come before the request, and another cluster may take its time."""
    async with one_called_off([not_yet] * 3 + [answer(200)], monkeypatch) as (_, server):
        await until(lambda: len(cancels(server)) == 4)


@pytest.mark.parametrize(
    ("kind", "ends"),
    [(None, False), (ValueError, False), (KeyboardInterrupt, True), (asyncio.CancelledError, True)],
)
async def test_jobs_without_a_key_end_with_who_is_interrupted(kind, ends):
    """But not those whose deadline has passed, or whose end is known."""
    async with scripted(answer(200)) as server:
        client = AsyncSpillover(server.url)
        now_s = time.monotonic()
        client._calls._begin(asyncio.get_running_loop())
        for name, left_s in (("late", 0.0), ("known", 1000.0), ("open", 1000.0)):
            client._remember(name, server.url, now_s + left_s)
        client._forget("known")
        client._forget("known")
        await client.__aexit__(kind, None, None)
        assert cancels(server) == (["DELETE /requests/open"] if ends else [])
        assert client.stats.called_off == ends


@pytest.mark.parametrize(
    ("files", "given", "allowed"),
    [
        (100, 1000, 50),
        (100, 49, 49),
        (1, 1000, 1),
        (0, 1000, 1),
        (resource.RLIM_INFINITY, 1000, 1000),
    ],
)
def test_no_more_than_half_of_the_files_that_may_be_open_are_connections(
    monkeypatch, files, given, allowed
):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, resource.RLIM_INFINITY))
    client = AsyncSpillover("http://127.0.0.1:1", connections_max=given)
    client._calls._begin(asyncio.new_event_loop())
    slots = client._calls._slots
    count = 0
    while slots.take():
        count += 1
    assert count == allowed
    client._calls._loop.close()
