"""`spillover bench client`: the library beside its peers, all of them answered by one node."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from functools import partial
from typing import get_args

import pytest

from spillover.client import Spillover
from spillover.model.errors import RunError
from spillover.tools.bench import asking
from spillover.tools.bench.asking import Asked, AskingProcess
from support.benches import do
from support.scripted_server import answer, done, problem, scripted

BENCH = [sys.executable, "-m", "spillover", "bench", "client", "--quick", "--json", "--runs", "1"]


@pytest.mark.e2e
@pytest.mark.threes
def test_each_way_to_ask_stands_beside_both_peers(tmp_path):
    done = subprocess.run(BENCH, check=False, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert [row["peer"] for row in rows] == ["load generator", "httpx"] * 3
    assert len({row["case"] for row in rows}) == 3
    assert all(row["value"] > 0 and row["peer_value"] > 0 for row in rows)


def asked(server, library, users=3):
    return Asked(url=server.url, library=library, payload={"n": 1}, users=users, duration_s=0.05)


async def counted(job):
    """What asking came to; the client is closed, which a process of its own need not do."""
    ask = asking._asker(job)
    client = ask.args[0] if isinstance(ask, partial) else ask.__self__
    try:
        return await asking._ask_in_turn(ask, job)
    finally:
        await (client.aclose() if job.library == "httpx" else client.close())


@pytest.mark.parametrize(
    ("library", "key"), [("httpx", "httpx-"), ("load generator", "lean-"), ("AsyncSpillover", "")]
)
def test_a_library_is_what_it_is_called_and_all_answers_count(library, key):
    """Each request is another one."""

    async def ask():
        async with scripted(done()) as server:
            job = asked(server, library)
            count = await counted(job)
            return count, [headers["idempotency-key"] for _, headers in server.seen]

    count, keys = asyncio.run(ask())
    assert count == len(keys) == len(set(keys)) >= 3
    assert all(one.startswith(key) for one in keys)
    assert key or not any(one.startswith(("httpx-", "lean-")) for one in keys)


def test_answers_to_all_threads_count():
    async def ask():
        async with scripted(done()) as server:
            with Spillover(server.url) as client:
                job = asked(server, "Spillover")
                count = await asyncio.to_thread(asking._ask_from_threads, client, job)
            return count, len(server.seen)

    count, seen = asyncio.run(ask())
    assert count == seen >= 3


@pytest.mark.parametrize("library", get_args(asking.Library))
def test_the_process_asks_on_the_same_connections_and_goes_on_after_a_failure(library):
    """Which is told: the next job counts again."""

    async def work(_):
        async with scripted(done()) as server:
            with AskingProcess() as asker:
                job = asked(server, library, users=2)
                counts = [await asker.count(job) for _ in range(2)]
                keys = {headers["idempotency-key"][:5] for _, headers in server.seen}
                seen, connections = len(server.seen), len(server._connections)
                server.answers(problem(422, "invalid"))
                with pytest.raises(RunError, match="422"):
                    await asker.count(job)
                server.answers(done())
                return keys, counts, seen, connections, await asker.count(job)

    keys, counts, seen, connections, again = do(work)
    named = {"httpx": {"httpx"}, "load generator": {"lean-"}}
    assert keys == named.get(library, keys)
    assert not keys & {"httpx", "lean-"} or library in named
    assert min(*counts, again) >= 2
    assert sum(counts) == seen
    assert connections == 2


def test_what_is_no_result_is_no_answer():
    async def ask():
        async with scripted(problem(429, "queue_full")) as server:
            job = asked(server, "load generator", users=1)
            await counted(job)

    with pytest.raises(RunError, match="expected a result, got 429 queue_full"):
        asyncio.run(ask())


def test_httpx_reads_what_it_gets_as_the_others_do():
    """Else it would do less than they, and seem cheaper."""

    async def ask():
        async with scripted(answer(200, b"no JSON")) as server:
            await counted(asked(server, "httpx", users=1))

    with pytest.raises(json.JSONDecodeError):
        asyncio.run(ask())
