"""What a node shows of pushes, pulls and shadows: `/state`, `/federation`, `/explain`, `/metrics`,
the console. On nodes that really push and pull."""

import asyncio
from contextlib import asynccontextmanager

from prometheus_client.parser import text_string_to_metric_families

SERVICE_MS = 150
REQUESTS = 6


async def metrics(node):
    """`metrics[name, *labels]`, the labels in the order of their names, the cluster left out."""
    response = await node.client.request("GET", "/metrics", timeout_s=5)
    told = {}
    for family in text_string_to_metric_families(response.body.decode()):
        for sample in family.samples:
            labels = sorted(sample.labels.items())
            values = (value for name, value in labels if name != "cluster")
            told[(sample.name.removesuffix("_total"), *values)] = sample.value
    return told


@asynccontextmanager
async def pulled(nodes):
    """Six requests wait at a, which keeps all, until it goes by load: then b, which is idle, asks.
    (The federation, the names of the requests) once all are done."""
    topology = nodes.topology_of("a", "b", policy="adaptive")
    async with nodes.Federation(topology) as federation:
        a, b = federation["a"], federation["b"]
        await a.send("PUT", "/admin/policy", b'{"policy": "isolated"}')
        names = [f"r{i}" for i in range(REQUESTS)]
        sent = [a.post({"service_ms": SERVICE_MS}, id=name) for name in names]
        await nodes.until(lambda: a.machine.queue_length == REQUESTS - 1)
        assert b.machine.ledger.foreign["received"] == 0
        await a.send("PUT", "/admin/policy", b'{"policy": "adaptive"}')
        await asyncio.gather(*sent)
        assert {answer.result().status for answer in sent} == {200}
        await nodes.until(lambda: b.machine.pulling.coming == 0)
        yield federation, names


async def test_pulls_are_counted_where_they_happen(nodes):
    """Who gave counts pulls, who asked counts its questions, and both tell the same in states, in
    metrics and in the flows of the federation."""
    async with pulled(nodes) as (federation, _):
        a, b = federation["a"], federation["b"]
        _, state = await a.get("/state")
        (neighbor,) = state["neighbors"]
        count = neighbor["pulls"]
        assert 0 < count == state["pulls"] == state["forwards"] == neighbor["forwards"]
        ends = {"answered": count, "refused": 0, "lost": 0, "recalled": 0}
        assert neighbor["came_back"] == ends
        _, asking = await b.get("/state")
        assert asking["asks"]["work"] == count
        assert asking["asks"]["under_way"] == asking["pulls"] == 0

        told = await metrics(a)
        assert told["spillover_handed", "pull", "b"] == count
        assert told["spillover_handed", "push", "b"] == 0
        asked = await metrics(b)
        assert asked["spillover_asks", "work"] == count
        for end in ("nothing", "no_answer"):  # it asks on
            assert asked["spillover_asks", end] >= asking["asks"][end]

        for node in (a, b):
            flows = (await node.get("/federation"))[1]["flows"]
            assert flows == [
                {"cluster": "a", "neighbor": "b", "pushed": 0, "pulled": count, **ends},
                {"cluster": "b", "neighbor": "a", "pushed": 0, "pulled": 0}
                | dict.fromkeys(ends, 0),
            ]
