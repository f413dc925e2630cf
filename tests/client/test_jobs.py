"""Jobs with whole nodes: awaited, asked, cancelled, found again."""

import asyncio
from contextlib import asynccontextmanager

from spillover.client import AsyncSpillover

LONG = {"service_ms": 60_000}


@asynccontextmanager
async def a_client(nodes, *ids, **topology):
    federation = nodes.Federation(nodes.topology_of(*(ids or "a"), **topology))
    async with federation, AsyncSpillover(federation["a"].url) as client:
        yield client, federation


async def test_a_job_is_awaited_and_asked_any_number_of_times(nodes):
    async with a_client(nodes) as (client, federation):
        job = await client.submit({"service_ms": 100}, key="order 7")
        assert (job.id, job.node) == ("order 7", federation["a"].url)
        assert await job.state() == "running"
        answers = await asyncio.gather(job.result(), job.result(10.0))
        assert answers[0] == answers[1] == await job.result()
        assert answers[0].result == {"service_ms": 100.0}
        assert await job.state() == await job.cancel() == "done"


async def test_a_job_is_found_again_by_another_client(nodes):
    async with a_client(nodes, "a", "b") as (client, federation):
        await client.submit({"service_ms": 50}, key="order/7?")
        async with AsyncSpillover(federation["b"].url) as other:
            job = other.job("order/7?", node=federation["a"].url)
            assert (await job.result()).id == "order/7?"
            assert await other.job("order/7?").state() == "unknown"
        again = await client.submit({"service_ms": 50}, key="order/7?")
        assert (await again.result()).id == "order/7?"
        assert federation["a"].ledger.home["accepted"] == 1


async def test_an_interrupted_client_leaves_no_job_that_nobody_could_find(nodes):
    """A job that has its user's key goes on, and so does every one when all ends well. One that was
    seen to run is no less to be found."""

    async def submit(url, *, interrupt):
        async with AsyncSpillover(url) as client:
            for _ in range(3):
                job = await client.submit(LONG)
            assert await job.state() == "running"
            await client.submit(LONG, key=f"mine {interrupt}")
            ended = await client.submit({"service_ms": 1})
            await ended.result()
            if interrupt:
                raise asyncio.CancelledError

    async with a_client(nodes, clusters={"a": {"servers": 20}}) as (client, federation):
        home, url = federation["a"].ledger.home, federation["a"].url
        task = asyncio.create_task(submit(url, interrupt=True))
        await asyncio.wait([task])
        assert (home["cancelled"], home["running"], home["done"]) == (3, 1, 1)
        await submit(url, interrupt=False)
        assert (home["cancelled"], home["running"], home["done"]) == (3, 5, 2)
        await federation["a"].send("POST", "/admin/drain")
        for visit in list(federation["a"].machine.register.visits.values()):
            await client.job(visit.request.id).cancel()
