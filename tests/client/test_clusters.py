"""Where a client goes on when the connection to a node of a cluster of several breaks: two servers
say whose they are, as nodes do."""

import asyncio
from functools import partial
from random import Random
from types import SimpleNamespace

import pytest

from spillover.client import AsyncSpillover, OutcomeUnknown, Retries, Spillover
from spillover.client.clusters import ClusterLearner
from spillover.client.nodes import Nodes
from spillover.live.http1.outgoing import Response
from support.scripted_server import RESET, answer, done, problem, scripted, scripted_aside

LIMIT_S = 20.0
AT_ONCE = Retries(comeback_s=0.0)
"""Whoever waits for the same node gets an error."""


def of(cluster, told):
    """The answer of a node of this cluster."""
    return told.replace(b"\r\n", b"\r\nSpillover-Cluster: %b\r\n" % cluster.encode(), 1)


def words(server):
    return [line for line, _ in server.seen]


WELL = answer(200, {"status": "ok"})


@pytest.mark.parametrize("first", [done(1), problem(422, "invalid")], ids=["result", "problem"])
def test_a_broken_request_goes_on_at_another_node_under_its_name(first):
    """Which has never been asked before: it is asked whose it is."""

    async def main():
        async with (
            scripted(of("x", first), RESET) as here,
            scripted(of("x", WELL), of("x", done(2))) as there,
            AsyncSpillover([here.url, there.url], retries=AT_ONCE) as client,
        ):
            await asyncio.gather(client.run(1), return_exceptions=True)
            assert (await client.run(2, key="order-7")).result == 2
            assert words(here) == ["POST /requests"] * 2
            assert words(there) == ["GET /healthz", "POST /requests"]
            assert there.seen[1][1]["idempotency-key"] == "order-7"
            assert here.bodies[1] == there.bodies[1]

    asyncio.run(asyncio.wait_for(main(), LIMIT_S))


def test_a_thread_that_waits_goes_on_there_too():
    with (
        scripted_aside(of("x", done(1)), RESET) as here,
        scripted_aside(of("x", WELL), of("x", done(2))) as there,
        Spillover([here.url, there.url], retries=AT_ONCE) as client,
    ):
        assert client.run(1).result == 1
        assert client.run(2, key="order-7").result == 2
        assert words(there) == ["GET /healthz", "POST /requests"]


@pytest.mark.parametrize(
    ("own", "other", "asked"),
    [("x", of("y", WELL), 1), ("x", WELL, 1), ("x", problem(503, "not_ready"), 1), ("", WELL, 0)],
)
def test_a_broken_request_goes_to_no_node_of_which_it_is_not_known(own, other, asked):
    """Nobody is asked where the node is none of several."""

    async def main():
        first = of(own, done(1)) if own else done(1)
        async with (
            scripted(first, RESET) as here,
            scripted(other) as there,
            AsyncSpillover([here.url, there.url], retries=AT_ONCE) as client,
        ):
            await client.run(1)
            with pytest.raises(OutcomeUnknown):
                await client.run(2, key="order-7")
            assert words(there) == ["GET /healthz"] * asked

    asyncio.run(asyncio.wait_for(main(), LIMIT_S))


async def test_who_does_not_say_whose_it_is_is_asked_once_by_many_requests_that_break():
    """What stands before it may answer for it: each request would wait for those before it."""
    asked = []

    async def ask(url, *_, **__):
        asked.append(url)
        return Response(503, {}, b"", 0.0, 0.0)

    nodes = Nodes(["http://here", "http://there"], Random(1))
    learner = ClusterLearner(nodes, lambda url: SimpleNamespace(request=partial(ask, url)))
    await asyncio.gather(*(learner.find_others("http://here") for _ in range(20)))
    assert asked == ["http://here"]


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_a_job_is_asked_for_at_another_node(method):
    async def main():
        accepted = answer(202, {"id": "j", "state": "queued"}, spillover_request_id="j")
        state = answer(200, {"id": "j", "state": "cancelled"})
        async with (
            scripted(of("x", accepted), RESET) as here,
            scripted(of("x", WELL), of("x", state)) as there,
            AsyncSpillover([here.url, there.url], retries=AT_ONCE) as client,
        ):
            job = await client.submit(1, key="j")
            look = job.state if method == "GET" else job.cancel
            assert await look() == "cancelled"
            assert words(there) == ["GET /healthz", f"{method} /requests/j"]

    asyncio.run(asyncio.wait_for(main(), LIMIT_S))
