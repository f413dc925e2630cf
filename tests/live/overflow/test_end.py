"""What those are told who still wait when a node ends: whether their request may have run."""

import asyncio
import json

import pytest

LONG = {"service_ms": 60_000}


def reason(response):
    return response.status, json.loads(response.body)["reason"]


async def test_a_node_that_is_to_end_takes_nothing_and_ends_what_it_has(nodes):
    """It returns once that is answered; whoever comes meanwhile is told to go elsewhere."""
    async with nodes.Federation(nodes.topology_of("a")) as federation:
        a = federation["a"]
        await a.shell.drain(20.0, 20.0)  # nothing is there: at once
        assert a.machine.draining
    async with nodes.Federation(nodes.topology_of("a")) as federation:
        a = federation["a"]
        running = a.post(LONG, id="runs")
        await nodes.until(lambda: a.machine.servers.busy)
        draining = asyncio.ensure_future(a.shell.drain(30.0, 30.0))
        await nodes.until(lambda: a.machine.draining)
        assert reason(await a.post({"service_ms": 1}, id="late")) == (503, "draining")
        assert not draining.done()
        assert (await a.send("DELETE", "/requests/runs"))[0] == 200
        await running
        await draining
        assert not any(a.shell.requests.left)


@pytest.mark.slow
async def test_what_waited_at_a_neighbor_that_ends_is_decided_again(nodes):
    """Surely not run there: it is done at home, keyed or not. What ran there is done again, for it
    has a key."""
    busy = {"queue_limit": 0, "servers": 2}
    topology = nodes.topology_of("a", "b", clusters={"a": busy})
    async with nodes.Federation(topology) as federation:
        a, b = federation["a"], federation["b"]
        held = [a.post(LONG, id=name) for name in ("h0", "h1")]
        await nodes.until(lambda: a.machine.servers.busy == 2)
        ran = a.post({"service_ms": 1000}, id="k")
        await nodes.until(lambda: b.machine.servers.busy)
        waited = a.post({"service_ms": 1})
        await nodes.until(lambda: b.machine.queue_length == 1)
        await federation.stop("b")
        for name in ("h0", "h1"):
            assert (await a.send("DELETE", f"/requests/{name}"))[0] == 200
        response = await waited
        assert (response.status, json.loads(response.body).get("path")) == (200, ["a"])
        assert (await ran).status == 200
        await asyncio.gather(*held)
